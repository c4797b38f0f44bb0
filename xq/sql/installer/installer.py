"""What installing a queue does in a database: what is there, under which locks it is changed, and its columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.errors import ConfigurationError
from xq.core.machine import TAKEN
from xq.core.schema import OWN
from xq.sql.installer.objects import Object, Objects
from xq.sql.named import filled
from xq.sql.rows import Rows
from xq.sql.shared import OBJECTS

VIEW = "is a view: make the table behind it the queue"


class Installer(ABC):
    """The SQL and the steps that an `Installation` uses in one kind of database."""

    objects_kind: type[Objects]

    def __init__(self, terms: Rows) -> None:
        self.terms, self.objects = terms, self.objects_kind(terms)

    def prepare(self, store: Connections) -> None:
        """Set up the database for queues, as far as a transaction cannot do that.

        Raises ConfigurationError if it is unfit.
        """
        self.refuse(store)

    @property
    @abstractmethod
    def no_table(self) -> str:
        """A query for why nothing can be installed on what has the table's name; no row if it can be."""

    def refuse(self, store: Connections) -> None:
        """Raise ConfigurationError if nothing may be installed. `prepare` calls it, and later calls repeat it."""
        for (why,) in store.execute(self.no_table):
            raise ConfigurationError(f"{store.name} cannot be installed: {self.terms.source.name} {why}")

    def denied(self, store: Connections) -> str:
        """Return why this user cannot create what installing creates, or ""."""
        return ""

    @abstractmethod
    def unfit(self, store: Connections) -> str | None:
        """Return a message if the database or the table is not as `prepare` requires or leaves it, else None."""

    # what is there

    @abstractmethod
    def existing(self, store: Connections) -> dict[str, str]:
        """Return kinds by name: for the objects in the queue's schema, and for the shared ones."""

    def broken(self, store: Connections) -> dict[str, str]:
        """Return the kinds, by name, of what an interrupted installation has left, which `existing` leaves out."""
        return {}

    @property
    @abstractmethod
    def definitions(self) -> str:
        """A query for indexes and triggers: (name, shown, body, here).

        `shown` is the SQL that creates one as the database shows it, `body` what it keeps of that letter by letter, and
        `here` the name of the first schema as it stands in a body.
        """

    @staticmethod
    def hashed(made: str, shown: str) -> str:
        """Return SQL that hashes two texts."""
        return f"{made} || {shown}"  # SQLite has no hash functions

    def hashes(self, items: Iterable[Object]) -> str:
        """Return a query for (name, hash, body, here): these indexes and triggers, if the database has them.

        A hash covers the SQL that creates one, and what the database then shows for it.
        """
        literal = self.terms.literal
        digests = {item.name: sha256("\n".join(item.create).encode()).hexdigest() for item in items}
        cases = " ".join(f"WHEN {literal(name)} THEN {literal(digest)}" for name, digest in digests.items())
        return (
            f"SELECT name, {self.hashed(f'CASE name {cases} END', 'shown')} AS hash, body, here "
            f"FROM ({self.definitions}) AS there WHERE name IN ({', '.join(map(literal, digests))})"
        )

    def noting(self, items: Sequence[Object]) -> list[str]:
        """Return SQL to record these indexes, triggers and tables as made; a table has no hash."""
        literal, queue = self.terms.literal, self.terms.literal(self.terms.source_name)
        names = ", ".join(literal(item.name) for item in items)
        hashes = self.hashes(item for item in items if item.kind != "table")
        named = [literal(item.name) for item in items if item.kind == "table"]
        tables = "".join(f" UNION ALL SELECT {name}, '', '', ''" for name in named)
        return [
            f"DELETE FROM {OBJECTS} WHERE queue = {queue} AND name IN ({names})",
            f"INSERT INTO {OBJECTS} (queue, name, hash) SELECT {queue}, name, hash FROM ({hashes}{tables}) AS made",
        ]

    def in_a_script(self, sql: str) -> Sequence[str]:
        """Return a statement as one, or several, of a script."""
        return [filled(sql, now="NULL")]

    def script(self, statements: Iterable[str]) -> str:
        """Return a script, as the database's own client runs it."""
        return "".join(f"{sql};\n\n" for sql in statements)

    def table_columns(self, store: Connections) -> set[str]:
        """Return the columns that the application's table and the model have in common; none without a table."""
        present = {name.lower() for name in self.columns_of(store, self.terms.source.name)}
        return {field.column for field in self.terms.source.fields if field.column.lower() in present}

    @abstractmethod
    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        """Return a table's columns in the queue's schema, and whether the database computes each."""

    @abstractmethod
    def checks(self, store: Connections) -> Iterable[Sequence[str]]:
        """Return what limits a row's values, CHECKs and the status type: its name, and the condition."""

    # what the rows hold

    @property
    def statuses_in_use(self) -> str:
        """A query for row counts by status, also foreign ones. It reads the whole table."""
        status = self.terms.exact(self.terms.roles["status"], self.terms.kind("status"))
        return f"SELECT {status}, COUNT(*) FROM {self.terms.table_in_schema} GROUP BY 1"

    @property
    def statuses_alike(self) -> str:
        """A query for the first and last index among states whose statuses the column compares as equal."""
        listed = self._listed(self.terms.exact(self.terms.roles["status"], self.terms.kind("status")))
        return f"SELECT MIN(place), MAX(place) FROM {listed} GROUP BY {self.terms.roles['status']} HAVING COUNT(*) > 1"

    def refused_by(self, condition: str) -> str:
        """Return a query for the indexes of states whose statuses do not fulfil a condition on their column."""
        return f"SELECT place FROM {self._listed(self.terms.roles['status'])} WHERE NOT ({condition})"

    def _listed(self, status: str) -> str:
        """Return a table with the states' statuses and indexes, in the column's type and collation."""
        terms = self.terms
        words = [terms.literal(terms.words[state]) for state in terms.machine.states]
        first = f"SELECT -1 AS place, {status} AS {terms.roles['status']} FROM {terms.table_in_schema} WHERE FALSE"
        listed = " UNION ALL ".join([first, *(f"SELECT {place}, {word}" for place, word in enumerate(words))])
        return f"({listed}) AS listed"

    # changing it

    continuing: Sequence[str] = ()  # SQL by which ids and keys go on after rows that a restore or a replica has brought
    behind = ""  # a query for the sequence of the key, its last number and the greatest key, if that is beyond it

    def go_on(self, n: int) -> str:
        """Return SQL by which the database makes keys above `n`; "" if it goes on above the keys in the table."""
        return ""

    def creating(self, store: Connections) -> AbstractContextManager[None]:
        """Create the application's table in this block; other connections cannot create objects with that name."""
        return self.terms.creating(store, self.terms.source.schema)

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        """Change the installed objects in this block, one process at a time; in one transaction if the database can."""
        with store.atomic():
            yield

    # SQL that locks the table before what its triggers write is changed: a writer and this would wait for each other.
    keep_others_out = ""

    @contextmanager
    def closing(self, store: Connections) -> Iterator[int]:
        """Keep other connections from moving tasks while the table is dropped. Yields how many tasks are taken.

        Waits for the transactions that move tasks. If no task is taken and the database cannot lock the table for
        longer, this drops it before it yields.
        """
        with self.installing(store):
            yield self.taken_at_last(store)

    def taken_at_last(self, store: Connections) -> int:
        """Return how many tasks are taken, and block further takes until the transaction ends."""
        self.terms.one_at_a_time(store, within=True)
        return self.taken_now(store)

    def taken_now(self, store: Connections) -> int:
        ((taken,),) = store.execute(
            f"SELECT COUNT(*) FROM {self.terms.table_in_schema} WHERE {self.terms.is_state(TAKEN)}"
        )
        return int(taken)

    # beside writers, which SQLite has not: one writer at a time

    transactional_ddl: ClassVar[bool] = True  # whether a transaction may change tables
    locks: ClassVar[Mapping[str, tuple[str, str]]]  # by kind of step, what it locks: without and with online
    online_scans: ClassVar[int] = 1  # how often an index that is built online reads the table

    @property
    def in_the_way(self) -> str:
        """A query for (who, seconds): others' open transactions that a change to the table waits for."""
        return self.terms.open_transactions

    def not_online(self, store: Connections) -> str:
        """Return why this queue cannot be installed beside writers, or ""."""
        return ""

    @contextmanager
    def admitted(self, store: Connections) -> Iterator[bool]:
        """Yield whether no other process installs this table beside writers, nor can in this block."""
        yield True

    @property
    def estimate(self) -> str:
        """A query for about how many rows the table has."""
        return f"SELECT COUNT(*) FROM {self.terms.table_in_schema}"

    def online(self, sql: str) -> str:
        """Return SQL for an index or a column that blocks writers for a moment only."""
        return sql

    @contextmanager
    def briefly(self, store: Connections, seconds: float, kind: str) -> Iterator[None]:
        """Run a step of this kind, whose locks wait for so many seconds at most."""
        with self.installing(store):
            yield

    # columns

    @property
    def own(self) -> dict[str, str]:
        """The columns that xq brings: their definitions by name."""
        types = {"text": self.terms.long_text, "double": self.terms.double, "integer": "INTEGER"}
        own = {field.column: OWN[role] for role, field in self.terms.source.own.items()}
        return {
            column: f"{self.terms.quote(column)} {types[kind] if length is None else self.terms.of_length(length)}"
            for column, (kind, length) in own.items()
        }

    def add_own(self, store: Connections) -> list[str]:
        """Return SQL that adds xq's own columns to the table."""
        added = f"ALTER TABLE {self.terms.table_in_schema} ADD COLUMN IF NOT EXISTS"
        return [f"{added} {column}" for column in self.own.values()]

    dropping: ClassVar[str] = "DROP COLUMN IF EXISTS"

    def drop_own(self, columns: Iterable[str]) -> list[str]:
        """Return SQL that drops some of xq's own columns."""
        dropped = f"ALTER TABLE {self.terms.table_in_schema} {self.dropping}"
        return [f"{dropped} {self.terms.quote(column)}" for column in columns]
