"""What the databases that are servers have in common: many writers at once, whose rows are locked one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from xq.adapters.databases.links import Link, Listener, Words
from xq.adapters.databases.sql import QUEUES, Dialect
from xq.compile import Statement
from xq.machine import ABSENT, ELSEWHERE, Guard
from xq.sessions import ProofOfLife
from xq.store import Row, Store, Values, Writes

ALIVE = "xq_alive"  # the sessions that each process holds; it proves by a lock of its own that it lives
ROLL_UP = 10_000  # rows of counters that are added up at once
PART = "\x1f"  # between the parts of what triggers are told
BYTES = ("BLOB", "BYTEA", "BINARY", "VARBINARY", "UUIDB")  # types of a key that is told in hexadecimal digits


class Server(Dialect):
    """Rows are locked, counters are appended to, and sessions live as long as a connection does."""

    begin_writing = ""
    mark = "%s"
    lock = " FOR UPDATE"
    link: ClassVar[Words]  # what is asked on links to it

    @property
    @abstractmethod
    def telling(self) -> str:
        """What has the triggers of this statement know of `:told`; as SQL, true."""

    def entered(self, state: str) -> str:
        word = super().entered(state)
        # Of interest to the history, and to who waits for the end of a task.
        told = self.has_history or state not in self.machine.pending
        return f"CASE WHEN {self.telling} THEN {word} END" if told else word

    # putting

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        return f"VALUES {rows}", f"SELECT 1{self.absent_rows} WHERE {self.room(guard)}"

    @property
    def one_at_a_time(self) -> str:
        """Has those who do this in one queue wait for each other; at every isolation level, since it writes."""
        return f"UPDATE {QUEUES} SET version = version WHERE name = {self.literal(self.source_name)}"

    def run(self, store: Store[Any], statement: Statement, values: Values, event: str = "") -> list[Row]:
        values = {**values, "told": self._told(event, values)}
        if not statement.admitted:
            return self.run_alone(store, statement, values)
        with store.atomic():
            store.change(self.one_at_a_time)
            if not self.execute(store, statement.admitted, values):
                return []
            return self.run_alone(store, statement, values)

    def run_alone(self, store: Store[Any], statement: Statement, values: Values) -> list[Row]:
        return super().run(store, statement, values)

    def change(self, store: Store[Any], statement: Statement, values: Values, event: str = "") -> int:
        values = {**values, "told": self._told(event, values)}
        return super().change(store, statement, values)

    def _told(self, event: str, values: Values) -> str:
        """The event, of which queue, and the time of a test's clock; the statement adds its own time."""
        now = values.get("now")
        return PART.join([event or "write", self.source_name, "" if now is None else repr(float(now)), ""])

    # keys

    def can_list(self, keys: Sequence[Sequence[Any]]) -> bool:
        return len(self.keys) == 1 and self.source.key[0].kind in self.list_kinds

    list_kinds: ClassVar[Mapping[str, str]]  # the kinds of key that may come as a list -> the type of its members

    # counting: rows are appended, so that nobody waits for another's transaction, and added up now and then

    def counters(self) -> str:
        return (
            f"SELECT tube, source, target, {self.whole('SUM(n)')} AS n, COUNT(*) "
            f"FROM {self.object(self.name('count'))} GROUP BY tube, source, target"
        )

    def whole(self, number: str) -> str:
        """A number as a whole one that the driver returns as such."""
        return f"CAST({number} AS BIGINT)"

    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.object(self.name('count'))} (tube, source, target, n) "
            "VALUES (:tube, :source, :target, :count)"
        )

    # sessions

    def more_shared(self) -> dict[str, str]:
        # A row without a session is that of a process which hears of commits.
        waits = "waits BOOLEAN NOT NULL DEFAULT FALSE"
        return {
            ALIVE: f"uuid {self.varying(36)} NOT NULL, process BIGINT NOT NULL, {waits}, PRIMARY KEY (uuid, process)"
        }

    def _link(self, store: Store[Any]) -> Link | None:
        database = store.database
        return None if database is None else Link.of(database, store, self.link)

    def proof_of_life(self, store: Store[Any]) -> ProofOfLife | None:
        return self._link(store)

    def writes(self, store: Store[Any]) -> Writes | None:
        link = self._link(store)
        return None if link is None else Listener(link)

    def prepare(self, store: Store[Any]) -> None:
        pass

    def unfit(self, store: Store[Any]) -> str | None:
        return None

    def connected(self, store: Store[Any]) -> None:
        pass

    # triggers

    def updates(self) -> list[tuple[str, str, str, str]]:
        """What a change of a row counts: tube, source, target, and when, as SQL of OLD and NEW."""
        status = self.roles["status"]
        old, new = self.letter(f"OLD.{status}"), self.letter(f"NEW.{status}")
        was, is_ = (self.in_states(self.machine.states, f"{version}.{status}") for version in ("OLD", "NEW"))
        found = [("''", old, new, f"{old} <> {new}")]
        if self.tube_stats:
            tube = self.roles["tube"]
            before, after = self.counted(f"OLD.{tube}"), self.counted(f"NEW.{tube}")
            moved = self.differ(f"OLD.{tube}", f"NEW.{tube}")
            gone = f"CASE WHEN {is_} THEN '{ELSEWHERE}' ELSE '{ABSENT}' END"
            come = f"CASE WHEN {was} THEN '{ELSEWHERE}' ELSE '{ABSENT}' END"
            found += [
                (f"NEW.{tube}", old, new, f"NOT {moved} AND {after} AND {old} <> {new}"),
                (f"OLD.{tube}", old, gone, f"{moved} AND {before} AND {was}"),
                (f"NEW.{tube}", come, new, f"{moved} AND {after} AND {is_}"),
            ]
        return found

    @abstractmethod
    def differ(self, one: str, other: str) -> str:
        """Whether two values differ, be they NULL; as SQL."""

    def moved_key(self) -> str:
        return " OR ".join(self.differ(f"OLD.{key}", f"NEW.{key}") for key in self.keys)

    def watched(self) -> list[str]:
        """The columns whose change triggers must see."""
        tube = [self.roles["tube"]] if self.tube_stats else []
        return list(dict.fromkeys([self.roles["status"], *self.keys, *tube]))
