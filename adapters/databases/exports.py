"""The outbox of a queue: a table in which done tasks stand between the application's table and an archive.

A task goes out in one transaction, by its whole row, and comes back in one. What is in the outbox nobody changes, so
that it can be read as often as it takes to have it written elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xq.adapters.databases.records import SETTINGS
from xq.core.compile import Statement
from xq.core.ports import Connections
from xq.pipeline.scan import Column, Extract

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

DONE = "D"
SUFFIX = "archive"
RUN, NUMBER, DONE_AT = "xq_run", "xq_n", "xq_at_us"  # the outbox's own columns: whose the row is, and since when done
SINCE = Column(DONE_AT, "BIGINT", DONE_AT, "BIGINT")
LONGEST = 255  # characters of a key, where the history does not hold more
LEAVING = "xq_leaving"  # the keys of the tasks that a run means to move, on its connection alone


class Exports:
    """The SQL of the outbox of one queue, and of its history as far as it goes to an archive."""

    temporary = "CREATE TEMP TABLE"
    over: str  # drops the table of those that leave
    keyed = ""  # what else a table is made with
    join = "JOIN"  # of the keys that leave to their tasks, in this order
    version = "NULL"  # what tells a version of a row from a later one; NULL where only the history tells
    same_version = ""
    one_more = f"value = {SETTINGS}.value + 1"
    settled = "NULL"  # a number that tells what is settled: all of the history whose xid is less
    looks_ahead = False  # whether nothing tells what is settled but a look at what is not committed yet
    lock = ""
    types: str  # the columns of the application's table, and what tells of their types
    close: str  # within a transaction: has nobody else write into the table, and waits for whoever does

    def __init__(self, of: Dialect) -> None:
        self.of = of
        self.name = of.name(SUFFIX)
        self.table = of.object(self.name)
        self.history = of.side("history")

    # what differs between databases

    def as_text(self, told: str) -> str:
        """A key as the history tells it, of the type that the history has it in."""
        return told

    def made(self) -> list[str]:
        """SQL that makes the table, of the columns that the application's has."""
        index = self.of.quote(self.of.name(f"{SUFFIX}_key"))
        return [
            f"CREATE TABLE IF NOT EXISTS {self.table} AS SELECT {self.of.columns}, CAST('' AS text) AS {RUN}, "
            f"CAST(0 AS bigint) AS {NUMBER}, CAST(0 AS bigint) AS {DONE_AT} FROM {self.of.table_in_schema} WHERE 1 = 0",
            f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {self.table} ({RUN}, {NUMBER})",
        ]

    def analyzed(self) -> list[str]:
        """SQL that has the planner know how many are leaving, and find them."""
        return []

    def prepare(self, store: Connections) -> None:
        """Before a statement that reads much: have it lock nothing."""

    def refuse_misfits(self, store: Connections) -> None:
        """Have a connection raise for a value that a column cannot hold, where it would be cut."""

    def look_ahead(self, store: Connections) -> None:
        """Before a statement that shall see what is not committed yet, where it `looks_ahead`."""

    def those(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[str, dict[str, Any]]:
        """The tasks of these numbers, which are in the outbox already and have these keys: a condition, its values."""
        mine = f"SELECT {', '.join(self.of.keys)} FROM {self.table} WHERE {self.of_run(numbers)}"
        return f"{self.of.key} IN ({mine})", {}

    stays = ""  # of a task that must not leave, as a condition to the contrary

    # what is there

    @property
    def is_needed(self) -> bool:
        """Whether the queue has done tasks, and tells since when, without which nothing is archived."""
        return DONE in self.of.machine.states and self.of.has_history

    @property
    def drop(self) -> str:
        return f"DROP TABLE IF EXISTS {self.table}"

    @contextmanager
    def closed(self, store: Connections) -> Iterator[None]:
        """Have nobody else write into it, and wait for whoever does."""
        with store.atomic():
            store.execute(self.close)
            yield

    def columns(self, store: Connections) -> list[str]:
        """The application's columns that it has, in their order; none where it is not there."""
        found = self.of.columns_of(store, self.name)
        return [field.column for field in self.of.source.fields if field.column in found]

    def is_there(self, store: Connections) -> bool:
        return bool(self.of.columns_of(store, self.name))

    @property
    def runs(self) -> str:
        return f"SELECT {RUN}, COUNT(*) FROM {self.table} GROUP BY {RUN} ORDER BY {RUN}"

    @property
    def bounds(self) -> str:
        """The first and the last number of a run."""
        return f"SELECT MIN({NUMBER}), MAX({NUMBER}) FROM {self.table} WHERE {RUN} = :run"

    def of_run(self, numbers: Iterable[int]) -> str:
        return f"{RUN} = :run AND {NUMBER} IN ({', '.join(map(str, numbers))})"

    setting = f"SELECT value FROM {SETTINGS} WHERE name = :name"

    @property
    def numbered(self) -> str:
        """Have a number, if there is none yet."""
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, :value){self.of.on_conflict('name')}"

    @property
    def unnumbered(self) -> str:
        """Have none: what is installed next is another queue, with a history of its own."""
        return f"DELETE FROM {SETTINGS} WHERE name = {self.of.literal(self.setting_of('archived'))}"

    def setting_of(self, what: str) -> str:
        """The name of a setting of this queue."""
        return f"{what} {self.of.source_name}"[:255]

    @property
    def next_generation(self) -> str:
        """Count how often something that is in an archive was taken away here."""
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, 1){self.of.on_conflict('name', self.one_more)}"

    # out

    @property
    def now_us(self) -> str:
        return f"SELECT {self.of.now_us}"

    def leaving(self, before_us: int) -> list[str]:
        """SQL that notes the done tasks that leave: those whose last transition into D was before.

        And those of which the history does not tell it any more.
        """
        of, key = self.of, self.of.quote("key")
        told = self.as_text(of.told_key([f"t.{column}" for column in of.keys]))
        parts = ", ".join(f"t.{column} AS k{i}" for i, column in enumerate(of.keys))
        last = f"SELECT {key}, MAX(id) AS id FROM {self.history} WHERE target = '{DONE}' GROUP BY {key}"
        is_done = of.is_state(DONE, f"t.{of.roles['status']}")
        return [
            f"{self.temporary} {LEAVING}{self.keyed} AS SELECT ROW_NUMBER() OVER (ORDER BY h.id) AS n, h.id AS id, "
            f"h.at_us AS at_us, {told} AS told, {self.version} AS version, {parts} "
            f"FROM {of.table_in_schema} AS t LEFT JOIN ({last}) AS last ON last.{key} = {told} "
            f"LEFT JOIN {self.history} AS h ON h.id = last.id "
            f"WHERE {is_done} AND (h.at_us IS NULL OR h.at_us < {before_us})",
            *self.analyzed(),
        ]

    last_number = f"SELECT COALESCE(MAX(n), 0) FROM {LEAVING}"
    stayed = f"SELECT COUNT(*), MIN(at_us) FROM {LEAVING}"

    @property
    def _with_tasks(self) -> str:
        same = " AND ".join(f"l.k{i} = t.{column}" for i, column in enumerate(self.of.keys))
        return f"{LEAVING} AS l {self.join} {self.of.table_in_schema} AS t ON {same}"

    @property
    def found(self) -> str:
        """The numbers and keys of those that are done still, of a range; nobody else changes them from here on."""
        keys = ", ".join(f"t.{column}" for column in self.of.keys)
        is_done = self.of.is_state(DONE, f"t.{self.of.roles['status']}")
        return (
            f"SELECT l.n, {keys} FROM {self._with_tasks} "
            f"WHERE l.n BETWEEN :low AND :high AND {is_done}{self.same_version}{self.stays}{self.lock}"
        )

    @property
    def done_again(self) -> str:
        """The numbers of those that came to D once more since: `:mark` is an id of the history from before."""
        return (
            f"SELECT l.n FROM {self.history} AS h JOIN {LEAVING} AS l ON l.told = h.{self.of.quote('key')} "
            f"WHERE h.id > :mark AND h.target = '{DONE}' AND h.id > COALESCE(l.id, 0)"
        )

    def note(self, numbers: Iterable[int]) -> str:
        """Write tasks into the outbox."""
        columns = [self.of.quote(field.column) for field in self.of.source.fields]
        return (
            f"INSERT INTO {self.table} ({', '.join(columns)}, {RUN}, {NUMBER}, {DONE_AT}) "
            f"SELECT {', '.join(f't.{column}' for column in columns)}, :run, l.n, l.at_us FROM {self._with_tasks} "
            f"WHERE l.n IN ({', '.join(map(str, numbers))})"
        )

    def take_out(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[Statement, Mapping[str, Any]]:
        """Delete tasks that are in the outbox, and return them."""
        those, values = self.those(numbers, keys)
        table = self.of.table_in_schema
        return Statement(f"DELETE FROM {table} WHERE {self.of.told_first}{those} RETURNING {self.of.columns}"), values

    def left(self, numbers: Iterable[int]) -> str:
        """Strike tasks that have left off the list."""
        return f"DELETE FROM {LEAVING} WHERE n IN ({', '.join(map(str, numbers))})"

    @property
    def forget(self) -> str:
        return f"DELETE FROM {self.table} WHERE {RUN} = :run AND {NUMBER} BETWEEN :low AND :high"

    # back

    def load(self, columns: Sequence[str]) -> str:
        """Write rows of the outbox: their run, their numbers, and values for these columns of the application's."""
        return self.of.loading(self.table, [RUN, NUMBER, *map(self.of.quote, columns)])

    @property
    def some(self) -> str:
        """The last of the next numbers of a run."""
        numbers = f"SELECT {NUMBER} AS n FROM {self.table} WHERE {RUN} = :run AND {NUMBER} >= :low ORDER BY {NUMBER}"
        return f"SELECT MAX(n) FROM ({numbers} LIMIT :n) AS these"

    @property
    def rename(self) -> str:
        return f"UPDATE {self.table} SET {RUN} = :new WHERE {RUN} = :run AND {NUMBER} BETWEEN :low AND :high"

    @property
    def _there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.of.table_in_schema} AS t WHERE {self.of.same_key('t', 'o')})"

    @property
    def in_the_way(self) -> str:
        """The keys of a run that the table has again."""
        keys = ", ".join(f"o.{key}" for key in self.of.keys)
        return f"SELECT {keys} FROM {self.table} AS o WHERE o.{RUN} = :run AND {self._there} LIMIT 10"

    @property
    def next_back(self) -> str:
        """The next numbers of a run whose keys the table does not have."""
        return (
            f"SELECT o.{NUMBER} FROM {self.table} AS o WHERE o.{RUN} = :run AND o.{NUMBER} > :low "
            f"AND NOT {self._there} ORDER BY o.{NUMBER} LIMIT :n"
        )

    def put_back(self, columns: Sequence[str], numbers: Iterable[int]) -> Statement:
        """Put tasks back into the table, and return them."""
        status = self.of.source.roles["status"].column
        names = [self.of.quote(column) for column in columns]
        values = [
            self.of.entered(DONE) if column == status else name for column, name in zip(columns, names, strict=True)
        ]
        return Statement(
            f"INSERT INTO {self.of.table_in_schema} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM {self.table} WHERE {self.of_run(numbers)} RETURNING {self.of.columns}"
        )

    def strike(self, numbers: Iterable[int]) -> str:
        return f"DELETE FROM {self.table} WHERE {self.of_run(numbers)}"

    # as other programs read it

    def extract_run(self, tasks: Extract, run: str) -> Extract:
        """The tasks of a run, each with when it was done."""
        whose = f"{RUN} = {self.of.literal(run)}"
        return replace(tasks, relation=self.table, rows=whose, columns=(*tasks.columns, SINCE), ranged="")

    def extract_all(self, tasks: Extract, there: Sequence[str], without: Sequence[str], loading: str) -> Extract:
        """The tasks of the table, and those in the outbox, which has the columns `there`, but for some runs."""
        quoted = {field.column: self.of.quote(field.column) for field in self.of.source.fields}
        own = ", ".join(f"{quote} AS {quote}" for quote in quoted.values())
        found = f"SELECT {own}, NULL AS {RUN}, NULL AS {DONE_AT} FROM {self.of.table_in_schema}"
        if there:
            kept = ", ".join(quote if column in there else "NULL" for column, quote in quoted.items())
            runs = ", ".join(map(self.of.literal, without))
            which = f"{RUN} NOT LIKE '{loading}%'{f' AND {RUN} NOT IN ({runs})' * bool(runs)}"
            found += f" UNION ALL SELECT {kept}, {RUN}, {DONE_AT} FROM {self.table} WHERE {which}"
        return replace(tasks, relation=f"({found}) AS told", columns=(*tasks.columns, SINCE), ranged="")

    def extract_generation(self, tasks: Extract, name: str) -> Extract:
        whose = f"name = {self.of.literal(name)}"
        value = Column("value", "DOUBLE", "value", "DOUBLE")
        return replace(tasks, relation=SETTINGS, rows=whose, columns=(value,), ranged="")

    # the history

    @property
    def settling(self) -> str:
        """The newest id and moment of the history, and what tells which rows are settled."""
        return f"SELECT MAX(id), MAX(at_us), {self.settled} FROM {self.history}"

    def old(self, mark: Mapping[str, Any]) -> str:
        """The rows of the history that a mark means: never the newest, for the reason of `Dialect._not_newest`."""
        xid = f" AND xid < {mark['xid']}" if mark["xid"] is not None else ""
        return f"id < {mark['id']} AND at_us < {mark['before_us']}{xid}"

    def oldest(self, mark: Mapping[str, Any]) -> str:
        return f"SELECT MIN(id) FROM {self.history} WHERE {self.old(mark)}"

    def count_old(self, mark: Mapping[str, Any]) -> str:
        """How many there are among some ids."""
        return f"SELECT COUNT(*) FROM {self.history} WHERE {self.old(mark)} AND id BETWEEN :low AND :high"

    def forget_old(self, mark: Mapping[str, Any]) -> str:
        return f"DELETE FROM {self.history} WHERE {self.old(mark)} AND id BETWEEN :low AND :high"
