"""docs/images/life.svg: the life of a task. Places are data; states, arrows and events are those of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from xq.core.machine import ABSENT, NAMES, Machine, Transition
from xq.upgrading.registry import compose

FEATURES: Mapping[str, Any] = {"delayed": True, "buried": True, "ttr": 60}
ENDS = ("keep", "zombie")  # what becomes of an acked task: a queue has one of the two, or deletes it
QUEUES = tuple(
    Machine(compose({**FEATURES, **dict.fromkeys(ends, True)}), ("status", "runat")) for ends in ((), *zip(ENDS))
)
ANYWHERE = ("kill", "switch")  # events that leave many states: a line below the picture has them

WIDTH, HEIGHT = 1000, 500
BOX = (66, 30)  # half of the width and of the height of a state
PUT, GONE, DELAYED = (56, 240), (948, 240), (104, 76)
PLACES = {"R": (250, 240), "T": (574, 240), "W": (250, 76), "B": (400, 400), "D": (800, 126), "Z": (800, 354)}
# How far the middle of an arrow stands from the straight line, to the left of its direction; and where its words are.
BENDS = {
    ("R", "T", False): 34, ("T", "R", False): 0, ("T", "R", True): 34,
    ("W", "R", False): -36, ("W", "R", True): 24, ("D", "R", False): -96, ("Z", "R", False): 44,
}  # fmt: skip
STYLE = """
svg { color-scheme: light dark; font: 15px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.paper { fill: #ffffff; } .box { fill: #eef2f8; stroke: #3b6fb6; stroke-width: 1.5; }
.name { fill: #1a1d23; font-weight: 600; text-anchor: middle; }
.word { fill: #1a1d23; text-anchor: middle; paint-order: stroke; stroke: #ffffff; stroke-width: 6; }
.note { fill: #5b6472; } .soft { fill: #5b6472; }
.arrow { fill: none; stroke: #5b6472; stroke-width: 1.5; } .head { fill: #5b6472; }
.timer { stroke-dasharray: 6 5; } .dot { fill: #5b6472; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14161a; } .box { fill: #1f2733; stroke: #82b4f2; }
  .name { fill: #e4e7ec; } .word { fill: #e4e7ec; stroke: #14161a; }
  .note, .soft, .head, .dot { fill: #98a1b0; } .arrow { stroke: #98a1b0; }
}
"""


class Arrow(NamedTuple):
    """What leads from one state to another: events that a program calls, or a timer."""

    source: str
    target: str
    is_timer: bool


def life() -> str:
    """docs/images/life.svg"""
    parts = [*_arrows(), *_delays(), *_states(), *_notes()]
    told = "The life of a task: its states as boxes, what calls and timers do as arrows."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">',
            "<!-- Written by docs/generate.py (make docs) from the code: do not edit. -->",
            f"<style>{STYLE}</style>",
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="head" d="M0,1 L10,5 L0,9 z"/></marker>',
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _rows() -> list[Transition]:
    return list(dict.fromkeys(row for machine in QUEUES for row in machine.rows))


def _is_detour(row: Transition) -> bool:
    return any(row.given == detour.option and row.target == detour.via for detour in QUEUES[0].detours)


def events() -> dict[Arrow, list[str]]:
    """Return the arrows, and the names of their events. An event that may take a delay has a star."""
    found: dict[Arrow, list[str]] = {}
    delayed = {(row.source, row.event) for row in _rows() if _is_detour(row)}
    for row in _rows():
        if row.event not in ANYWHERE and not _is_detour(row):
            name = f"{row.event} ({row.by})" if row.by in ENDS and not row.due else row.event
            star = "*" * ((row.source, row.event) in delayed and row.target == "R" and not row.due)
            names = found.setdefault(Arrow(row.source, row.target, bool(row.due)), [])
            if name + star not in names:
                names.append(name + star)
    return found


def _arrows() -> Iterator[str]:
    for arrow, names in events().items():
        start = PUT if arrow.source == ABSENT else _place(arrow.source)
        end = GONE if arrow.target == ABSENT else _place(arrow.target)
        if start == end:
            x, y = start[0], start[1] - BOX[1]
            yield _path(f"M{x - 20},{y} C{x - 34},{y - 46} {x + 34},{y - 46} {x + 20},{y - 3}", arrow.is_timer)
            yield _word(x, y - 46, ", ".join(names))
        else:
            yield from _arrow(start, end, BENDS.get(arrow, 0), arrow.is_timer, ", ".join(names))


def _arrow(start: tuple[int, int], end: tuple[int, int], bend: float, is_timer: bool, words: str) -> Iterator[str]:
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    left = ((y2 - y1) / length, -(x2 - x1) / length)
    control = ((x1 + x2) / 2 + 2 * bend * left[0], (y1 + y2) / 2 + 2 * bend * left[1])
    begin, stop = _edge(start, control, bend), _edge(end, control, -bend)
    middle = tuple(0.25 * a + 0.5 * c + 0.25 * b for a, c, b in zip(begin, control, stop, strict=True))
    points = [f"{x:.0f},{y:.0f}" for x, y in (begin, control, stop)]
    yield _path(f"M{points[0]} Q{points[1]} {points[2]}", is_timer)
    yield _word(middle[0], middle[1] + 5, words)


def _edge(place: tuple[int, int], towards: tuple[float, float], bend: float) -> tuple[float, float]:
    """Return where a line from the middle of a state, or of a dot, leaves it."""
    half = BOX if place in PLACES.values() else (9, 9)
    dx, dy = towards[0] - place[0], towards[1] - place[1]
    share = min(half[0] / abs(dx) if dx else 9e9, half[1] / abs(dy) if dy else 9e9)
    return place[0] + dx * share, place[1] + dy * share


def _delays() -> Iterator[str]:
    """Yield the arrow into the state of a delay, with a star for the events that may lead there."""
    for detour in QUEUES[0].detours:
        yield from _arrow(DELAYED, _place(detour.via), 0, False, "")
        yield f'<text class="word" x="{DELAYED[0] - 14}" y="{DELAYED[1] + 5}">* with {detour.option}=</text>'


def _states() -> Iterator[str]:
    states = dict.fromkeys(state for machine in QUEUES for state in machine.states)
    for state in states:
        x, y = _place(state)
        yield f'<rect class="box" x="{x - BOX[0]}" y="{y - BOX[1]}" width="{2 * BOX[0]}" height="{2 * BOX[1]}" rx="9"/>'
        yield f'<text class="name" x="{x}" y="{y + 5}">{state} {NAMES[state].lower()}</text>'
    for x, y in (PUT, GONE):
        yield f'<circle class="dot" cx="{x}" cy="{y}" r="6"/>'
        yield f'<text class="word soft" x="{x}" y="{y - 16}">no row</text>'


def _place(state: str) -> tuple[int, int]:
    if state not in PLACES:
        raise SystemExit(f"docs/life.py: the state {state} needs a place in the picture")
    return PLACES[state]


def _notes() -> Iterator[str]:
    lines = ["Dashed: a timer does it, when its time has passed."]
    for event in ANYWHERE:
        rows = [row for row in _rows() if row.event == event and not _is_detour(row)]
        sources = " ".join(dict.fromkeys(row.source for row in rows))
        targets = ", ".join(dict.fromkeys("no row" if row.target == ABSENT else row.target for row in rows))
        lines.append(f"{event}: from {sources} to {targets}.")
    for number, line in enumerate(lines):
        yield f'<text class="note" x="600" y="{HEIGHT - 62 + 22 * number}">{escape(line)}</text>'


def _path(path: str, is_timer: bool) -> str:
    return f'<path class="arrow{" timer" * is_timer}" d="{path}" marker-end="url(#head)"/>'


def _word(x: float, y: float, words: str) -> str:
    return f'<text class="word" x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>' if words else ""
