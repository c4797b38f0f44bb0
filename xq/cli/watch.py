"""Commands to look on: transitions as they commit, a live screen, reasons, what is wrong."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from xq.cli import options as o
from xq.cli.output import Answer, json_text, lines_of, shown
from xq.cli.queues import counted, numbers
from xq.cli.targets import ANSWERS, Queue, connected, key_of
from xq.cli.tasks import failures, list_, transition, transition_row
from xq.core import time
from xq.core.ending import within

PAUSE = 0.25  # seconds between tail's looks
TRANSITIONS_A_LOOK = 1_000  # transitions that one look reads
LATE = 10_000  # ids below the newest one, for transactions that may still commit
SOON = 60  # seconds within which a ready task is taken, or the screen says that none was
SPAN = 10  # looks, over which top counts its rates
ROWS = 10  # tasks and errors that are shown
NAMED = ("tube", "attempt", "by")  # values in tail's lines that have their names before them

Looks = deque[tuple[float, Mapping[str, int]]]  # (monotonic time, number of each transition)


def tail(target: o.Target, key: o.AnyKey = None, n: o.First = 10, once: o.Once = False, json: o.Json = False) -> None:
    """Follow a queue's transitions, or one task's, as they commit. Needs the feature history."""
    with connected(target) as queue:
        for row in _transitions(queue, n, once, key_of(queue, key)):
            told = transition(queue, row)
            cells = {name: shown(value) for name, value in transition_row(told).items() if value}
            line = " ".join(f"{name}={cell}" if name in NAMED else cell for name, cell in cells.items())
            print(json_text(told, indent=None) if json else line, flush=True)


def _transitions(queue: Queue, n: int, once: bool, key: Any) -> Iterator[Any]:
    """Yield the last `n` transitions, one task's or all, and the following ones.

    A transaction may commit after others with greater ids, so each look reads the last LATE ids again.
    """
    inspection = queue.parts.doctor
    first = since = inspection.newest()
    yield from (earlier := inspection.last(n, key) if n else [])
    seen = {row.id for row in earlier}
    while True:
        with within(ANSWERS):  # the server may vanish between two looks
            found = inspection.after(since, LATE + TRANSITIONS_A_LOOK)
        for row in found:
            if row.id not in seen and (key is None or key_of(queue, row.key) == key):
                yield row
            seen.add(row.id)
        since = max([first, *(id - LATE for id in seen)])
        seen = {id for id in seen if id > since}
        if once:
            return
        time.sleep(PAUSE)


def why(queue: Queue, key: o.Key) -> Answer:
    """Print why a task is not running."""
    told = queue.why(key_of(queue, key))
    return Answer(told, told)


def doctor(queue: Queue) -> Answer:
    """Print each problem with its remedy. It reads the whole table. Exits with 1 if there is one."""
    found = queue.doctor()
    wrong = any(not each.do.startswith("optional") for each in found)
    lines = ["\n  ".join([each.what, *each.do.splitlines()]) for each in found]
    return Answer([each._asdict() for each in found], lines, "" if found else "nothing is wrong", int(wrong))


def top(
    target: o.Target, wanted: o.Wanted = "state:R", every: o.Pause = 1.0, once: o.Once = False, json: o.Json = False
) -> None:
    """Show a queue live: health, numbers, rates, errors, and the first tasks that match a filter. Ctrl-C ends it."""
    looks = Looks(maxlen=SPAN)
    with connected(target) as queue:
        if once or json or not sys.stdout.isatty():
            return _look(queue, wanted, looks).print(json)
        from rich.live import Live
        from rich.text import Text

        with suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as live:
            while True:
                lines = lines_of(_look(queue, wanted, looks).lines or [], live.console.width)
                live.update(Text("\n".join(lines)), refresh=True)
                time.sleep(every)


def _rates(looks: Looks, state: str) -> dict[str, str]:
    """Return how many tasks a second have entered and left a state; nothing after one look."""
    (began, first), (now, last) = looks[0], looks[-1]
    moved = [(name.split("-"), n - first.get(name, 0)) for name, n in last.items()]
    return {
        title: f"{sum(n for ends, n in moved if ends[side] == state) / (now - began):,.1f}"
        for title, side in (("in/s", 1), ("out/s", 0))
        if now > began
    }


def _look(queue: Queue, wanted: str, looks: Looks) -> Answer:
    """Return what health, stats, failures and list say about a queue, with rates and time percentiles."""
    inspection, parts = queue.parts.doctor, {}
    times = inspection.times() if queue.machine.settings.history is not None else {}
    spans = {state: {f"p{at}": age for at, age in of.items()} for state, of in times.items()}
    sentence, sessions = queue.health(max_age=SOON).sentence, len(inspection.online())
    told = numbers(queue) | {"sentence": sentence, "sessions": sessions, "seconds_in_state": spans}
    looks.append((time.monotonic(), told["transition"]))
    words = queue.parts.tasks.wording.spelled
    states = [(row["state"][0], row) for row in counted({**told, "tube": {}}, "state", "counts", words)]
    rows = [row | _rates(looks, state) | spans.get(state, {}) for state, row in states]
    lines = [f"{queue.name}   {sentence}; sessions: {sessions}", "", rows]
    if "error" in queue.roles and "B" in queue.machine.states:
        parts["failures"] = failures(queue, "state:buried", ROWS)
    parts["list"] = list_(queue, wanted, ROWS)
    for name, part in parts.items():
        told[name] = part.content
        lines += ["", *(part.lines or ())]
    return Answer(told, lines)
