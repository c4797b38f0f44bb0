"""The staging table of exports: it holds done tasks between the application's table and an archive.

One transaction moves the whole row of a task to it, and one moves it back. Rows in it do not change, so a failed write
to the archive can be repeated.
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
RUN, NUMBER, DONE_AT = "xq_run", "xq_n", "xq_at_us"  # own columns: the run, the row's number, the time of done
SINCE = Column(DONE_AT, "BIGINT", DONE_AT, "BIGINT")
LONGEST = 255  # characters of a key that the history can hold, on databases that limit it
EXPORT_BATCH = "xq_export_batch"  # a temporary table of the keys of the tasks that a run is to move


class Exports:
    """The SQL of one queue's staging table, and of moving its history to an archive."""

    temporary = "CREATE TEMP TABLE"
    drop_batch: str  # drops the table EXPORT_BATCH
    keyed = ""  # further options of CREATE TABLE
    join = "JOIN"  # joins EXPORT_BATCH to the tasks, in this order
    version = "NULL"  # an expression that changes with each version of a row; NULL if only the history shows it
    same_version = ""
    one_more = f"value = {SETTINGS}.value + 1"
    watermark_xid = "NULL"  # the watermark: rows of the history with a lower xid are complete
    looks_ahead = False  # whether the watermark must be found by reading uncommitted rows
    lock = ""
    types: str  # a query of the application's columns and their types
    close: str  # locks the table against other writers until the transaction ends, and waits for them

    def __init__(self, of: Dialect) -> None:
        self.of = of
        self.name = of.name(SUFFIX)
        self.table = of.object(self.name)
        self.history = of.side("history")

    # what differs between databases

    def as_text(self, stored_key: str) -> str:
        """Return SQL that casts a key to the type of the history's column."""
        return stored_key

    def made(self) -> list[str]:
        """Return SQL that creates the staging table with the columns of the application's table."""
        index = self.of.quote(self.of.name(f"{SUFFIX}_key"))
        return [
            f"CREATE TABLE IF NOT EXISTS {self.table} AS SELECT {self.of.columns}, CAST('' AS text) AS {RUN}, "
            f"CAST(0 AS bigint) AS {NUMBER}, CAST(0 AS bigint) AS {DONE_AT} FROM {self.of.table_in_schema} WHERE 1 = 0",
            f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {self.table} ({RUN}, {NUMBER})",
        ]

    def analyzed(self) -> list[str]:
        """Return SQL that gives the planner statistics of EXPORT_BATCH."""
        return []

    def prepare(self, store: Connections) -> None:
        """Make the next long read lock no rows."""

    def refuse_misfits(self, store: Connections) -> None:
        """Make a connection raise an error for a value that is too long, if the database would truncate it."""

    def look_ahead(self, store: Connections) -> None:
        """Make the next statement read uncommitted rows, if it `looks_ahead`."""

    def those(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[str, dict[str, Any]]:
        """Return a condition, and its values, for the tasks that staging has with these numbers and keys."""
        mine = f"SELECT {', '.join(self.of.keys)} FROM {self.table} WHERE {self.of_run(numbers)}"
        return f"{self.of.key} IN ({mine})", {}

    stays = ""  # a condition that excludes the tasks that must stay

    # the staging table

    @property
    def is_needed(self) -> bool:
        """Whether the queue can be archived: it keeps done tasks, and its history has the times of done."""
        return DONE in self.of.machine.states and self.of.has_history

    @property
    def drop(self) -> str:
        return f"DROP TABLE IF EXISTS {self.table}"

    @contextmanager
    def closed(self, store: Connections) -> Iterator[None]:
        """Lock the staging table against other writers in this block; waits for those that write."""
        with store.atomic():
            store.execute(self.close)
            yield

    def columns(self, store: Connections) -> list[str]:
        """Return the application's columns that the staging table has, in their order; none if there is no table."""
        found = self.of.columns_of(store, self.name)
        return [field.column for field in self.of.source.fields if field.column in found]

    def is_there(self, store: Connections) -> bool:
        return bool(self.of.columns_of(store, self.name))

    @property
    def runs(self) -> str:
        return f"SELECT {RUN}, COUNT(*) FROM {self.table} GROUP BY {RUN} ORDER BY {RUN}"

    @property
    def bounds(self) -> str:
        """Return a query of the first and the last number of a run."""
        return f"SELECT MIN({NUMBER}), MAX({NUMBER}) FROM {self.table} WHERE {RUN} = :run"

    def of_run(self, numbers: Iterable[int]) -> str:
        return f"{RUN} = :run AND {NUMBER} IN ({', '.join(map(str, numbers))})"

    setting = f"SELECT value FROM {SETTINGS} WHERE name = :name"

    @property
    def numbered(self) -> str:
        """Return SQL that stores a setting unless it exists."""
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, :value){self.of.on_conflict('name')}"

    @property
    def unnumbered(self) -> str:
        """Return SQL that deletes the number of the archive: the next installation is another queue."""
        return f"DELETE FROM {SETTINGS} WHERE name = {self.of.literal(self.setting_of('archived'))}"

    def setting_of(self, what: str) -> str:
        return f"{what} {self.of.source_name}"[:255]

    @property
    def next_generation(self) -> str:
        """Return SQL that counts how often archived rows were deleted here."""
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, 1){self.of.on_conflict('name', self.one_more)}"

    # out

    @property
    def now_us(self) -> str:
        return f"SELECT {self.of.now_us}"

    def list_batch(self, before_us: int) -> list[str]:
        """Return SQL that lists the tasks to export: those whose last transition to D was before `before_us`.

        It includes done tasks whose transition the history does not have any more. `before_us` is microseconds since
        1970.
        """
        of, key = self.of, self.of.quote("key")
        stored_key = self.as_text(of.key_in_history([f"t.{column}" for column in of.keys]))
        parts = ", ".join(f"t.{column} AS k{i}" for i, column in enumerate(of.keys))
        last = f"SELECT {key}, MAX(id) AS id FROM {self.history} WHERE target = '{DONE}' GROUP BY {key}"
        is_done = of.is_state(DONE, f"t.{of.roles['status']}")
        return [
            f"{self.temporary} {EXPORT_BATCH}{self.keyed} AS SELECT ROW_NUMBER() OVER (ORDER BY h.id) AS n, "
            f"h.id AS id, h.at_us AS at_us, {stored_key} AS stored_key, {self.version} AS version, {parts} "
            f"FROM {of.table_in_schema} AS t LEFT JOIN ({last}) AS last ON last.{key} = {stored_key} "
            f"LEFT JOIN {self.history} AS h ON h.id = last.id "
            f"WHERE {is_done} AND (h.at_us IS NULL OR h.at_us < {before_us})",
            *self.analyzed(),
        ]

    last_number = f"SELECT COALESCE(MAX(n), 0) FROM {EXPORT_BATCH}"
    stayed = f"SELECT COUNT(*), MIN(at_us) FROM {EXPORT_BATCH}"

    @property
    def _with_tasks(self) -> str:
        same = " AND ".join(f"b.k{i} = t.{column}" for i, column in enumerate(self.of.keys))
        return f"{EXPORT_BATCH} AS b {self.join} {self.of.table_in_schema} AS t ON {same}"

    @property
    def found(self) -> str:
        """Return a query that locks the tasks of a range that are still done. Its rows are their numbers and keys."""
        keys = ", ".join(f"t.{column}" for column in self.of.keys)
        is_done = self.of.is_state(DONE, f"t.{self.of.roles['status']}")
        return (
            f"SELECT b.n, {keys} FROM {self._with_tasks} "
            f"WHERE b.n BETWEEN :low AND :high AND {is_done}{self.same_version}{self.stays}{self.lock}"
        )

    @property
    def done_again(self) -> str:
        """Return a query of the numbers of tasks that moved to D again, after the id `:after` of the history."""
        return (
            f"SELECT b.n FROM {self.history} AS h JOIN {EXPORT_BATCH} AS b ON b.stored_key = h.{self.of.quote('key')} "
            f"WHERE h.id > :after AND h.target = '{DONE}' AND h.id > COALESCE(b.id, 0)"
        )

    def note(self, numbers: Iterable[int]) -> str:
        """Return SQL that copies tasks to the staging table."""
        columns = [self.of.quote(field.column) for field in self.of.source.fields]
        return (
            f"INSERT INTO {self.table} ({', '.join(columns)}, {RUN}, {NUMBER}, {DONE_AT}) "
            f"SELECT {', '.join(f't.{column}' for column in columns)}, :run, b.n, b.at_us FROM {self._with_tasks} "
            f"WHERE b.n IN ({', '.join(map(str, numbers))})"
        )

    def take_out(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[Statement, Mapping[str, Any]]:
        """Return the statement that deletes tasks that staging has, and returns them; and its values."""
        those, values = self.those(numbers, keys)
        table = self.of.table_in_schema
        return Statement(
            f"DELETE FROM {table} WHERE {self.of.sets_context_first}{those} RETURNING {self.of.columns}"
        ), values

    def remove_from_batch(self, numbers: Iterable[int]) -> str:
        """Return SQL that removes exported tasks from EXPORT_BATCH."""
        return f"DELETE FROM {EXPORT_BATCH} WHERE n IN ({', '.join(map(str, numbers))})"

    @property
    def forget(self) -> str:
        return f"DELETE FROM {self.table} WHERE {RUN} = :run AND {NUMBER} BETWEEN :low AND :high"

    # back

    def load(self, columns: Sequence[str]) -> str:
        """Return the bulk load of the staging table: run, number, and these columns of the application's table."""
        return self.of.loading(self.table, [RUN, NUMBER, *map(self.of.quote, columns)])

    @property
    def some(self) -> str:
        """Return a query of the last of the next `:n` numbers of a run, from `:low`."""
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
        """Return a query of keys of a run that the application's table has too, at most 10."""
        keys = ", ".join(f"o.{key}" for key in self.of.keys)
        return f"SELECT {keys} FROM {self.table} AS o WHERE o.{RUN} = :run AND {self._there} LIMIT 10"

    @property
    def next_back(self) -> str:
        """Return a query of the next numbers of a run whose keys the application's table does not have."""
        return (
            f"SELECT o.{NUMBER} FROM {self.table} AS o WHERE o.{RUN} = :run AND o.{NUMBER} > :low "
            f"AND NOT {self._there} ORDER BY o.{NUMBER} LIMIT :n"
        )

    def put_back(self, columns: Sequence[str], numbers: Iterable[int]) -> Statement:
        """Return the statement that moves tasks back to the application's table, and returns them."""
        status = self.of.source.roles["status"].column
        names = [self.of.quote(column) for column in columns]
        values = [
            self.of.entered(DONE) if column == status else name for column, name in zip(columns, names, strict=True)
        ]
        return Statement(
            f"INSERT INTO {self.of.table_in_schema} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM {self.table} WHERE {self.of_run(numbers)} RETURNING {self.of.columns}"
        )

    def remove(self, numbers: Iterable[int]) -> str:
        return f"DELETE FROM {self.table} WHERE {self.of_run(numbers)}"

    # extracts

    def extract_run(self, tasks: Extract, run: str) -> Extract:
        """Return the extract of the tasks of a run, with the time of done."""
        whose = f"{RUN} = {self.of.literal(run)}"
        return replace(tasks, relation=self.table, rows=whose, columns=(*tasks.columns, SINCE), ranged="")

    def extract_all(self, tasks: Extract, there: Sequence[str], without: Sequence[str], loading: str) -> Extract:
        """Return the extract of all tasks: of the application's table, and of staging.

        Staging has the columns `there`. The runs `without`, and those that begin with `loading`, are left out.
        """
        quoted = {field.column: self.of.quote(field.column) for field in self.of.source.fields}
        own = ", ".join(f"{quote} AS {quote}" for quote in quoted.values())
        found = f"SELECT {own}, NULL AS {RUN}, NULL AS {DONE_AT} FROM {self.of.table_in_schema}"
        if there:
            kept = ", ".join(quote if column in there else "NULL" for column, quote in quoted.items())
            runs = ", ".join(map(self.of.literal, without))
            which = f"{RUN} NOT LIKE '{loading}%'{f' AND {RUN} NOT IN ({runs})' * bool(runs)}"
            found += f" UNION ALL SELECT {kept}, {RUN}, {DONE_AT} FROM {self.table} WHERE {which}"
        return replace(tasks, relation=f"({found}) AS stored_key", columns=(*tasks.columns, SINCE), ranged="")

    def extract_generation(self, tasks: Extract, name: str) -> Extract:
        whose = f"name = {self.of.literal(name)}"
        value = Column("value", "DOUBLE", "value", "DOUBLE")
        return replace(tasks, relation=SETTINGS, rows=whose, columns=(value,), ranged="")

    # the history

    @property
    def newest_and_watermark(self) -> str:
        """Return a query of the newest id and time of the history, and of its watermark."""
        return f"SELECT MAX(id), MAX(at_us), {self.watermark_xid} FROM {self.history}"

    def old(self, watermark: Mapping[str, Any]) -> str:
        """Return the condition of the history's rows before a watermark. Never the newest: see `_not_newest`."""
        xid = f" AND xid < {watermark['xid']}" if watermark["xid"] is not None else ""
        return f"id < {watermark['id']} AND at_us < {watermark['before_us']}{xid}"

    def oldest(self, watermark: Mapping[str, Any]) -> str:
        return f"SELECT MIN(id) FROM {self.history} WHERE {self.old(watermark)}"

    def count_old(self, watermark: Mapping[str, Any]) -> str:
        """Return a query of the number of rows before a watermark, in a range of ids."""
        return f"SELECT COUNT(*) FROM {self.history} WHERE {self.old(watermark)} AND id BETWEEN :low AND :high"

    def forget_old(self, watermark: Mapping[str, Any]) -> str:
        return f"DELETE FROM {self.history} WHERE {self.old(watermark)} AND id BETWEEN :low AND :high"
