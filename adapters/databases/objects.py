"""The objects that installing a queue creates: tables, indexes and triggers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xq.adapters.databases.records import QUEUES, SESSIONS, SETTINGS
from xq.adapters.databases.selectors import Selectors
from xq.core.machine import READY, TAKEN
from xq.sessions.session import UUID_LENGTH


@dataclass(frozen=True, slots=True)
class Object:
    """A database object of a queue. Running `create` twice is harmless."""

    kind: str  # table, index or trigger
    name: str
    create: tuple[str, ...]
    drop: str


class Objects(Selectors):
    """The objects that belong to a queue, besides the application's table."""

    @abstractmethod
    def side_tables(self) -> list[Object]:
        """Return the tables that belong to this queue alone."""

    @abstractmethod
    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        """Return an index of the rows that meet a condition."""

    @abstractmethod
    def triggers(self) -> list[Object]:
        """Return the triggers, which see every change of the table by any program."""

    create_view = "CREATE VIEW IF NOT EXISTS"
    more_of_queues = ""  # further columns of QUEUES, after a comma
    serial: str  # the type of a generated key in xq's own tables

    @abstractmethod
    def stage_body(self, place: str, options: Sequence[str]) -> tuple[str, ...]:
        """Return the body of CREATE TABLE for a table like the application's, and the SQL to run after it.

        Its key is the column `place`. It has columns for the options, in seconds. All other columns may be NULL.
        """

    def watched(self) -> list[str]:
        """Return the columns whose changes triggers must see."""
        tube = [self.roles["tube"]] if self.tube_stats else []
        utube = [self.groups.role, *self.groups.watched] if self.groups else []
        return list(dict.fromkeys([self.roles["status"], *self.keys, *tube, *utube]))

    def shared(self) -> list[Object]:
        """Return the tables that all queues of a database share."""
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
        """Return the objects that installing creates, in order."""
        return [*self.side_tables(), *self.indexes(), *self.triggers()]

    def made(self, kind: str, suffix: str, *create: str) -> Object:
        """Return an object of this queue, with the SQL that creates it."""
        name = self.name(suffix)
        return Object(kind, name, create, self.drop(kind, name))

    def side_table(self, suffix: str, body: str, *more: str) -> Object:
        """Return a table of this queue. `more` is SQL to run after its creation."""
        create = f"CREATE TABLE IF NOT EXISTS {self.side(suffix)} {body}"
        return self.made("table", suffix, create, *more)

    def more_shared(self) -> dict[str, str]:
        """Return further shared tables of this kind of database: their columns by name."""
        return {}

    def indexes(self) -> list[Object]:
        """Return the indexes of the selectors. With partial indexes, rows at rest are in none of them."""
        return [self.index(suffix, *found) for suffix, found in self._indexes().items()]

    def _indexes(self) -> dict[str, tuple[str, str, bool]]:
        """Return the indexes by suffix: columns, the condition of the rows, whether it is unique."""
        found: dict[str, tuple[str, str, bool]] = {}
        for state in self.machine.picked():
            mine = self.is_state(state)
            if self.groups and state == READY:
                mine = self.groups.for_others(mine)
            found[f"oldest_{state}"] = (self.order, mine, False)
            if "tube" in self.roles and state == READY:
                found[f"oldest_{state}_of_tube"] = (f"{self.roles['tube']}, {self.order}", mine, False)
        if self.groups:
            found["utube"] = self.groups.index
        for column in {timer.column: None for timers in self.machine.timers.values() for timer in timers}:
            role = self.roles[column]
            found[column] = (f"{self.roles['status']}, {role}", f"{role} IS NOT NULL", False)
        # The taken tasks of a session must be found among ten million others. An index of their own would cost a fifth
        # of the throughput, so if an index of ttr exists, it also holds the taken tasks without a ttr.
        taken = self.is_state(TAKEN)
        if "runat" in found and ("owner" in self.roles or self.machine.timer(TAKEN, "runat")):
            columns, condition, unique = found["runat"]
            found["runat"] = (columns, f"{taken} OR {condition}", unique)
        elif "owner" in self.roles:
            found["taken"] = (self.owner_for_range, taken, False)
        for guard in self.machine.guards:
            if guard.name == "unique":
                found[guard.name] = (self.roles[guard.role], self.in_states(self.guarded_states(guard)), True)
        return found
