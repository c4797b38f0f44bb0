"""Commands that go on: the queue as it changes, and its transitions as they commit."""

from __future__ import annotations

import json as parser
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xq.cli.keys import keys
from xq.cli.options import Json, Target
from xq.cli.output import document, plain, seconds, shown
from xq.cli.targets import key_of, queue
from xq.cli.tasks import described, filled, key_text, transition, transition_row
from xq.core.machine import READY
from xq.core.words import NAMES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xq.handle import Queue

PAUSE = 0.25  # seconds between two looks of tail
AT_ONCE = 1_000  # transitions that one look reads
LATE = 10_000  # transitions among which those of a transaction that committed later are looked for
SPAN = 10  # looks over which rates are computed
ROWS = 10  # tasks and errors that top shows


def tail(
    target: Target,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="the key of one task")] = None,
    n: Annotated[int, typer.Option("-n", min=0, help="Begin with this many of the last transitions.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="Do not wait for more.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON document in each line.")] = False,
) -> None:
    """Follow the transitions of a queue, or of one task, as they commit. Needs the feature history."""
    with queue(target) as found:
        for row in _transitions(found, n, once, None if key is None else key_of(found, key)):
            told = transition(row)
            if json:
                print(parser.dumps(plain(told), ensure_ascii=False))
            else:
                at, of, tube, source, into, event, attempt, _, by = transition_row(told)
                more = "".join(
                    f" {name}={shown(value)}"
                    for name, value in (("tube", tube), ("attempt", attempt), ("by", by))
                    if value
                )
                print(f"{at} {shown(of)} {source}-{into} {event}{more}")
            sys.stdout.flush()


def _transitions(found: Queue[Any], n: int, once: bool, key: Any) -> Iterator[Any]:
    """Yield the last `n` transitions, of a task or of all, and those that follow.

    A transaction may commit after others with greater ids.
    """
    inspection = found.adapter.inspection
    newest = inspection.newest()
    if key is not None:
        earlier = [row for row in found.history(key) if row.id <= newest]
        yield from earlier[max(0, len(earlier) - n) :]
    since, seen = newest if key is not None else max(0, newest - n), deque[int](maxlen=LATE)
    known = set[int]()
    while True:
        rows = inspection.after(max(since, (seen[0] if seen else since + 1) - 1), LATE + AT_ONCE)
        for row in rows:
            if row.id in known:
                continue
            if len(seen) == LATE:
                known.discard(seen[0])
            seen.append(row.id)
            known.add(row.id)
            if key is None or str(row.key) == str(key):
                yield row
        if once:
            return
        time.sleep(PAUSE)


def top(
    target: Target,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    json: Json = False,
) -> None:
    """Show a queue live: numbers, rates, waits, tasks. Keys: s or an arrow for another state, p to pause, q to end."""
    with queue(target) as found:
        look = _Look(found)
        if json or once or not sys.stdout.isatty():
            told = look.now(next(iter(found.machine.states)))
            if json:
                document(told)
            else:
                _print(_screen(found, told))
            return
        _live(found, look, every)


class _Look:
    """What top shows, with rates over the last looks."""

    def __init__(self, found: Queue[Any]) -> None:
        self._found = found
        self._before: deque[tuple[float, Counter[str]]] = deque(maxlen=SPAN)

    def now(self, state: str) -> dict[str, Any]:
        found, at = self._found, time.monotonic()
        stats = found.stats()
        times = Counter(stats.transition)
        self._before.append((at, times))
        began, first = self._before[0]
        span = at - began
        rates = {name: (n - first[name]) / span for name, n in times.items()} if span else {}
        keeps = found.machine.settings.history is not None
        times_in = found.adapter.inspection.times() if keeps else {}
        tasks = [described(found, each) for each in found.by_state(found.statuses[state], ROWS)]
        return {
            "counts": stats.counts,
            "per_second": rates,
            "seconds_in_state": {
                name: {f"p{at}": value for at, value in times_in[name].items()}
                for name in stats.counts
                if name in times_in
            },
            "oldest_ready": _oldest(found) if keeps and stats.counts[READY] else None,
            "sessions": len(found.adapter.inspection.online()),
            "paused": found.paused(),
            "errors": _errors(found),
            "state": state,
            "tasks": tasks,
        }


def _oldest(found: Queue[Any]) -> float | None:
    """Return for how many seconds the next task has been ready; None if the history does not say."""
    tasks = found.find(f"state:{READY}", 1).tasks
    return found.adapter.inspection.time_in(READY, tasks[0]) if tasks else None


def _errors(found: Queue[Any]) -> dict[str, int]:
    """Return the largest groups of buried tasks, by what their errors have in common, and their sizes."""
    if "error" not in found.roles or "B" not in found.machine.states:
        return {}
    return {group.title: group.count for group in found.failures("state:buried", ROWS)}


def _screen(found: Queue[Any], told: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def grid(*columns: str) -> Table:
        made = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            made.add_column(
                column, justify="left" if column in ("", "task", "error", "state") else "right", no_wrap=True
            )
        return made

    rates: dict[str, float] = told["per_second"]
    states = grid("state", "", "tasks", "in/s", "out/s", "p50", "p99")
    for state, n in told["counts"].items():
        into = sum(rate for name, rate in rates.items() if name.endswith(f"-{state}"))
        out = sum(rate for name, rate in rates.items() if name.startswith(f"{state}-"))
        spent = told["seconds_in_state"].get(state, {})
        marked = Text(state, style="bold reverse" if state == told["state"] else "bold")
        per_second = [f"{rate:,.1f}" if rates else "–" for rate in (into, out)]  # one look knows no rates
        cells = [f"{n:,}", *per_second, seconds(spent.get("p50")), seconds(spent.get("p99"))]
        states.add_row(marked, NAMES.get(state, ""), *cells)
    paused = ", ".join("the queue" if tube is None else tube for tube in told["paused"])
    oldest = "" if told["oldest_ready"] is None else f"   oldest ready: {seconds(told['oldest_ready'])}"
    title = f"{found.name}   {told['sessions']} sessions{oldest}{f'   paused: {paused}' if paused else ''}"
    parts: list[RenderableType] = [Text(title, style="bold"), Text(), states]
    if told["errors"]:
        errors = grid("buried", "error")
        for line, n in told["errors"].items():
            errors.add_row(f"{n:,}", Text(shown(line), overflow="ellipsis", no_wrap=True))
        parts += [Text(), errors]
    tasks = grid("task", "")
    for each in told["tasks"]:
        fields = " ".join(f"{name}={shown(value)}" for name, value in filled(found, each).items())
        tasks.add_row(shown(key_text(each["key"])), Text(fields, overflow="ellipsis", no_wrap=True))
    return Group(*parts, Text(), Text(f"in {told['state']}, the next ones first", style="bold"), tasks)


def _print(screen: RenderableType) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(screen)


def _live(found: Queue[Any], look: _Look, every: float) -> None:
    from rich.live import Live

    states = list(found.machine.states)
    place, paused = 0, False
    with keys() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            if not paused:
                live.update(_screen(found, look.now(states[place])), refresh=True)
            key = pressed(every)
            if key == "q":
                return
            if key == "p":
                paused = not paused
            elif key in ("s", "right", "down"):
                place = (place + 1) % len(states)
            elif key in ("left", "up"):
                place = (place - 1) % len(states)


COMMANDS: dict[str, Callable[..., None]] = {"top": top, "tail": tail}
