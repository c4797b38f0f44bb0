"""Floors: keys below which no task is ready, but for those that came back since; takes begin to look there.

Beside a snapshot that is held, a take would step over all that was taken since. Without one there are no floors. A
floor belongs to this process, and to the takes of one tube, or of any. Looks, twice a second, raise it in two steps:

- It publishes a key: from now on the triggers write down each task that becomes ready below it, with its transaction.
  Then it draws a transaction's number. A later transaction sees what was published. (The snapshot's xmax would not do:
  transactions that are open may have higher numbers.)
- A look after all transactions with lower numbers have ended sees all tasks that were not written down. The floor is
  the first ready one, and at most the key that was published. What this look does not see has the number of a
  transaction that is open then, or a later one, and what these write down counts.

Timers have no floor: while there are any, looks at timers read only the times around now, and one a second reads all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from xq.core import time
from xq.core.compile import EVERYWHERE, Window
from xq.engine.executor import Executor
from xq.sql.floors import MANY
from xq.sql.named import filled

LOOK: Final = 1.0  # seconds after which a take that finds nothing looks again without its floor
LIVES: Final = 10.0  # seconds for which a floor counts after a look from the first task on, which finds anything
AFRESH: Final = 7.0  # seconds after such a look until the next one
MOST: Final = 16  # tubes with a floor
FORGET: Final = 60.0  # seconds between two deletions of what came back
NOTED: Final = 15.0  # seconds after which the moves have other texts
NOTES: Final = 100  # texts, as many as a connection keeps prepared


class Floor(NamedTuple):
    """No task below the key is ready, but for what came back by the transaction `xid` or later ones."""

    key: int
    xid: int
    since: float  # the monotonic time of the last look from the first task on


@dataclass(slots=True)
class Tube:
    """The takes of one tube, or of any."""

    asked: float  # the monotonic time of the last take
    looked: float = 0.0  # and of the last one that looked again
    taken: int | None = None  # the greatest key that was taken
    floor: Floor | None = None
    published: tuple[int, int] | None = None  # a key, and the number that was drawn then

    def living(self, now: float) -> Floor | None:
        return self.floor if self.floor is not None and now - self.floor.since < LIVES else None


class Floors:
    """The floors of a queue in this process."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.tubes: dict[str | None, Tube] = {}
        self.held = False  # whether a snapshot is in the way
        self._binding: object = None  # to which they belong
        self._forgotten = time.monotonic()
        self._note = 0

    def of(self, binding: object, tube: str | None) -> Floor | None:
        """Return the floor for a take of this tube; None if it has none now."""
        now = time.monotonic()
        if self._binding is not binding:
            self._binding, self.tubes = binding, {}
        if (found := self.tubes.get(tube)) is None:
            if len(self.tubes) < MOST:
                self.tubes[tube] = Tube(now)
            return None
        found.asked = now
        return found.living(now)

    def took(self, tube: str | None, key: object) -> None:
        """Notice the key of a task that was taken."""
        found = self.tubes.get(tube)
        if found is not None and type(key) is int and (found.taken is None or key > found.taken):
            found.taken = key

    def doubted(self, tube: str | None) -> bool:
        """Return whether a take that found nothing looks again without its floor."""
        found, now = self.tubes.get(tube), time.monotonic()
        if found is None or now - found.looked < LOOK:
            return False
        found.looked = now
        return True

    def look(self) -> bool:
        """Raise the floors, outside of a transaction. Return whether there are any takes that use them."""
        binding, now, self.held = self.executor.open(), time.monotonic(), False
        if binding is not self._binding or (sql := binding.dialect.floors) is None:
            return False
        held = self.held = bool(self.tubes) and bool(self.executor.run(sql.held)[0][0])
        if held and (note := int(now / NOTED) % NOTES) != self._note:
            # PostgreSQL keeps planning a statement at each run if the plan without its values once seemed costly, for
            # as long as it has this text. With many rows that are dead its costs are wrong.
            self._note = note
            binding.compiled.renew(f" /* {note} */")
        for tube, seen in [*self.tubes.items()]:
            if now - seen.asked > LIVES:
                del self.tubes[tube]
            elif held:
                self._look(tube, seen, now)
                if seen.floor is not None and seen.published is not None:
                    self._look(tube, seen, now)  # it counts at once, if no transaction is open
            else:
                seen.floor = seen.published = None  # a take costs less without one
        floor = self.tubes[None].living(now) if None in self.tubes else None
        above = filled(sql.above, floor=str(floor.key), floor_xid=str(floor.xid)) if floor else ""
        self.executor.window = Window(above, held and self.executor.window.due)
        if now - self._forgotten > FORGET:
            self.executor.run(sql.forget)
            self._forgotten = now
        return bool(self.tubes)

    def forked(self) -> None:
        """Forget the floors: a child raises its own."""
        self.tubes.clear()
        self.executor.window = EVERYWHERE

    def _look(self, tube: str | None, seen: Tube, now: float) -> None:
        run, sql, floor, published = self.executor.run, self.executor.dialect.floors, seen.floor, seen.published
        assert sql is not None
        old = None if floor is None or now - floor.since > AFRESH else floor
        since = published[1] if published else floor.xid if floor else 2**63 - 1
        values = {"tube": tube, "since": since} | ({"floor": old.key, "floor_xid": old.xid} if old else {})
        ((xmin, first, high, back),) = run(sql.look(tube is not None, old is not None), values)
        moved = floor is not None and (high < floor.key or xmin < floor.xid)  # to a server that lacks the last changes
        if back >= MANY or moved or (published is not None and high < published[0]):
            seen.floor = published = None
        if published is not None and xmin >= published[1]:
            key = published[0] if first is None else min(first, published[0])
            seen.floor, published = Floor(key, xmin, now if old is None else old.since), None
        if published is None and (key := seen.taken if first is None else first) is not None:
            if high < key:
                self.executor.transaction(lambda: [run(each, {"floor": key}) for each in (sql.lock, sql.publish)])
            ((xid,),) = run(sql.next_xid)
            published = key, xid
        seen.published = published
