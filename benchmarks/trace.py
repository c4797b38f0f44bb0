"""make trace: every Python call of put, take, ack(update=) and put_many, on each database, and what they send.

With --walks: how many functions of xq a warm put, take and ack enter, in how many files of how many lines; and a
cycle of the maintenance, for a task whose ttr has passed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import pytest

from benchmarks.contestants import PAYLOAD, Place, Xq
from benchmarks.databases import HOMES
from benchmarks.on_django import SEAMS
from tests.support.trips import Counter, Trips
from tests.support.walks import Walk, expiry, size_of, traced, verbs

T = TypeVar("T")

TASK = {"payload": PAYLOAD}
MANY = 3  # tasks of a put_many
WARM = 3  # cycles before: what is compiled for the first call, and kept, is not traced


def cycle(queue: Xq, look: Callable[[Callable[[], Any]], tuple[Any, T]]) -> dict[str, T]:
    """What a look finds at each verb of a cycle."""
    model: Any = queue.model
    found = {}
    _, found["put"] = look(lambda: model.put(TASK))
    task, found["take"] = look(lambda: model.take())
    _, found["ack(update=)"] = look(lambda: task.ack(update={"payload": "done"}))
    many = [TASK] * MANY
    _, found[f"put_many of {MANY}"] = look(lambda: queue.queue.put_many(many))
    queue.queue.kill_many([task.id for task in queue.queue.by_state("R")])
    return found


def print_walks(title: str, found: Mapping[str, Walk], summary: bool) -> None:
    together = {"all three": [call for each in found.values() for call in each]} if len(found) > 1 else {}
    for verb, calls in {**found, **together}.items():
        functions, files, lines = size_of(calls)
        print(f"{title}, {verb}: {functions} functions of xq, in {files} files of {lines:,} lines")
        for call in calls if verb in found and not summary else ():
            print(f"  {call.name}  ({call.file})")


def sending(counter: Counter, call: Callable[[], Any]) -> tuple[Any, Trips]:
    """Return what a call returns, and what it sends."""
    with counter.counting() as trips:
        result = call()
    return result, trips


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make trace", description=__doc__)
    parser.add_argument("databases", nargs="*", help="sqlite, postgres, mariadb, mysql; all if none is named")
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
                        print_walks(f"{orm} on {home.title}", verbs(walked.queue, TASK), asked.summary)
                with closing(Xq(Place(home.new("expired")), ("owner", "runat"), {"ttr": True})) as expired:
                    late = {"a ttr that has passed": expiry(expired.queue, TASK)}
                    print_walks(f"Peewee on {home.title}", late, asked.summary)
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
