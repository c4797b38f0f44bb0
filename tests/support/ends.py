"""Processes that put groups and dependants, work them off, and are killed: what follows comes once."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import peewee as pw

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import Other, eventually, forked, is_exact, note, noted, state
from tests.timing import in_sequence
from xq.workers import processes

SIZE = 3  # members of a group
SOON = 0.02  # seconds that a take waits


class Blow:
    """A queue of tasks in groups and after others, whose workers are killed; another queue for what follows."""

    def __init__(self, make: Maker, folder: Path, features: dict[str, Any]) -> None:
        self.make, self.stop, self.quiet, self.wrong = make, folder / "stop", folder / "quiet", folder / "wrong"
        self.Task = make({"keep": True, "buried": True, **features})
        self.Next = make({"keep": True}, model=make.model(table_name="next"))

    def put(self, name: str) -> None:
        raise NotImplementedError

    def check(self, found: Any) -> str:
        """What is wrong with having taken this task now."""
        raise NotImplementedError

    def works(self) -> Generator[Any, Any, None]:
        chance = random.Random()  # each process another one
        yield "begun"
        try:
            while not self.stop.exists():
                self.step(chance)
        except Exception as error:
            note(self.wrong, repr(error))
            raise
        yield "ended"

    def step(self, chance: random.Random) -> None:
        if not self.quiet.exists() and chance.random() < 0.3:
            with suppress(pw.OperationalError):  # a deadlock in a transaction of its own, which is undone
                self.put(f"{chance.getrandbits(60):x}")
        if found := self.Task.take(timeout=SOON):
            if wrong := self.check(found):
                note(self.wrong, wrong)
            self.end(found, chance.random())

    def end(self, found: Any, chance: float) -> None:
        found.ack()

    @in_sequence
    def run(self, kills: int, processes: int = 3, seed: int = 1) -> None:
        """Kill so many processes, one after the other, replace each, and wait until all tasks have ended."""
        chance = random.Random(seed)
        others = [self.begin() for _ in range(processes)]
        try:
            for _ in range(kills):
                since = self.ended()
                eventually(partial(self._goes_on, since))
                assert noted(self.wrong) == []
                victim = chance.randrange(processes)
                others[victim].kill()
                others[victim] = self.begin()
            self.quiet.touch()
            eventually(
                lambda: not sum(self.Task.xq.count(state) for state in self.Task.xq.machine.states if state in "RTW")
            )
            eventually(self.is_complete)
        finally:
            self.stop.touch()
            for other in others:
                other.end()
        assert noted(self.wrong) == []
        assert is_exact(self.Task)
        assert is_exact(self.Next)

    def _goes_on(self, since: int) -> bool:
        return bool(noted(self.wrong)) or self.ended() > since

    def begin(self) -> Other:
        other = Other(self.make.db, self.works)
        assert next(other) == "begun"
        other.post(None)  # go on
        return other

    def ended(self) -> int:
        return int(self.Task.xq.count("D"))

    def is_complete(self) -> bool:
        raise NotImplementedError


class OfGroups(Blow):
    """Each group has one task that follows it, in the same table or in the other."""

    def __init__(self, make: Maker, folder: Path) -> None:
        super().__init__(make, folder, {"groups": True})

    def put(self, name: str) -> None:
        here = int(name, 16) % 2
        then = task(name=f"then {name}")
        with self.Task.xq.group(name, then=then if here else (self.Next, then), failed="run") as group:
            group.put_many([task(name=f"member {name}") for _ in range(SIZE)])

    def check(self, found: Any) -> str:
        kind, name = found.name.split()
        open_ones = self.Task.select().where((self.Task.name == f"member {name}") & (self.Task.status << ["R", "T"]))
        return f"{found.name} came too soon" if kind == "then" and open_ones.exists() else ""

    def end(self, found: Any, chance: float) -> None:
        if found.name.startswith("member") and chance < 0.1:
            found.bury()
        else:
            found.ack()

    def is_complete(self) -> bool:
        """Each group is followed by one task. More than one, at any moment, is wrong."""
        follow = Counter(
            row.name.split()[1] for row in [*self.Task.select(), *self.Next.select()] if "then" in row.name
        )
        # Read later: a process that was putting a group while the others ended may commit it only now.
        groups = {row.name.split()[1] for row in self.Task.select() if row.name.startswith("member")}
        assert set(follow.values()) <= {1}, follow.most_common(3)
        assert follow.keys() <= groups
        return follow.keys() == groups


class OfDependants(Blow):
    """Each join waits for two others."""

    def __init__(self, make: Maker, folder: Path) -> None:
        super().__init__(make, folder, {"after": True})

    def put(self, name: str) -> None:
        with self.make.db.atomic():
            parents = self.Task.xq.put_many(tasks(2, name="parent"))
            self.Task.put(task(name=f"join {' '.join(str(parent.id) for parent in parents)}"), after=parents)

    def check(self, found: Any) -> str:
        parents = [int(key) for key in found.name.split()[1:]]
        ended = (
            self.Task.select().where((self.Task.id << parents) & (self.Task.status == "D")).count() if parents else 0
        )
        return f"{found.name}: {ended} of its parents have ended" if ended != len(parents) else ""

    def is_complete(self) -> bool:
        """Each join is released once. A process that was putting one while the others ended may commit it only now."""
        released = self.Task.xq.stats().transition["W-R"]
        joins = self.Task.select().where(self.Task.name.startswith("join")).count()
        assert released <= joins
        return bool(joins) and bool(joins == released)


class Failed(Exception): ...


class OfFunctions:
    """Functions that raise or return by the name of their task, in processes that are killed, also in their hooks."""

    ENDS = ("returns", "raises", "xq.Retry", "xq.Bury", "xq.Next")
    RAISED = (Failed(), xq.Retry(0), xq.Bury())

    def __init__(self, make: Maker) -> None:
        features = {"keep": True, "buried": True, "delayed": True}
        self.Task: Any = make(features, roles=("runat", "attempts", "tube"))
        ends = self.Task.xq.worker(self.ends, kind="process", workers=3, max_attempts=3, backoff=[0])
        ends.on_failure(self.may_die)
        ends.on_buried(self.may_die, in_transaction=True)
        self.Task.xq.worker(self.returns, kind="process", tube="returns", backoff=[0])
        self.Task.xq.worker(self.goes_on, kind="process", tube="xq.Next", backoff=[0])
        self.program = 0  # its pid

    def returns(self, found: Any) -> None:
        self.dies_soon()

    def ends(self, found: Any) -> None:
        self.dies_soon()
        raise self.RAISED[self.ENDS.index(found.name) - 1]

    def goes_on(self, found: Any) -> None:
        self.dies_soon()
        raise xq.Next("returns", update={"size": found.id + 1})

    @staticmethod
    def dies_soon() -> None:
        """Be killed in one of five calls, soon after the function has ended."""
        if (chance := random.Random()).random() < 0.2:
            threading.Timer(chance.random() * 0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def may_die(self, *_: Any) -> None:
        if os.getpid() != self.program and random.Random().random() < 0.1:
            os.kill(os.getpid(), signal.SIGKILL)

    def runs(self) -> None:
        self.program, processes.CRASHES = os.getpid(), 1_000_000  # also of processes that have no task
        self.Task.xq.run()

    @in_sequence
    def run(self, n: int) -> None:
        """Put so many tasks for each end, and look at how they have ended."""
        put = [task(name=end, tube=end if end in ("returns", "xq.Next") else "", size=0) for end in self.ENDS]
        self.Task.xq.put_many(put * n)
        program = forked(self.Task._meta.database, self.runs)
        try:
            eventually(lambda: not sum(self.Task.xq.count(letter) for letter in "RTW"), within=100)
        finally:
            program.terminate()
            program.join()
        found = Counter((each.name, state(self.Task, each), bool(each.size)) for each in self.Task.select())
        ended = {(end, "D" if end in ("returns", "xq.Next") else "B", end == "xq.Next") for end in self.ENDS}
        assert found == dict.fromkeys(ended, n)
        assert is_exact(self.Task)
