"""Commands for those who look on: transitions as they commit, a screen that is refreshed, reasons, what is wrong."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from typer import Option

from xq.cli.output import Answer, Text, json_text, lines_of, shown
from xq.cli.queues import pauses
from xq.cli.targets import AnyKey, Json, Key, Queue, Target, Wanted, connected, key_of
from xq.cli.tasks import by, described, exactly, key_text, spent, transition
from xq.cli.tasks import table as tasks
from xq.core.words import NAMES

PAUSE = 0.25  # seconds between two looks of tail
AT_ONCE = 1_000  # transitions that one look reads
LATE = 10_000  # ids below the newest one, of transactions that may still commit
SPAN = 10  # looks over which rates are computed
ROWS = 10  # tasks and errors that are shown

Looks = deque[tuple[float, Counter[str]]]  # when each was, and how often each transition had been made


def tail(
    target: Target,
    key: AnyKey = None,
    n: Annotated[int, Option("-n", min=0, help="Begin with this many of the last transitions.")] = 10,
    once: Annotated[bool, Option("--once", help="Do not wait for more.")] = False,
    json: Annotated[bool, Option("--json", help="Print a JSON document in each line.")] = False,
) -> None:
    """Follow the transitions of a queue, or of one task, as they commit. Needs the feature history."""
    with connected(target) as queue:
        for row in _transitions(queue, n, once, key_of(queue, key)):
            told = transition(queue, row)
            more = {name: told[name] for name in ("tube", "attempt")} | {"by": by(told)}
            line = f"{exactly(told['at'])} {key_text(told['key'])} {told['source']}-{told['target']} {told['event']}"
            line += "".join(f" {name}={shown(value)}" for name, value in more.items() if value)
            print(json_text(told, indent=None) if json else line, flush=True)


def _transitions(queue: Queue, n: int, once: bool, key: Any) -> Iterator[Any]:
    """Yield the last `n` transitions, of a task or of all, and those that follow.

    A transaction may commit after others with greater ids, so each look reads the last LATE ids again.
    """
    inspection = queue.adapter.inspection
    first = since = inspection.newest()
    yield from (earlier := inspection.last(n, key) if n else [])
    seen = {row.id for row in earlier}
    while True:
        for row in inspection.after(since, LATE + AT_ONCE):
            if row.id not in seen and (key is None or key_of(queue, row.key) == key):
                yield row
            seen.add(row.id)
        since = max([first, *(id - LATE for id in seen)])
        seen = {id for id in seen if id > since}
        if once:
            return
        time.sleep(PAUSE)


def why(queue: Queue, key: Key) -> Answer:
    """Print why a task is not running."""
    told = queue.why(key_of(queue, key))
    return Answer(told, told)


def doctor(queue: Queue) -> Answer:
    """Print what is wrong or slow, and what to do. It reads the whole table. Exits with 1 if anything is."""
    found = queue.doctor()
    wrong = any(not each.do.startswith("optional") for each in found)
    lines = ["\n  ".join([each.what, *each.do.splitlines()]) for each in found]
    return Answer([each._asdict() for each in found], lines, "" if found else "nothing is wrong", int(wrong))


# live


def top(
    target: Target,
    wanted: Wanted = "state:R",
    every: Annotated[float, Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, Option("--once", help="Look once, and end.")] = False,
    json: Json = False,
) -> None:
    """Show a queue live: numbers, rates, waits, and the first tasks of a filter. Ctrl-C ends it."""
    with connected(target) as queue:
        looks = Looks(maxlen=SPAN)
        if once or json or not sys.stdout.isatty():
            told = _look(queue, wanted, looks)
            return Answer(told, _screen(queue, told)).print(json)
        from rich.live import Live
        from rich.text import Text as Line

        with suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as live:
            while True:
                lines = lines_of(_screen(queue, _look(queue, wanted, looks)), live.console.width)
                live.update(Line("\n".join(lines)), refresh=True)
                time.sleep(every)


def _look(queue: Queue, wanted: str, looks: Looks) -> dict[str, Any]:
    """Return what top shows, with rates since the first of the last looks."""
    inspection = queue.adapter.inspection
    numbers, pauses, _, oldest, standstill = inspection.snapshot()
    looks.append((time.monotonic(), Counter(numbers.transition)))
    (began, first), (now, last) = looks[0], looks[-1]
    times = inspection.times() if queue.machine.settings.history is not None else {}
    failed = queue.failures("state:buried", ROWS) if "error" in queue.roles and "B" in queue.machine.states else []
    page = queue.find(wanted, ROWS)
    return {
        "counts": numbers.counts,
        "per_second": {name: (n - first[name]) / (now - began) for name, n in last.items() if now > began},
        "seconds_in_state": {
            name: {"p50": of[50].seconds, "p99": of[99].seconds, "exact": of[99].exact} for name, of in times.items()
        },
        "oldest_ready": oldest and oldest.seconds,
        "oldest_ready_exact": oldest and oldest.exact,
        "standstill": standstill,
        "sessions": len(inspection.online()),
        "paused": [pause.tube for pause in pauses],
        "errors": {group.title: group.count for group in failed},
        "filter": wanted,
        "tasks": [described(queue, *each) for each in zip(page.tasks, page.since, strict=True)],
    }


def _screen(queue: Queue, told: dict[str, Any]) -> Iterator[Any]:
    """Yield lines and tables."""
    from xq.operators.doctor import LONG
    from xq.operators.inspection import Age

    rates, age = told["per_second"], Age(told["oldest_ready"], told["oldest_ready_exact"])
    since = f"   oldest ready: {age}" if told["counts"]["R"] and age.exact is not None else ""
    since += f"   none taken for {spent(told['standstill'])}" if told["standstill"] >= LONG else ""
    paused = f"   paused: {pauses(told['paused'])}" if told["paused"] else ""
    yield f"{queue.name}   {told['sessions']} sessions{since}{paused}\n"

    def rate(*ends: str) -> str:
        found = [each for name, each in rates.items() if name.startswith(ends[0]) and name.endswith(ends[1])]
        return f"{sum(found):,.1f}" if rates else "–"  # one look knows no rates

    yield [
        {"state": f"{state} {NAMES.get(state, '')}", "tasks": n}
        | {"in/s": rate("", f"-{state}"), "out/s": rate(f"{state}-", "")}
        | {name: f"{Age(of[name], of['exact'])}" if of else "" for name in ("p50", "p99")}
        for state, n in told["counts"].items()
        for of in [told["seconds_in_state"].get(state)]
    ]
    if told["errors"]:
        yield ""
        yield [{"buried": n, "error": Text(error)} for error, n in told["errors"].items()]
    yield f"\n{told['filter']}"
    yield from tasks(queue, told["tasks"])
