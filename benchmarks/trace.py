"""make trace: every Python call of put, take, ack(update=) and put_many, on each database, and what they send.

With --walks: how many functions of xq a warm put, take and ack enter, in how many files of how many lines; and the
maintenance thread, for a task whose ttr has passed.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import pytest

from benchmarks.contestants import PAYLOAD, Place, Xq
from benchmarks.databases import HOMES
from benchmarks.on_django import SEAMS
from tests.support.trips import Counter, Trips

T = TypeVar("T")

MANY = 3  # tasks of a put_many
WARM = 3  # cycles before: what is compiled for the first call, and kept, is not traced


class Call(NamedTuple):
    depth: int  # 1 is the method that the application calls
    name: str
    path: Path
    is_xq: bool

    @property
    def file(self) -> str:
        return self.path.name


def noting(calls: list[Call]) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that appends each Python call."""
    depth = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        if event == "call":
            code, file = frame.f_code, Path(frame.f_code.co_filename)
            ours = file.name.startswith("<xq ") or bool({"xq", "adapters", "features"} & {*file.parts[-5:-1]})
            if depth:
                calls.append(Call(depth, code.co_qualname, file, ours and "site-packages" not in file.parts))
            depth += 1
        elif event == "return":
            depth -= 1

    return note


def traced(call: Callable[[], Any]) -> tuple[Any, list[Call]]:
    """Return what a call returns, and each Python call that it makes."""
    calls: list[Call] = []
    sys.setprofile(noting(calls))
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, calls


def cycle(queue: Xq, look: Callable[[Callable[[], Any]], tuple[Any, T]]) -> dict[str, T]:
    """What a look finds at each verb of a cycle."""
    model: Any = queue.model
    found = {}
    _, found["put"] = look(lambda: model.put({"payload": PAYLOAD}))
    task, found["take"] = look(lambda: model.take())
    _, found["ack(update=)"] = look(lambda: task.ack(update={"payload": "done"}))
    many = [{"payload": PAYLOAD}] * MANY
    _, found[f"put_many of {MANY}"] = look(lambda: queue.queue.put_many(many))
    queue.queue.kill_many([task.id for task in queue.queue.by_state("R")])
    return found


def _ack(task: Any) -> None:
    task.ack()


def walks(queue: Any) -> dict[str, list[Call]]:
    """Return the calls of xq of a put, a take and an ack without options, which only an application's verbs begin."""
    model: Any = queue.queue.model
    shortest: dict[str, list[Call]] = {}
    for _ in range(WARM + 10):  # a take that comes late looks for due tasks first
        _, put = traced(lambda: model.put({"payload": PAYLOAD}))
        task, take = traced(lambda: model.take())
        _, ack = traced(partial(_ack, task))
        for verb, calls in {"put": put, "take": take, "ack": ack}.items():
            ours = [call for call in calls if call.is_xq]
            shortest[verb] = min(shortest.get(verb, ours), ours, key=len)
    return shortest


def expiry(queue: Xq) -> list[Call]:
    """Return the calls of xq in the shortest cycle of the maintenance thread that moves a task whose ttr has passed."""
    calls: list[Call] = []
    model: Any = queue.queue.model
    threading.setprofile(noting(calls))  # of threads that begin from now on: the first take starts the one of xq
    for _ in range(WARM + 3):
        queue.queue.put({"payload": PAYLOAD})
        queue.queue.take(ttr=0.3)
        while not model.select().where(model.status == "R").exists():
            time.sleep(0.05)
        queue.queue.ack(queue.queue.take())
    threading.setprofile(None)
    cycles: list[list[Call]] = [[]]
    for call in list(calls):
        if call.name.endswith("._wait_and_work"):
            cycles.append([])
        cycles[-1].append(call)
    moving = [cycle for cycle in cycles if any(call.name == "UnattendedMoves.move" for call in cycle)]
    return [call for call in min(moving, key=len) if call.is_xq]


def print_walks(title: str, found: Mapping[str, Sequence[Call]], summary: bool) -> None:
    together = {"all three": [call for each in found.values() for call in each]} if len(found) > 1 else {}
    for verb, calls in {**found, **together}.items():
        files = {call.path for call in calls if call.path.exists()}  # not the generated functions
        lines = sum(len(path.read_text().splitlines()) for path in files)
        print(f"{title}, {verb}: {len(calls)} functions of xq, in {len(files)} files of {lines:,} lines")
        for call in calls if verb in found and not summary else ():
            print(f"  {call.name}  ({call.file})")


def sending(counter: Counter, call: Callable[[], Any]) -> tuple[Any, Trips]:
    """Return what a call returns, and what it sends."""
    with counter.counting() as trips:
        result = call()
    return result, trips


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make trace", description=__doc__)
    parser.add_argument("databases", nargs="*", help="sqlite, postgres, mariadb; all if none is named")
    parser.add_argument("--summary", action="store_true", help="only how many calls, and how deep")
    parser.add_argument("--sql", action="store_true", help="what they send: statements/round trips/transactions")
    parser.add_argument("--walks", action="store_true", help="functions and files, on Peewee and on Django")
    asked = parser.parse_args(arguments)
    for name, kind in HOMES.items():
        if asked.databases and name not in asked.databases:
            continue
        if asked.walks:
            with closing(kind()) as home:
                for orm, opens in SEAMS.items():
                    opened: Callable[..., Any] = opens
                    with closing(opened(Place(home.new("walked")), roles=("owner",))) as walked:
                        print_walks(f"{orm} on {home.title}", walks(walked), asked.summary)
                with closing(Xq(Place(home.new("expired")), ("owner", "runat"), {"ttr": True})) as expired:
                    print_walks(f"Peewee on {home.title}", {"a ttr that has passed": expiry(expired)}, asked.summary)
            continue
        with pytest.MonkeyPatch.context() as patch, closing(kind()) as home:
            counter = Counter(patch) if asked.sql else None  # else its wrappers would be among the calls
            with closing(Xq(Place(home.new("traced")))) as queue:
                for _ in range(WARM):
                    cycle(queue, traced)
                sent = cycle(queue, partial(sending, counter)) if counter else {}
                for verb, trips in sent.items():
                    print(f"{home.title}, {verb}: {trips}", *trips.texts, sep="\n  ")
                for verb, calls in ({} if sent else cycle(queue, traced)).items():
                    ours = sum(call.is_xq for call in calls)
                    deep = max(call.depth for call in calls)
                    print(f"{home.title}, {verb}: {len(calls)} Python calls, {ours} of xq, {deep} deep")
                    for call in calls if not asked.summary else ():
                        print(f"{'  ' * call.depth}{call.name}  ({call.file})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
