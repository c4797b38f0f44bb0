"""The objects that installing a queue creates: tables, indexes and triggers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xq.adapters.databases.looks import Looks
from xq.adapters.databases.records import PAUSES, QUEUES, RATES, SCHEDULES, SESSIONS, SETTINGS, SLOTS
from xq.adapters.databases.sql_file import filled_in, statements, texts
from xq.core.machine import READY, TAKEN
from xq.core.ports import LONGEST_ACTOR, LONGEST_REASON
from xq.sessions.process import HOST, PROGRAM
from xq.sessions.session import UUID_LENGTH


@dataclass(frozen=True, slots=True)
class Object:
    """A database object of a queue. Running `create` twice is harmless."""

    kind: str  # table, index or trigger
    name: str
    create: tuple[str, ...]
    drop: str


class Objects(Looks):
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
            f"ends DOUBLE PRECISION, {', '.join(self.later[SESSIONS])}, PRIMARY KEY (uuid, queue)",
            SETTINGS: f"name {name} PRIMARY KEY, value DOUBLE PRECISION NOT NULL",
            PAUSES: f"queue {name} NOT NULL, tube {name} NOT NULL, whole INTEGER NOT NULL, "
            f"{', '.join(self.later[PAUSES])}, PRIMARY KEY (queue, tube, whole)",
            # A schedule that does not fire again keeps its row: repeating its definition must not fire it again.
            SCHEDULES: f"queue {name} NOT NULL, name {name} NOT NULL, spec {self.long_text} NOT NULL, "
            f"task {self.long_text} NOT NULL, next_us BIGINT, {', '.join(self.later[SCHEDULES])}, "
            "PRIMARY KEY (queue, name)",
            RATES: f"queue {name} NOT NULL, bucket {name} NOT NULL, full_us BIGINT NOT NULL, "
            "PRIMARY KEY (queue, bucket)",
            SLOTS: f"name {name} NOT NULL, slot INTEGER NOT NULL, session {uuid} NOT NULL, PRIMARY KEY (name, slot)",
        }
        return [
            Object(
                "table",
                name,
                (
                    f"CREATE TABLE IF NOT EXISTS {name} ({columns}){self.engine}",
                    *(self.adding(name) if name in self.later else ()),
                ),
                f"DROP TABLE IF EXISTS {name}",
            )
            for name, columns in (tables | self.more_shared()).items()
        ]

    @property
    def later(self) -> dict[str, list[str]]:
        """The columns that shared tables of earlier layouts lack, by table; all or none are there."""
        return {
            SESSIONS: [f"host {self.varying(HOST)}", "pid BIGINT", f"program {self.varying(PROGRAM)}"],
            PAUSES: [
                "since_us BIGINT",
                f"actor {self.varying(LONGEST_ACTOR)}",
                f"reason {self.varying(LONGEST_REASON)}",
            ],
            SCHEDULES: ["last_us BIGINT", "paused INTEGER"],  # paused: 1 or NULL
        }

    def adding(self, table: str) -> Sequence[str]:
        """Return SQL that adds these columns where they are missing. SQLite has no such SQL: see `widening`."""
        return ()

    # the files of SQL

    def filled_in(self, file: Path, text: str, values: Mapping[str, str], *has: str) -> str:
        """Return the SQL of a text for this queue, which also `has` these words, with the values filled in."""
        return filled_in(texts(file)[text], {*self._words(), *has}, values)

    def statements(self, file: Path, text: str, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the statements of a text for this queue, with the values filled in."""
        return statements(texts(file)[text], self._words(), values)

    def _words(self) -> set[str]:
        """Return the words of this queue that choose parts of texts."""
        words = {
            "tubes": self.tube_stats,
            "history": self.has_history,
            "groups": self.groups,
        }
        return {word for word, there in words.items() if there}

    def of_version(self, version: str, old: str, was: str) -> dict[str, str]:
        """Return the values of a version of a row for the texts of triggers, as `old`, and its conditions, as `was`."""
        machine, status = self.machine, f"{version}.{self.roles['status']}"
        found = {
            old: self.letter(status),
            f"{old}_key": self.key_in_history([f"{version}.{key}" for key in self.keys]),
            f"{old}_tube": f"{version}.{self.roles['tube']}" if "tube" in self.roles else "NULL",
            f"{old}_attempt": f"{version}.{self.roles['attempts']}" if "attempts" in self.roles else "NULL",
            f"{old}_owner": f"{version}.{self.roles['owner']}",
            was: self.in_states(machine.states, status),
            f"surely_{was}": f"COALESCE({self.in_states(machine.states, status)}, FALSE)",
            f"{was}_pending": self.in_states(machine.pending, status),
            f"{was}_taken": self.is_state(TAKEN, status),
        }
        if self.tube_stats:
            found[f"{was}_counted"] = self.counted(f"{version}.{self.roles['tube']}")
        return found

    def objects(self) -> list[Object]:
        """Return the objects that installing creates, in order."""
        return [*self.side_tables(), *self.indexes(), *self.triggers()]

    @property
    def count_what_is_there(self) -> str:
        """Return SQL that counts the existing tasks, unless counting has begun."""
        return (
            f"INSERT INTO {self.side('count')} (tube, source, target, n) "
            f"SELECT tube, '', state, n FROM ({self.actual_counts}) AS actual "
            f"WHERE NOT EXISTS ({self.begun})"
        )

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
        for column in self.timed_columns:
            role = self.roles[column]
            found[column] = (f"{self.roles['status']}, {role}", f"{role} IS NOT NULL", False)
        # The taken tasks of a session must be found among ten million others.
        taken = self.is_state(TAKEN)
        if self.index_of_taken in found:
            columns, condition, unique = found["runat"]
            found["runat"] = (columns, f"{taken} OR {condition}", unique)
        else:
            found[self.index_of_taken] = (self.owner_for_range, taken, False)
        for guard in self.machine.guards:
            if guard.name == "unique":
                found[guard.name] = (self.roles[guard.role], self.in_states(self.guarded_states(guard)), True)
        return found
