"""Which functions of xq a warm call enters, in which files of how many lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from tests.steps import PATIENCE
from xq.core import time

REPEATED = 12  # the first calls compile statements, and a take that comes late looks for due tasks first
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")  # functions up to Python 3.11 alone


class Call(NamedTuple):
    depth: int  # 1 is the method that the application calls
    name: str
    path: Path
    is_xq: bool

    @property
    def file(self) -> str:
        return self.path.name


Walk = Sequence[Call]  # the calls of functions of xq


def noting(calls: list[Call]) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that appends each Python call."""
    depth = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        if event == "call":
            code, file = frame.f_code, Path(frame.f_code.co_filename)
            ours = file.name.startswith("<xq ") or bool({"xq", "adapters", "features"} & {*file.parts[-5:-1]})
            ours = ours and "site-packages" not in file.parts and code.co_name not in INLINED
            if depth:
                calls.append(Call(depth, code.co_qualname, file, ours))
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


def shortest(found: Iterable[Sequence[Call]]) -> Walk:
    """Return the calls of xq in the shortest of these, which looked after nothing else."""
    return min(([call for call in calls if call.is_xq] for calls in found), key=len)


def walks(steps: Callable[[Callable[[str, Callable[[], Any]], Any]], None]) -> dict[str, Walk]:
    """Return the walk of each call that `steps` makes by its argument, a function of the call's name and the call."""
    found: dict[str, list[list[Call]]] = {}

    def step(name: str, call: Callable[[], Any]) -> Any:
        result, calls = traced(call)
        found.setdefault(name, []).append(calls)
        return result

    for _ in range(REPEATED):
        steps(step)
    return {name: shortest(calls) for name, calls in found.items()}


def verbs(queue: Any, task: Mapping[str, Any]) -> dict[str, Walk]:
    """Return the walks of a put, a take and an ack without options."""

    def cycle(step: Callable[[str, Callable[[], Any]], Any]) -> None:
        step("put", lambda: queue.model.put(task))
        taken = step("take", lambda: queue.model.take())
        step("ack", lambda: taken.ack())

    return walks(cycle)


def job(queue: Any, task: Mapping[str, Any]) -> Walk:
    """Return what the loop of a thread walks from one task's function to the next one's."""
    calls, begun = list[Call](), list[int]()

    def work(_: Any) -> None:
        begun.append(len(calls))
        note = noting(calls)

        def loop(frame: FrameType, event: str, argument: Any) -> None:
            # The loop returns from functions whose calls came before the first task: all count as one level.
            if event == "call":
                note(frame, event, argument)

        note(sys._getframe(), "call", None)
        sys.setprofile(loop)

    queue.worker(work)
    queue.put_many([task] * REPEATED)
    thread = threading.Thread(target=lambda: queue.run(until_empty=True))
    thread.start()
    thread.join(PATIENCE)
    assert len(begun) == REPEATED
    return shortest(calls[first:last] for first, last in pairwise(begun))


def expiry(queue: Any, task: Mapping[str, Any]) -> Walk:
    """Return the walk of the shortest cycle of maintenance that moves a task whose ttr has passed."""
    queue.take()
    thread = queue.parts.maintenance._duties
    rests, over, found = threading.Event(), threading.Event(), list[list[Call]]()

    def rest() -> bool:
        rests.set()
        return over.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread, "_wait_and_work", rest)  # else it works beside this one
        thread.call_for(thread.look)
        assert rests.wait(PATIENCE)
        now = time.monotonic()
        patch.setattr(time, "monotonic", lambda: now)  # no other duty is due again, however long this takes
        while len(found) < REPEATED:
            if not queue.by_state("T"):
                queue.put(task)
                queue.take(ttr=0.001)
            thread.expire.next_at = 0.0
            _, calls = traced(thread._cycle)
            if any(call.name == "UnattendedMoves.move" for call in calls):
                found.append(calls)
                queue.ack(queue.take())
        over.set()
    return shortest(found)


def end_of_group(queue: Any, task: Mapping[str, Any]) -> Walk:
    """Return the walk of the ack of a group's last member."""

    def end(step: Callable[[str, Callable[[], Any]], Any]) -> None:
        with queue.group("g", then=task) as group:
            group.put(task)
        taken = queue.take()
        step("", lambda: taken.ack())
        queue.ack(queue.take())  # what followed

    return walks(end)[""]


def size_of(walk: Walk) -> tuple[int, int, int]:
    """Return how many functions a walk enters, in how many files, of how many lines."""
    files = {call.path for call in walk if call.path.exists()}  # not the generated functions
    return len(walk), len(files), sum(len(path.read_text().splitlines()) for path in files)


def functions(found: Mapping[str, Walk]) -> str:
    """Return a table as text: a row for each path, and how many functions it enters."""
    wide = max(map(len, found))
    return "\n".join(f"{name:{wide}}  {len(walk)}" for name, walk in found.items())
