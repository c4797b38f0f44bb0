"""What the databases have in common: statements, counters and the records of xq, as SQL."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from xq.adapters.databases.checkpoints import Sinks, TallySql
from xq.adapters.databases.dirty_groups import Again
from xq.adapters.databases.groups import Utubes
from xq.adapters.databases.named import by_position, filled, picked
from xq.adapters.databases.staging import Staging
from xq.core.compile import After, Change, Given, Own, Selector, Statement
from xq.core.errors import ConfigurationError
from xq.core.generated import arguments
from xq.core.machine import ABSENT, ELSEWHERE, LONGEST, PLUS_ONE, READY, TAKEN, TOKEN, Guard, Machine, Marker
from xq.core.ports import (
    HISTORY,
    TIMES,
    Address,
    Connection,
    Field,
    Kind,
    Row,
    Store,
    Table,
    Values,
    Writes,
    beside,
    fits_a_column,
)
from xq.sessions.session import UUID_LENGTH, ProofOfLife

if TYPE_CHECKING:
    from xq.adapters.databases.exports import Outbox
    from xq.adapters.databases.scans import Rendering
    from xq.pipeline.scan import Extract, What

SESSIONS = "xq_session"  # the sessions of a database (queue ''), and the queues in which each may hold tasks
SETTINGS = "xq_setting"  # what `configure` stored
QUEUES = "xq_queue"  # what is installed in it, and how it was configured
STALE = {  # the ends of names that a configuration of a queue may have, and another not
    "table": re.compile("owner|wait|history|utube_news|utube_[0-9]+|stage_[0-9a-f]{8}"),
    "index": re.compile("taken|runat|deadline|unique|utube|oldest_.(_of_tube)?"),
    "trigger": re.compile("insert|update|delete|truncate"),
}

GUARDS = ("limit", "unique", "utube")

Run = Callable[[Connection, dict[str, Any]], list[Row]]
Pick = Callable[[Mapping[str, Any]], Sequence[Any]]

_savepoints = itertools.count(1)  # in which something was changed, in this process


def parts_of_uuid(text: str) -> list[str]:
    """The parts of 32 digits that dashes come between; as SQL."""
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return [f"substr({text}, {start}, {length})" for start, length in parts]


def goes_on(now: str) -> str:
    """That a session has not ended; as SQL."""
    return f"(ends IS NULL OR ends > {now})"


def session_there(now: str) -> str:
    """A row, where the session `:uuid` has not ended; as SQL."""
    return f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = '' AND {goes_on(now)}"


@dataclass(frozen=True, slots=True)
class Object:
    """Something that installing creates. `create` may be run twice."""

    kind: str  # table, index or trigger
    name: str
    create: tuple[str, ...]
    drop: str


class Number(NamedTuple):
    """What a change adds one to, as SQL: `when` says for which rows."""

    tube: str
    source: str
    target: str
    when: str


class Dialect(ABC):
    """The SQL for one queue in one database.

    Statuses are literals in it, never parameters: a planner that does not see the value cannot use a partial index.
    All that comes with a call is a named value:

    any statement
        now                  the clock of a test, in seconds since 1970; NULL for that of the database
        told                 what a server's triggers are told: the event, of which queue, and `now`
    which rows
        k0, k1 ...           the parts of a key; of several rows with the place of the row (k0_3)
        keys                 the keys of a list, in JSON
        session, mark        a fence: how the owner begins, which is the session; the whole owner, which is one take
        session_end          the end of a range of owners that `session` begins
        tube                 the tube of a take, or of a counter
        unique               a value of the role unique
        n, many              how many rows, at most; so many as were locked
        since, until         microseconds since 1970 (the history)
    what is written
        f3, f3_0, f3_1 ...   the application's fields, by their place in the table; of several rows with that of the row
        ttl, increment ...   the options of a call, in seconds, by their names
        own_ttl ...          what is remembered of them in a role, `forever` for never
        owner                the mark of a take
        adding               how many tasks a put adds, where their number is limited
    the records of xq
        uuid, queue, lease   a session, the queue in which it may hold tasks, and for how many seconds it goes on
        waiter               who waits for the end of a task
        source, target, count, event   a transition, how often it was seen, and what it was of
        name, value          a setting
        savepoint            one in which something was changed
        sink, stream, batch  the number of the batch of a stream that was written there last
        unit, bucket         a span of time, and the second at which one begins

    Three names are none of values: `filled` puts SQL in their places, when it is known of how many rows a statement is.
    `listed` and `rows` become values beside one another, and `chosen` a condition.
    """

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None:
        for guard in machine.guards:
            if guard.name not in GUARDS:
                raise ConfigurationError(
                    f"no database keeps the guard {guard.name!r}: they keep {' and '.join(GUARDS)}"
                )
        self.source = table
        self.machine = machine
        self.words = words
        self.letters = {words[state]: state for state in machine.states}
        self.tube_stats = tuple(tube_stats)
        self.roles = {role: self.quote(field.column) for role, field in table.roles.items()}
        self.source_name = f"{table.schema}.{table.name}" if table.schema else table.name
        self.keys = tuple(self.quote(field.column) for field in table.key)
        self.table = self.quote(table.name)
        self.key = self._tuple(self.keys)
        self.columns = ", ".join(self.quote(field.column) for field in table.fields)
        self._parameters = {field.name: f"f{i}" for i, field in enumerate(table.fields)}

    # what differs between databases

    @property
    @abstractmethod
    def now(self) -> str:
        """Seconds since 1970: `:now` when it is given, else by the clock of the database."""

    @abstractmethod
    def moment(self, kind: Kind, seconds: str) -> str:
        """Seconds since 1970, as a column of this kind holds them."""

    @abstractmethod
    def seconds(self, kind: Kind, column: str) -> str:
        """What `moment` made, as seconds since 1970."""

    @abstractmethod
    def differ(self, one: str, other: str) -> str:
        """Whether two values differ, be they NULL; as SQL."""

    def bound(self, kind: Kind) -> str:
        """Now, to be compared with a column of this kind."""
        return self.moment(kind, self.now) if kind in TIMES else self.now

    @abstractmethod
    def side_tables(self) -> list[Object]:
        """The tables that belong to this queue alone."""

    @abstractmethod
    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        """An index of the rows that meet a condition."""

    @abstractmethod
    def triggers(self) -> list[Object]:
        """What sees every change of the table, whoever makes it."""

    @abstractmethod
    def existing(self, store: Store[Any]) -> dict[str, str]:
        """The objects in the schema of the queue, and those that queues share: name -> kind."""

    @abstractmethod
    def table_columns(self, store: Store[Any]) -> set[str]:
        """The columns of the application's table that the model has as well; none when there is no table."""

    @abstractmethod
    def columns_of(self, store: Store[Any], table: str) -> dict[str, bool]:
        """The columns of a table in the schema of the queue, and which of them the database makes of others."""

    @contextmanager
    def creating(self, store: Store[Any]) -> Iterator[None]:
        """Create the table, with what the application has on it, and nobody else what would be called the same."""
        yield

    @contextmanager
    def installing(self, store: Store[Any]) -> Iterator[None]:
        """Change what is installed, as one transaction where the database can, and nobody else meanwhile."""
        with store.atomic():
            yield

    @contextmanager
    def closing(self, store: Store[Any]) -> Iterator[int]:
        """Before the table is dropped: wait for who moves tasks, and have nobody do so until it is, or this is over.

        How many tasks are taken. Where that is none, and a database cannot keep others away for longer, the table is
        gone within.
        """
        with self.installing(store):
            yield self.taken_at_last(store)

    def taken_at_last(self, store: Store[Any]) -> int:
        """How many tasks are taken, when nobody can take another before the transaction ends."""
        self.one_at_a_time(store, within=True)
        return self.taken_now(store)

    def taken_now(self, store: Store[Any]) -> int:
        ((taken,),) = store.execute(f"SELECT COUNT(*) FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return int(taken)

    @abstractmethod
    def connected(self, store: Store[Any]) -> None:
        """Set a new connection up."""

    @abstractmethod
    def prepare(self, store: Store[Any]) -> None:
        """Set the database up for queues, where that cannot be done within a transaction, or refuse what is unfit."""

    def refuse(self, store: Store[Any]) -> None:
        """Raise a ConfigurationError where nothing may be installed; `prepare` does, and it is asked again later."""
        return

    @abstractmethod
    def unfit(self, store: Store[Any]) -> str | None:
        """What about the database or the table is not as `prepare` leaves it or wants it, in words."""

    @abstractmethod
    def only_reads(self, store: Store[Any]) -> bool:
        """Whether the database says that it may not be written on this connection, whoever may do so all the same."""

    def grants(self, store: Store[Any], user: str, role: str) -> list[str]:
        """SQL that gives a user of the database the rights that a role needs. Raises BadValue, ConfigurationError."""
        raise ConfigurationError("SQLite has no users: the system's rights to the file say who may read and write it")

    def may_move(self, store: Store[Any]) -> bool:
        """Whether this user of the database may move tasks."""
        return True

    def trouble(self, store: Store[Any]) -> str | None:
        """What somebody else does that makes the calls of this queue slower and slower, in words."""
        return None

    @abstractmethod
    def proof_of_life(self, store: Store[Any]) -> ProofOfLife | None:
        """What proves to other processes that a session lives; None where none can see the database."""

    @abstractmethod
    def writes(self, store: Store[Any]) -> Writes | None:
        """What tells that another process may have written; None where none can."""

    @abstractmethod
    def remembering(self, rows: Selector, statement: Statement) -> Statement:
        """A statement that takes these rows, and what writes down beside the table who took them."""

    @abstractmethod
    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        """Return what runs a statement with all its parts on a connection. The triggers are told the event.

        One that puts tasks brings `width` values of each: those stand in `rows`, a tuple for each, not by their names.
        """

    @property
    @abstractmethod
    def now_us(self) -> str:
        """`now` as a whole number of microseconds."""

    @abstractmethod
    def told_key(self, parts: Sequence[str]) -> str:
        """A key as the history tells it, of its parts as they are stored; as SQL."""

    @abstractmethod
    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        """Whether the words of a refusal tell of a value that a guard keeps unique."""

    commits = ""  # a query that returns something else as soon as another connection has committed a write; "" for none
    # What makes a table of the connection with numbers, which are rolled back with all else, where one is needed; a
    # query for the number of what is open now, innermost; and one for a row where that was committed.
    savepoints: str
    savepoint_noted: ClassVar[str] = "INSERT INTO xq_savepoint (number) VALUES (:savepoint) RETURNING number"
    savepoint_kept: ClassVar[str] = "DELETE FROM xq_savepoint WHERE number = :savepoint RETURNING number"
    begin_writing: str  # a write that changes nothing: takes the lock that writes need, where a read would be too early
    never: str  # what a role that remembers seconds holds for never, since NULL means the default; as SQL
    forever: float = math.inf  # the same, as a value
    no_limit: int | None  # the `:n` of all rows
    most_values: int  # that one statement may bring
    mark: str  # what stands for a value in the SQL of the driver
    longest_name: int | None = None  # in bytes
    utubes_kind: type[Utubes]
    outbox_kind: type[Outbox]
    extracts: type[Rendering]
    layout = "5"  # of what is installed; a change of triggers, indexes or side tables raises it
    create_view = "CREATE VIEW IF NOT EXISTS"
    long_text = "TEXT"  # the type of a text of any length
    engine = ""  # what follows the columns of a table that is made
    more_of_queues = ""  # what else is written of each queue: columns, after a comma
    absent_rows = ""  # what follows a SELECT of no table that has a condition
    lock = ""  # what has a SELECT wait for whoever writes its rows, and others for whoever runs it

    def not_by_index(self, column: str) -> str:
        """A column in a condition that the planner shall not look up in an index."""
        return column

    def by_index(self, name: str) -> str:
        """What follows a table that shall be read by this index, whatever the planner believes of it."""
        return ""

    @property
    @abstractmethod
    def keys_at_once(self) -> str:
        """The rows of a list of keys, `:keys`; as SQL."""

    @property
    def lists_keys(self) -> bool:
        """Whether keys may come as one list."""
        return len(self.keys) == 1

    def on_conflict(self, key: str, update: str = "") -> str:
        """What follows an INSERT whose row may be there already: it is updated, or stays as it is."""
        return f" ON CONFLICT ({key}) DO {f'UPDATE SET {update}' if update else 'NOTHING'}"

    @property
    def told_first(self) -> str:
        """What begins the condition of a DELETE that must tell the triggers its event."""
        return ""

    def entered(self, state: str) -> str:
        """What is written into the status field, by a statement that may have to tell the triggers its event."""
        return self.literal(self.words[state])

    def whole(self, number: str) -> str:
        """A number as a whole one that the driver returns as such."""
        return number

    def varying(self, length: int) -> str:
        """The type of text of at most so many characters, in a table of xq's."""
        return "TEXT"

    def drop(self, kind: str, name: str) -> str:
        """SQL that drops an object of this queue, if it is there."""
        return f"DROP {kind.upper()} IF EXISTS {self.object(name)}"

    # words

    @staticmethod
    def quote(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    @staticmethod
    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)

    def in_any_mode(self, text: str) -> str:
        """A literal to be stored, which no setting of a connection has mean something else."""
        return self.literal(text)

    def in_a_script(self, sql: str) -> str:
        """A statement as it stands in a text with others, each of which ends with a ; and its line."""
        return sql

    @staticmethod
    def _tuple(parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def name(self, suffix: str) -> str:
        """The name of something that belongs to this queue."""
        return beside(self.source.name, suffix, self.longest_name)

    def in_schema(self, schema: str) -> Self:
        """The same, but for the schema in which triggers are told to find the tables."""
        found = copy.copy(self)
        found.source = replace(self.source, schema=schema)
        for name in list(vars(found)):
            if isinstance(getattr(type(self), name, None), cached_property):
                del vars(found)[name]
        return found

    def of_table(self, name: str) -> Self:
        """The same for another table, which has the same columns."""
        return type(self)(replace(self.source, name=name), self.machine, self.words, self.tube_stats)

    def object(self, name: str) -> str:
        """A name, quoted, in the schema of the table."""
        return f"{self.quote(self.source.schema)}.{self.quote(name)}" if self.source.schema else self.quote(name)

    def side(self, suffix: str) -> str:
        """What belongs to this queue, by the end of its name: the tables count, owner, wait and history, say."""
        return self.object(self.name(suffix))

    def exact(self, column: str, kind: Kind = "text") -> str:
        """A column, compared as it is, whatever collation it has; an index on it does not help then."""
        return column

    def holds(self, column: str, test: str, kind: Kind = "text") -> str:
        """A test of a column, exact, which an index on it may answer."""
        return f"{column} {test}"

    def is_state(self, state: str, column: str = "") -> str:
        return self.holds(column or self.roles["status"], f"= {self.literal(self.words[state])}", self.kind("status"))

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        words = ", ".join(self.literal(self.words[state]) for state in states)
        return self.holds(column or self.roles["status"], f"IN ({words})", self.kind("status"))

    def letter(self, column: str) -> str:
        """The letter of a stored status; X for one that is not the queue's."""
        cases = " ".join(f"WHEN {self.literal(self.words[s])} THEN '{s}'" for s in self.machine.states)
        return f"CASE {self.exact(column, self.kind('status'))} {cases} ELSE '{ABSENT}' END"

    def kind(self, role: str) -> Kind:
        return self.source.roles[role].kind

    def state(self, row: Row) -> str | None:
        """The letter of a row that a statement returned; None when the row is not the queue's."""
        status = self.source.fields.index(self.source.roles["status"])
        return self.letters.get(row[status])

    # which rows

    @property
    def owners(self) -> str:
        """The table of owners beside that of the application, where no role holds them."""
        return self.side("owner")

    @property
    def owner(self) -> str:
        """Whoever holds the row: the role, or what the side table says."""
        return self.roles.get("owner", self._owner_beside)

    @property
    def _owner_beside(self) -> str:
        return f"(SELECT o.owner FROM {self.owners} AS o WHERE {self.same_key('o', self.table)})"

    @property
    def adopt_owners(self) -> str:
        """SQL that copies the tokens of taken tasks from the side table, which is there, to the role owner."""
        owner = self.roles["owner"]
        taken = f"{self.is_state(TAKEN)} AND {owner} IS NULL"
        return f"UPDATE {self.table_in_schema} SET {owner} = {self._owner_beside} WHERE {taken}"

    def same_key(self, alias: str, version: str) -> str:
        """That a row of a table beside, which has this alias ('': none), is of this version of a row."""
        return self._same(alias, self.keys, version)

    def same_wait(self, alias: str, version: str) -> str:
        """That somebody waits for the end of the task of this row."""
        return self._same(alias, self._parts(), version)

    def _same(self, alias: str, columns: Sequence[str], version: str) -> str:
        dot = f"{alias}." if alias else ""
        return " AND ".join(f"{dot}{column} = {version}.{key}" for column, key in zip(columns, self.keys, strict=True))

    def by_key(self, of: str = "", row: str = "") -> str:
        """The row of the key, of a table that has this alias where there are several; `row` ends its values' names."""
        parts = enumerate(zip(self.keys, self.source.key, strict=True))
        return " AND ".join(self.holds(f"{of}{key}", f"= :k{i}{row}", field.kind) for i, (key, field) in parts)

    @property
    def in_tube(self) -> str:
        return self.holds(self.roles["tube"], "= :tube")

    def counted(self, column: str) -> str:
        """Whether a tube is one of those that are counted on their own."""
        return self.holds(column, f"IN ({', '.join(map(self.literal, self.tube_stats))})")

    def not_due(self, state: str, of: str = "") -> str:
        """What is due was not moved yet, but must not be handed out any more; `of` as in `by_key`."""
        timers = self.machine.timers.get(state, ())
        return "".join(
            f" AND ({of}{self.roles[t.column]} IS NULL OR "
            f"{of}{self.roles[t.column]} > {self.bound(self.kind(t.column))})"
            for t in timers
        )

    def keys_there(self, of: str = "") -> str:
        """What begins a condition of rows of which no key is NULL, where it may be; `of` as in `by_key`."""
        return ""

    # bulk puts

    serial: str  # the type of a key that the database makes, in a table of xq's own
    told_once = ""  # what is true, and has the triggers of a statement that writes many rows know its event

    @property
    def staging(self) -> Staging:
        """What bulk puts need."""
        return Staging(self)

    @abstractmethod
    def stage_body(self, place: str, options: Sequence[str]) -> tuple[str, ...]:
        """What follows the name of a table of rows such as the application's, and what is to be run when it is made.

        Each has a place, which is its key, and options, in seconds; all else may be NULL.
        """

    def loading(self, table: str, columns: Sequence[str]) -> str:
        """What the driver loads many rows by."""
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([self.mark] * len(columns))})"

    @cached_property
    def utubes(self) -> Utubes | None:
        """What the feature utube needs."""
        guard = self.machine.guard("utube")
        return self.utubes_kind(self, guard) if guard else None

    @cached_property
    def outbox(self) -> Outbox:
        """What leaves the table for an archive, and what comes back."""
        return self.outbox_kind(self)

    def extract(self, what: What, name: str, address: Address, snapshot: str) -> Extract:
        """What another program reads of a model of this name, at this address. Raises BadValue, ConfigurationError."""
        return self.extracts(self).of(what, name, address, snapshot)

    @property
    def order(self) -> str:
        """Lower priority first, then the key."""
        return ", ".join(filter(None, [self.roles.get("priority"), *self.keys]))

    def where(self, rows: Selector) -> str:
        """The condition of a statement that moves these rows."""
        if rows.way in ("key", "keys"):
            return f"{self.named(rows)}{self.fence(rows, self.owner)}"
        if rows.way in ("all", "each"):
            return self.in_states((rows.state, *rows.more)) if rows.more else self.is_state(rows.state)
        return f"{self.key} {'=' if rows.way == 'first' else 'IN'} ({self.pick(', '.join(self.keys), rows)})"

    def named(self, rows: Selector, of: str = "") -> str:
        """The row of the key, or those of the list of keys, in their state; `of` as in `by_key`."""
        if rows.way == "key":
            due = f" AND {self.fell_due(rows.column, of)}" if rows.column else ""
            return f"{self.by_key(of)} AND {self.is_state(rows.state)}{due}"
        # By the key: an index that leads with the status would read all that are taken.
        state = self.is_state(rows.state, self.not_by_index(self.roles["status"]))
        listed = self.holds(f"{of}{self.keys[0]}", f"IN ({self.keys_at_once})", self.source.key[0].kind)
        return f"{listed} AND {state}"

    def fence(self, rows: Selector, owner: str) -> str:
        """What follows a condition on rows of which only those in the right hand are meant."""
        return {
            "": "",
            "session": f" AND substr({owner}, 1, {UUID_LENGTH + 1}) = :session",
            "take": f" AND {owner} = :mark",
        }[rows.fence]

    def picked_from(self, rows: Selector) -> Utubes | None:
        """The heads by which these rows are picked, if they are."""
        return self.utubes if rows.state == READY and rows.way in ("first", "oldest") else None

    def pick(self, columns: str, rows: Selector) -> str:
        """A query of those rows that nobody names: the first `n`, or the first one."""
        by, chosen = self.choice(rows)
        limit = "1" if rows.way == "first" else ":n"
        return f"SELECT {columns} FROM {self.table_in_schema}{by} WHERE {chosen} LIMIT {limit}"

    def choice(self, rows: Selector) -> tuple[str, str]:
        """How such rows are found: what has the index used that is made for it, and the condition with its order."""
        state = self.is_state(rows.state)
        if rows.way == "held":
            return "", f"{state} AND {self.held}"
        if rows.way == "due":
            due = f"{state} AND {self.fell_due(rows.column)} ORDER BY {self.roles[rows.column]}"
            return self.by_index(self.name(rows.column)), due
        tube = f" AND {self.in_tube}" if rows.tube else ""
        index = self.name(f"oldest_{rows.state}{'_of_tube' * rows.tube}")
        return self.by_index(index), f"{state}{tube}{self.not_due(rows.state)} ORDER BY {self.order}"

    def fell_due(self, role: str, of: str = "") -> str:
        return f"{of}{self.roles[role]} <= {self.bound(self.kind(role))}"

    @property
    def held_by(self) -> str:
        """The role owner, as it is compared with a range."""
        return self.roles["owner"]

    @property
    def held(self) -> str:
        """The owner begins with the session."""
        if "owner" in self.roles:
            return self.of_session(self.held_by)
        return f"{self.key} IN (SELECT {', '.join(self.keys)} FROM {self.owners} WHERE {self.of_session('owner')})"

    @staticmethod
    def of_session(owner: str) -> str:
        """An owner begins with the session: said as a range, which an index can look up."""
        return f"{owner} >= :session AND {owner} < :session_end"

    # what changes

    def amount(self, value: Given | Own) -> str:
        if isinstance(value, Given):
            return f":{value.name}"
        if value.role:
            own = self.roles[value.role]
            own = own if value.default is None else f"COALESCE({own}, {self.literal(value.default)})"
            return f"NULLIF({own}, {self.never})"
        return self.literal(value.default)

    def written(self, role: str, value: Any) -> str:
        """What is written into the column of a role."""
        if isinstance(value, Given):
            return self.amount(value)
        if isinstance(value, After):
            kind = self.kind(role)
            since = [self.now if base == "now" else self.seconds(kind, self.roles[base]) for base in value.since]
            start = since[0] if len(since) == 1 else f"COALESCE({', '.join(since)})"
            return self.moment(kind, " + ".join([start, *map(self.amount, value.seconds)]))
        if isinstance(value, Marker):
            return {
                TOKEN.name: ":owner",
                PLUS_ONE.name: f"COALESCE({self.roles[role]}, 0) + 1",
            }[value.name]
        return self.entered(value) if role == "status" else self.literal(value)

    def move(self, rows: Selector, change: Change) -> Statement:
        """Move rows to another state, or delete them, or prolong their state. Returns them as they then are."""
        if change.target == ABSENT:
            return self.delete(rows, change)
        statement = self.update(rows, change)
        beside = change.roles.get("status") == TAKEN and "owner" not in self.roles
        return self.remembering(rows, statement) if beside else statement

    def update(self, rows: Selector, change: Change) -> Statement:
        where, returning = self.where(rows), f" RETURNING {self.columns}" if rows.way != "all" else ""
        return Statement(
            f"UPDATE {self.table_in_schema} SET {self.sets(change)} WHERE {where}{returning}", names=self.brings(change)
        )

    def delete(self, rows: Selector, change: Change) -> Statement:
        where = f"{self.told_first}{self.where(rows)}"
        returning = f" RETURNING {', '.join(self.last(change))}" if rows.way != "all" else ""
        return Statement(f"DELETE FROM {self.table_in_schema} WHERE {where}{returning}", names=self.brings(change))

    def brings(self, change: Change) -> tuple[str, ...]:
        """The named values of the application's own columns that a change writes."""
        return tuple(self._parameters[name] for name in change.update)

    def field_of(self, name: str) -> Field:
        """The field whose value has this name in a statement (f3, f3_0)."""
        return self.source.fields[int(name[1:].partition("_")[0])]

    def _own(self, change: Change) -> dict[str, str]:
        return {self.quote(self._column(name)): f":{self._parameters[name]}" for name in change.update}

    def sets(self, change: Change) -> str:
        """What follows SET."""
        written = self._own(change) | self.of_roles(change)
        return ", ".join(f"{column} = {value}" for column, value in written.items())

    def last(self, change: Change, of: str = "") -> list[str]:
        """The columns of a row that is deleted, as it last was, its update applied; `of` as in `by_key`."""
        own = self._own(change)
        columns = [self.quote(field.column) for field in self.source.fields]
        return [own.get(column, f"{of}{column}") for column in columns]

    def of_roles(self, change: Change) -> dict[str, str]:
        """What is written into the columns of roles; those that the queue knows and does not map are not there."""
        return {
            self.roles[role]: self.written(role, value) for role, value in change.roles.items() if role in self.roles
        }

    def _column(self, name: str) -> str:
        return next(field.column for field in self.source.fields if field.name == name)

    def insert(self, change: Change, names: Sequence[str], count: int) -> Statement:
        """Put `count` rows that bring values for the fields `names`. What is refused by a guard is not returned."""
        roles = self.of_roles(change)
        brought = {self.quote(self._column(name)): f":{self._parameters[name]}" for name in names}
        brought = {column: value for column, value in brought.items() if column not in roles}
        rows = ", ".join(
            "(" + ", ".join([*(f"{value}_{i}" for value in brought.values()), *roles.values()]) + ")"
            for i in range(count)
        )
        values = f"VALUES {rows}"
        conflict = ""
        admitted = ""
        for guard in self.machine.guards:
            if guard.name == "limit":
                values, admitted = self.limited(rows, guard)
            elif guard.name == "unique":
                conflict = self.unless_held(guard)
        return Statement(
            f"INSERT INTO {self.object(self.source.name)} ({', '.join([*brought, *roles])}) {values}{conflict} "
            f"RETURNING {self.columns}",
            names=tuple(f"{self._parameters[name]}_{i}" for i in range(count) for name in names),
            admitted=admitted,
        )

    def write_many(self, names: Sequence[str], count: int) -> Statement:
        """Write the fields `names` of `count` rows, into each its own, whatever their states."""
        rows = [f"_{i}" for i in range(count)]
        sets = []
        for name in names:
            column, value = self.quote(self._column(name)), self._parameters[name]
            cases = " ".join(f"WHEN {self.by_key(row=row)} THEN :{value}{row}" for row in rows)
            sets.append(f"{column} = CASE {cases} ELSE {column} END")
        keys = ", ".join(self._tuple([f":k{i}{row}" for i in range(len(self.keys))]) for row in rows)
        return Statement(
            f"UPDATE {self.table_in_schema} SET {', '.join(sets)} WHERE {self.key} IN ({keys})",
            names=tuple(f"{self._parameters[name]}{row}" for row in rows for name in names),
        )

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        """What an INSERT inserts as long as there is room, and what must return a row before, where that is needed."""
        return f"SELECT * FROM (VALUES {rows}) WHERE {self.room(guard)}", ""

    def room(self, guard: Guard) -> str:
        return f"{self.crowd(guard)} + :adding <= {guard.value}"

    def unless_held(self, guard: Guard) -> str:
        """What follows an INSERT that shall insert nothing where a unique value is held."""
        return f" ON CONFLICT ({self.roles[guard.role]}) WHERE {self.in_states(self.holding(guard))} DO NOTHING"

    def holding(self, guard: Guard) -> list[str]:
        """The states of a guard that this queue has."""
        return [state for state in self.machine.states if state in guard.states]

    def crowd(self, guard: Guard) -> str:
        """How many tasks are in the states of a guard, from the counters: the same effort for any number."""
        states = ", ".join(f"'{state}'" for state in self.holding(guard))
        counts = self.side("count")
        into, out = (f"CASE WHEN {column} IN ({states}) THEN n ELSE 0 END" for column in ("target", "source"))
        return f"(SELECT COALESCE(SUM({into} - {out}), 0) FROM {counts} WHERE tube = '')"

    def listed(self, keys: Sequence[Sequence[Any]]) -> str | None:
        """Keys as the one value `:keys`, in JSON; None where that cannot be."""
        if not self.lists_keys or not all(fits_a_column(part) for (part,) in keys):
            return None
        return json.dumps([part for (part,) in keys])

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        """Return what runs SQL with named values; `brought` names those that stand in `rows`, as in `runner`."""
        text, pick = self.filled(sql, brought, width)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return connection.execute(text, pick(values))

        return run

    def filled(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> tuple[str, Pick]:
        """Return SQL with the driver's marks, and what picks their values, of `query`."""
        text, names = by_position(sql, self.mark)
        return text, arguments(names, brought, width) if width else picked(names)

    def execute(self, store: Connection | Store[Any], sql: str, values: Values) -> list[Row]:
        """Run SQL with named values."""
        text, names = by_position(sql, self.mark)
        return store.execute(text, [values[name] for name in names])

    def change(self, store: Store[Any], statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement that returns no rows, and tell how many it changed. The triggers are told the event."""
        sql, names = by_position(statement.sql, self.mark)
        return store.change(sql, [values[name] for name in names])

    # what was committed

    def note_savepoint(self, store: Store[Any]) -> int:
        """The number of the innermost savepoint, or of the transaction, within which something was just changed."""
        ((number,),) = self._of_savepoints(store, self.savepoint_noted, next(_savepoints))
        return int(number)

    def was_committed(self, store: Store[Any], savepoint: int) -> bool:
        """Whether what was changed within it was, after the end of the transaction."""
        return bool(self._of_savepoints(store, self.savepoint_kept, savepoint))

    def _of_savepoints(self, store: Store[Any], sql: str, savepoint: int) -> list[Row]:
        if self.savepoints:
            store.execute(self.savepoints)  # each time: the table itself goes with the savepoint that made it
        return self.execute(store, sql, {"savepoint": savepoint})

    # looking

    afresh = ""  # what has a SELECT see what others have committed since its transaction began to read

    def look(self, afresh: str = "") -> str:
        """One row by its key, whatever its state, and whoever holds it."""
        return f"SELECT {self.columns}, {self.owner} FROM {self.table_in_schema} WHERE {self.by_key()}{afresh}"

    def look_for_owner(self, afresh: str) -> str:
        """Whoever holds the task of a key, where no role tells it: `afresh` does not reach there from the row."""
        return f"SELECT owner FROM {self.owners} WHERE {self.by_key()}{afresh}"

    @property
    def table_in_schema(self) -> str:
        return self.object(self.source.name)

    def listing(self, rows: Selector) -> str:
        """The keys of these rows."""
        return f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.where(rows)}"

    @property
    def hold(self) -> str:
        """Has whoever would move the task of a key wait for the end of this transaction.

        Where rows are locked it waits for nobody itself, and tells with a row that it could.
        """
        return self.begin_writing

    def hold_all(self, states: Iterable[str]) -> str:
        """Has whoever would move a task in one of these states wait for the end of this transaction."""
        return self.begin_writing

    def holder(self, guard: Guard) -> str:
        """The row that holds a unique value."""
        return f"SELECT {self.columns} FROM {self.table_in_schema} WHERE {self.held_by_one(guard)}{self.lock}"

    def held_by_one(self, guard: Guard, of: str = "") -> str:
        """That a row holds the value `:unique`; `of` as in `by_key`."""
        states = self.in_states(self.holding(guard), f"{of}{self.roles['status']}")
        return f"{of}{self.roles[guard.role]} = :unique AND {states}"

    def held_too_often(self, guard: Guard, states: Sequence[str]) -> str:
        """A value that more tasks in these states hold than may, if there is one."""
        role, most = self.roles[guard.role], guard.value or 1
        value = self.exact(role, self.kind(guard.role))
        of = f"{self.table_in_schema} WHERE {self.in_states(states)} AND {role} IS NOT NULL"
        return f"SELECT {value} FROM {of} GROUP BY {value} HAVING COUNT(*) > {most} LIMIT 1"

    def by_state(self, state: str) -> str:
        """The tasks in a state, oldest first."""
        return (
            f"SELECT {self.columns} FROM {self.table_in_schema} WHERE {self.is_state(state)} "
            f"ORDER BY {self.order} LIMIT :n"
        )

    @property
    def taken(self) -> str:
        """Keys and owners of the taken tasks."""
        return f"SELECT {', '.join(self.keys)}, {self.owner} FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)}"

    @property
    def statuses_in_use(self) -> str:
        """How many rows hold each status, of the queue or not: reads the whole table."""
        status = self.exact(self.roles["status"], self.kind("status"))
        return f"SELECT {status}, COUNT(*) FROM {self.table_in_schema} GROUP BY 1"

    @property
    def statuses_alike(self) -> str:
        """The places, among the states, of the first and the last whose statuses compare as equal in the column."""
        column = self.exact(self.roles["status"], self.kind("status"))
        words = [self.literal(self.words[state]) for state in self.machine.states]
        # The column first: what is compared has its type and its collation.
        found = f"SELECT -1 AS place, {column} AS word FROM {self.table_in_schema} WHERE FALSE"
        listed = " UNION ALL ".join([found, *(f"SELECT {place}, {word}" for place, word in enumerate(words))])
        return f"SELECT MIN(place), MAX(place) FROM ({listed}) AS listed GROUP BY word HAVING COUNT(*) > 1"

    # counting. A row of the counters is a transition and how often it was seen, in all (tube '') and for each
    # tube that is counted; one whose source is '' holds tasks that were there before counting began.

    @property
    def counters(self) -> str:
        """Tube, source, target, how often, and how many rows of the table tell it."""
        return f"SELECT tube, source, target, n, 1 FROM {self.side('count')}"

    @property
    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.side('count')} (tube, source, target, n) "
            f"VALUES (:tube, :source, :target, :count){self.on_conflict('tube, source, target', 'n = n + :count')}"
        )

    @property
    def audit(self) -> str:
        """The counters, and the tasks as the table itself has them (source NULL), at one moment: reads it whole."""
        actual = f"SELECT tube, NULL AS source, state AS target, n, 0 FROM ({self.actual_counts}) AS actual"
        return f"{self.counters} UNION ALL {actual}"

    @property
    def actual_counts(self) -> str:
        """Tube, letter and number of tasks as the table itself has them: reads it whole."""
        letter = self.letter(self.roles["status"])
        states = self.in_states(self.machine.states)
        rows = f"FROM {self.table_in_schema} WHERE {states}"
        everything = f"SELECT '' AS tube, {letter} AS state, COUNT(*) AS n {rows} GROUP BY 1, 2"
        if not self.tube_stats:
            return everything
        tube, counted = self.exact(self.roles["tube"]), self.counted(self.roles["tube"])
        return f"{everything} UNION ALL SELECT {tube}, {letter}, COUNT(*) {rows} AND {counted} GROUP BY 1, 2"

    @property
    def count_what_is_there(self) -> str:
        """The tasks that are there before counting begins, unless it has begun."""
        counts = self.side("count")
        return (
            f"INSERT INTO {counts} (tube, source, target, n) "
            f"SELECT tube, '', state, n FROM ({self.actual_counts}) AS actual "
            f"WHERE NOT EXISTS (SELECT 1 FROM {counts})"
        )

    def one_at_a_time(self, store: Connection | Store[Any], within: bool) -> None:
        """Have those who do this in one queue wait for each other, and see what each has done.

        `within` the application's transaction it fails as a conflict where that has looked before another did this.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    @cached_property
    def hears(self) -> bool:
        """Whether there are news of utubes, without which takes do not find all."""
        return self.utubes is not None and bool(self.utubes.has_news)

    def hear(self, store: Store[Any], again: Again, whole: Again, mine: bool) -> int:
        """Have takes find what has become the first of its utube: `utubes.hear`, where there are news."""
        return 0

    def roll_up(self, store: Store[Any]) -> bool:
        """Add up some of what was appended to the counters, where they are. Returns whether there may be more."""
        return False

    def tuned(self, store: Store[Any]) -> list[str]:
        """SQL that has the database keep up with a table whose rows change all the time."""
        return []

    def unlogged(self, store: Store[Any]) -> list[str]:
        """SQL that has a crash of the server take the tasks away, with all that belongs to them: writing is faster."""
        return []

    def untuned(self, store: Store[Any]) -> list[str]:
        """SQL that takes away what `tuned` set and nobody has changed since, from what stays without the queue."""
        return []

    # what a trigger makes of a row that was OLD and is NEW, of which one is missing where it comes or goes

    def numbers_of(self, version: str, came: bool) -> list[Number]:
        """What a row counts that has come, or gone."""
        status = f"{version}.{self.roles['status']}"
        letter, mine = self.letter(status), self.in_states(self.machine.states, status)
        ends = (f"'{ABSENT}'", letter) if came else (letter, f"'{ABSENT}'")
        found = [Number("''", *ends, mine)]
        if self.tube_stats:
            tube = f"{version}.{self.roles['tube']}"
            found.append(Number(tube, *ends, f"{mine} AND {self.counted(tube)}"))
        return found

    def numbers_of_change(self) -> list[Number]:
        """What a row counts that was OLD and is NEW."""
        old, new = self._letters
        was, is_ = self._in("OLD", self.machine.states), self._in("NEW", self.machine.states)
        found = [Number("''", old, new, f"{old} <> {new}")]
        if self.tube_stats:
            tube = self.roles["tube"]
            before, after = self.counted(f"OLD.{tube}"), self.counted(f"NEW.{tube}")
            moved = self.differ(f"OLD.{tube}", f"NEW.{tube}")
            gone = f"CASE WHEN {is_} THEN '{ELSEWHERE}' ELSE '{ABSENT}' END"
            come = f"CASE WHEN {was} THEN '{ELSEWHERE}' ELSE '{ABSENT}' END"
            found += [
                Number(f"NEW.{tube}", old, new, f"NOT {moved} AND {after} AND {old} <> {new}"),
                Number(f"OLD.{tube}", old, gone, f"{moved} AND {before} AND {was}"),
                Number(f"NEW.{tube}", come, new, f"{moved} AND {after} AND {is_}"),
            ]
        return found

    @property
    def _letters(self) -> tuple[str, str]:
        status = self.roles["status"]
        return self.letter(f"OLD.{status}"), self.letter(f"NEW.{status}")

    def _in(self, version: str, states: Iterable[str]) -> str:
        status = f"{version}.{self.roles['status']}"
        return f"COALESCE({self.in_states(states, status)}, FALSE)"

    @property
    def moved_key(self) -> str:
        return " OR ".join(self.differ(f"OLD.{key}", f"NEW.{key}") for key in self.keys)

    def watched(self) -> list[str]:
        """The columns whose change triggers must see."""
        tube = [self.roles["tube"]] if self.tube_stats else []
        utube = [self.utubes.role, *self.utubes.watched] if self.utubes else []
        return list(dict.fromkeys([self.roles["status"], *self.keys, *tube, *utube]))

    # time

    def _first_due(self, alias: str = "") -> list[str]:
        """Queries for the time at which the first task falls due by each timer: one row, or none."""
        return [
            f"SELECT {self.seconds(self.kind(row.due), self.roles[row.due])}{alias} "
            f"FROM {self.table_in_schema}{self.by_index(self.name(row.due))} "
            f"WHERE {self.is_state(row.source)} AND {self.roles[row.due]} IS NOT NULL "
            f"ORDER BY {self.roles[row.due]} LIMIT 1"
            for row in self.machine.due
        ]

    def _due_beside(self) -> list[str]:
        """Queries for the times at which something else falls due, as `at`."""
        times = []
        if self.history_kept < math.inf:
            # Rows of the history pass one by one: a tenth later many go at once.
            late = self.history_kept + max(1.0, self.history_kept / 10)
            history = self.side("history")
            oldest = f"SELECT at_us FROM {history} WHERE {self._not_newest} ORDER BY id LIMIT 1"
            times.append(f"SELECT ({oldest}) / 1000000.0 + {late!r} AS at")
        if self.utubes and self.utubes.has_news:
            times.append(f"SELECT ({self.utubes.has_news}) AS at")
        return times

    @cached_property
    def next_due(self) -> str:
        """In how many seconds something falls due in this queue: less than none for what is late, NULL for never.

        Nothing where nothing ever does.
        """
        times = " UNION ALL ".join([*(f"SELECT ({time}) AS at" for time in self._first_due()), *self._due_beside()])
        return f"SELECT MIN(at) - {self.now} FROM ({times}) AS times" if times else ""

    def next_due_of(self, queues: Sequence[Self]) -> str:
        """In how many seconds something falls due in each of several queues, after its place among them.

        Any number of rows for each, or none. By the clock of the database: no named value stands there.
        """
        now = filled(self.now, now="NULL")
        times = [
            (place, time)
            for place, queue in enumerate(queues)
            for time in [*queue._first_due(" AS at"), *queue._due_beside()]
        ]
        return " UNION ALL ".join(
            f"SELECT {place} AS place, at - {now} AS seconds FROM ({time}) AS of_{i}"
            for i, (place, time) in enumerate(times)
        )

    # waiting for the end of a task: each waiter is a row, in which triggers write how the task ended

    @property
    def waits(self) -> str:
        return self.side("wait")

    def _parts(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.keys))]

    @property
    def begin_wait(self) -> str:
        """Wait for the end of the task of a key."""
        columns, values = ", ".join(self._parts()), ", ".join(f":{part}" for part in self._parts())
        return (
            f"INSERT INTO {self.waits} ({columns}, waiter, session, since) "
            f"VALUES ({values}, :waiter, :uuid, {self.now})"
        )

    @property
    def end_wait(self) -> str:
        """Wait no longer: event and target, if the task has ended."""
        same_key = " AND ".join(f"{part} = :{part}" for part in self._parts())
        return f"DELETE FROM {self.waits} WHERE {same_key} AND waiter = :waiter RETURNING event, target"

    @property
    def ends(self) -> str:
        """How tasks ended for those who have not yet heard: waiter, event, target."""
        return f"SELECT waiter, event, target FROM {self.waits} WHERE event IS NOT NULL"

    @property
    def waiting(self) -> str:
        """The keys of the tasks that are waited for, by which session, and since when."""
        return f"SELECT {', '.join(self._parts())}, session, since FROM {self.waits} WHERE event IS NULL ORDER BY since"

    @property
    def taken_and_awaited(self) -> str:
        """Who of a session waits for the ends of tasks that are taken, and the rows of these."""
        columns = ", ".join(f"t.{self.quote(field.column)}" for field in self.source.fields)
        joined = f"{self.waits} AS w JOIN {self.table_in_schema} AS t ON {self.same_wait('w', 't')}"
        taken = self.is_state(TAKEN, f"t.{self.roles['status']}")
        return f"SELECT w.waiter, {columns} FROM {joined} WHERE w.session = :uuid AND w.event IS NULL AND {taken}"

    @property
    def forget_waits(self) -> str:
        return f"DELETE FROM {self.waits} WHERE session = :uuid"

    @cached_property
    def any_ready(self) -> str:
        """Whether take would find something: a look that takes no lock."""
        if self.utubes:
            picks = self.utubes.picks(["1"], Selector("first", READY))
            found = [f"EXISTS ({look})" for look in [*picks, *filter(None, [self.utubes.has_news])]]
            return f"SELECT 1{self.absent_rows} WHERE {' OR '.join(found)}"
        by = self.by_index(self.name(f"oldest_{READY}"))
        ready = f"{self.is_state(READY)}{self.not_due(READY)}"
        return f"SELECT 1 FROM {self.table_in_schema}{by} WHERE {ready} LIMIT 1"

    # the history. A row of it is a transition of one task, in the order of the commits.

    told: ClassVar[Mapping[str, Kind]] = HISTORY  # its columns

    @property
    def has_history(self) -> bool:
        return self.machine.settings.history is not None

    @property
    def history_kept(self) -> float:
        """For how many seconds the rows of the history are kept."""
        kept = self.machine.settings.history
        return math.inf if kept is None else kept

    def noted(self, history: str, task: str, what: Mapping[str, str], rows: str) -> str:
        """SQL that writes a row of the history for each of `rows`, or one, as `what` says by column.

        `task` has the columns.
        """
        known = {
            "key": self.told_key([f"{task}.{key}" for key in self.keys]),
            "tube": f"{task}.{self.roles['tube']}" if "tube" in self.roles else "NULL",
            "attempt": f"{task}.{self.roles['attempts']}" if "attempts" in self.roles else "NULL",
        }
        columns = {**known, **what}
        names, values = ", ".join(map(self.quote, columns)), ", ".join(columns.values())
        return f"INSERT INTO {history} ({names}) {f'SELECT {values} {rows}' if rows else f'VALUES ({values})'}"

    def owner_noted(self, versions: Mapping[str, str]) -> str:
        """Who holds the task, of those versions of its row in which it is taken: alias -> its letter, as SQL."""
        status = self.roles["status"]
        held = " ".join(
            f"WHEN {self.is_state(TAKEN, f'{version}.{status}')} THEN {self.owner_of(version)}"
            for version, letter in versions.items()
            if letter != f"'{ABSENT}'"
        )
        return f"CASE {held} END"

    @abstractmethod
    def owner_of(self, version: str) -> str:
        """Who holds this version of a row, as a trigger sees it."""

    def note_move(self, state: str, target: str) -> str:
        """Write into the history that every task in a state moves, where no trigger does."""
        owner = self.owner if state == TAKEN else "NULL"
        what = {
            "at_us": self.now_us,
            "source": f"'{state}'",
            "target": f"'{target}'",
            "event": ":event",
            "owner": owner,
        }
        rows = f"FROM {self.table_in_schema} WHERE {self.is_state(state)}"
        return self.noted(self.side("history"), self.table, what, rows)

    def history(self, of: Iterable[str]) -> str:
        """The rows of the history, each with the time since the one before it of its task; `of` a key, since, until."""
        conditions = {
            "key": f"{self.quote('key')} = {self.told_key([f':k{i}' for i in range(len(self.keys))])}",
            "since": "at_us >= :since",
            "until": "at_us < :until",
        }
        asked = [conditions[name] for name in of if name != "key"]
        if self.history_kept < math.inf:
            asked.append(f"at_us >= {self._forgotten_before}")
        whose = f" WHERE {conditions['key']}" if "key" in of else ""
        columns = ", ".join(map(self.quote, self.told))
        # Within a time as well, the row before it may be older.
        return (
            f"SELECT {columns}, dur_us "
            f"FROM (SELECT {columns}, {self.since_before} AS dur_us FROM {self.side('history')}{whose}) AS told"
            f"{' WHERE ' * bool(asked)}{' AND '.join(asked)} ORDER BY id"
        )

    @property
    def since_before(self) -> str:
        """Of a row of the history the microseconds since the one before it of its task."""
        return f"at_us - LAG(at_us) OVER (PARTITION BY {self.quote('key')} ORDER BY id)"

    @property
    def _forgotten_before(self) -> str:
        """The microsecond from which on rows of the history are kept."""
        return f"{self.now_us} - {min(self.history_kept, LONGEST)!r} * 1000000"

    @property
    def _not_newest(self) -> str:
        """The newest row of the history stays: the next one has the id after it, and so no id is used twice."""
        return f"id < (SELECT MAX(id) FROM {self.side('history')})"

    @property
    def forget_history(self) -> str:
        """Delete the oldest `n` rows of the history, but for the newest and those that are to be kept.

        Nothing where all are.
        """
        if self.history_kept == math.inf:
            return ""
        table = self.side("history")
        oldest = f"SELECT id, at_us FROM {table} WHERE {self._not_newest} ORDER BY id LIMIT :n"
        forgotten = f"SELECT id FROM ({oldest}) AS oldest WHERE at_us < {self._forgotten_before}"
        return f"DELETE FROM {table} WHERE id IN ({forgotten})"

    # streams

    @cached_property
    def sinks(self) -> Sinks:
        """Which batches of streams were written into this database."""
        return Sinks(self)

    def tally(self, table: str) -> TallySql:
        """A table of the application's that counts transitions."""
        return TallySql(self, table)

    # the records of xq in a database

    @property
    def installed(self) -> str:
        return f"SELECT version, fingerprint FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        values = f"{self.literal(self.source_name)}, {self.literal(version)}, {self.in_any_mode(fingerprint)}"
        return (self.forget, f"INSERT INTO {QUEUES} (name, version, fingerprint) VALUES ({values})")

    @property
    def forget(self) -> str:
        return f"DELETE FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    queues = f"SELECT name FROM {QUEUES}"
    sessions = f"SELECT uuid, since FROM {SESSIONS} WHERE queue = '' ORDER BY since, uuid"
    session_struck = f"DELETE FROM {SESSIONS} WHERE uuid = :uuid AND queue = :queue"

    @property
    def set_setting(self) -> str:
        values = self.on_conflict("name", "value = :value")
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, :value){values}"

    @property
    def session_listed(self) -> str:
        """That there is a session, and that it may hold tasks of this queue; it ends in `:lease` seconds, or lives."""
        rows = ", ".join(
            f"(:uuid, {queue}, {self.now}, {self.now} + :lease)" for queue in ("''", self.literal(self.source_name))
        )
        return f"INSERT INTO {SESSIONS} (uuid, queue, since, ends) VALUES {rows}{self.on_conflict('uuid, queue')}"

    @property
    def session_goes_on(self) -> str:
        """Have a session go on for `:lease` seconds, or for good, unless it has ended."""
        return f"UPDATE {SESSIONS} SET ends = {self.now} + :lease WHERE uuid = :uuid AND {goes_on(self.now)}"

    @property
    def session_is_there(self) -> str:
        return session_there(self.now)

    @property
    def session_went_on(self) -> str:
        """Whether a session is there now, and not only when the transaction began, in which this is asked."""
        return f"{session_there(self.now)}{self.lock}"

    @property
    def session_over(self) -> str:
        """Whether a session that was to end can be rejoined no more."""
        return f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND ends <= {self.now}{self.lock}"

    @property
    def session_postponed(self) -> str:
        """Have a session end when session_ttr has passed, where it is set."""
        ttr = f"(SELECT value FROM {SETTINGS} WHERE name = 'session_ttr' AND value > 0)"
        return (
            f"UPDATE {SESSIONS} SET ends = COALESCE(ends, {self.now} + {ttr}) WHERE uuid = :uuid AND {ttr} IS NOT NULL"
        )

    session_ends = f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND ends IS NOT NULL"

    @property
    def _holders(self) -> list[tuple[str, str]]:
        """Where sessions are named: as the owners of tasks that are to be reaped, and as those that wait."""
        held = (f"substr({self.owner}, 1, {UUID_LENGTH})", f"{self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return [*([held] if self.machine.settings.reaped else []), ("session", self.waits)]

    @property
    def orphans(self) -> str:
        """The sessions that wait in this queue, or own tasks that are to be reaped, and are not listed.

        Reads all taken tasks.
        """
        found = " UNION ".join(f"SELECT DISTINCT {uuid} AS uuid FROM {table}" for uuid, table in self._holders)
        return f"SELECT uuid FROM ({found}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    @staticmethod
    def orphans_of(queues: Sequence[Dialect]) -> str:
        """As `orphans` for each of several queues, after its place among them."""
        held = " UNION ALL ".join(
            f"SELECT {place} AS place, {uuid} AS uuid FROM {table}"
            for place, of in enumerate(queues)
            for uuid, table in of._holders
        )
        return f"SELECT DISTINCT place, uuid FROM ({held}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    session_queues = f"SELECT queue FROM {SESSIONS} WHERE uuid = :uuid"

    @property
    def sessions_listed(self) -> str:
        """Every session, the queue in which it may hold tasks, and in how many seconds it ends (NULL: it lives)."""
        return f"SELECT uuid, queue, ends - {self.now} FROM {SESSIONS}"

    def stale(self, existing: Mapping[str, str]) -> list[str]:
        """SQL that drops what an earlier configuration of this queue installed and this one does not have."""
        wanted = {item.name for item in [*self.objects(), *self.staging.tables]}
        prefix = self.name("")
        return [
            self.drop(kind, name)
            for name, kind in existing.items()
            if name not in wanted and name.startswith(prefix) and kind in STALE
            if STALE[kind].fullmatch(name[len(prefix) :])
        ]

    def shared(self) -> list[Object]:
        """Tables that all queues of a database share."""
        name, uuid = self.varying(255), self.varying(UUID_LENGTH)
        tables = {
            QUEUES: f"name {name} PRIMARY KEY, version {name} NOT NULL, fingerprint {self.long_text} NOT NULL"
            f"{self.more_of_queues}",
            SESSIONS: f"uuid {uuid} NOT NULL, queue {name} NOT NULL, since DOUBLE PRECISION NOT NULL, "
            "ends DOUBLE PRECISION, PRIMARY KEY (uuid, queue)",
            SETTINGS: f"name {name} PRIMARY KEY, value DOUBLE PRECISION NOT NULL",
        }
        return [
            Object(
                "table",
                name,
                (f"CREATE TABLE IF NOT EXISTS {name} ({columns}){self.engine}",),
                f"DROP TABLE IF EXISTS {name}",
            )
            for name, columns in (tables | self.more_shared()).items()
        ]

    def objects(self) -> list[Object]:
        """What installing creates, in order."""
        return [*self.side_tables(), *self.indexes(), *self.triggers()]

    def made(self, kind: str, suffix: str, *create: str) -> Object:
        """Something that belongs to this queue, and the SQL that creates it."""
        name = self.name(suffix)
        return Object(kind, name, create, self.drop(kind, name))

    def side_table(self, suffix: str, body: str, *more: str) -> Object:
        """A table that belongs to this queue, and what is to be created with it."""
        create = f"CREATE TABLE IF NOT EXISTS {self.side(suffix)} {body}"
        return self.made("table", suffix, create, *more)

    def more_shared(self) -> dict[str, str]:
        """Tables that all queues of a database share in this kind of database alone: name -> columns."""
        return {}

    def indexes(self) -> list[Object]:
        """What finds the rows of each way. Rows at rest stand in none of them, where the database has partial ones."""
        return [self.index(suffix, *found) for suffix, found in self._indexes().items()]

    def _indexes(self) -> dict[str, tuple[str, str, bool]]:
        """What each index is of, by suffix: columns, the condition of its rows, whether it is unique."""
        found: dict[str, tuple[str, str, bool]] = {}
        for state in self.machine.picked():
            mine = self.is_state(state)
            if self.utubes and state == READY:
                mine = self.utubes.for_others(mine)
            found[f"oldest_{state}"] = (self.order, mine, False)
            if "tube" in self.roles and state == READY:
                found[f"oldest_{state}_of_tube"] = (f"{self.roles['tube']}, {self.order}", mine, False)
        if self.utubes:
            found["utube"] = self.utubes.index
        for column in {timer.column: None for timers in self.machine.timers.values() for timer in timers}:
            role = self.roles[column]
            found[column] = (f"{self.roles['status']}, {role}", f"{role} IS NOT NULL", False)
        # The taken tasks of a session must be found among ten million others. An index of their own costs a fifth of
        # the throughput, so where their ttr stands in one already, those without a ttr join them there.
        taken = self.is_state(TAKEN)
        if "runat" in found and ("owner" in self.roles or self.machine.timer(TAKEN, "runat")):
            columns, condition, unique = found["runat"]
            found["runat"] = (columns, f"{taken} OR {condition}", unique)
        elif "owner" in self.roles:
            found["taken"] = (self.held_by, taken, False)
        for guard in self.machine.guards:
            if guard.name == "unique":
                found[guard.name] = (self.roles[guard.role], self.in_states(self.holding(guard)), True)
        return found
