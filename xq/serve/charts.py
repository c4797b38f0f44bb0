"""Charts as SVG, drawn here: a browser gets no data and no library. Their colours are classes of the style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from xq.serve.texts import number, span, state

WIDTH: Final = 1000.0  # units of a bar, which is as wide as its place
LEAST: Final = 6.0  # units of the shortest part of a bar: it must be seen
ORDER: Final = "RTWBZD"
AREA: Final = "out"  # the line whose area is filled

Rates = Sequence[float | None]  # one for each bucket of time; None where it is not known


def spark(lines: Sequence[tuple[str, Rates]], width: int = 180, height: int = 36) -> Markup:
    """Return small lines over time on one scale, each (class, rates). The last bucket is still open: it is dashed."""
    most = max((rate for _, rates in lines for rate in rates if rate is not None), default=0.0)
    label = f"up to {number(most)} tasks a second" if most else "nothing has moved"
    drawn = [f'<path class="base" d="M0 {height - 1.5}H{width}"/>']
    for name, rates in lines if most else ():
        drawn += _line(name, _points(rates, most, width, height), height)
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(width, height, label, label, Markup("".join(drawn)))


Points = list[tuple[float, float] | None]


def _points(rates: Rates, most: float, width: int, height: int) -> Points:
    step = width / max(1, len(rates) - 1)
    return [
        None if rate is None else (place * step, height - 2 - (height - 6) * rate / most)
        for place, rate in enumerate(rates)
    ]


def _line(name: str, points: Points, height: int) -> Iterator[str]:
    for run in _runs(points[:-1]):
        drawn = " ".join(f"{x:.1f} {y:.1f}" for x, y in run)
        if name == AREA:
            first, last, floor = run[0][0], run[-1][0], height - 2
            yield f'<path class="area" d="M{first:.1f} {floor}L{drawn}L{last:.1f} {floor}Z"/>'
        yield f'<path class="line {name}" d="M{drawn}"/>'
    before, last_point = (points[-2], points[-1]) if len(points) > 1 else (None, None)
    if before and last_point:
        (x, y), (to_x, to_y) = before, last_point
        yield f'<path class="line {name} open" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Return the runs of points between gaps."""
    found: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            found.append([])
        else:
            found[-1].append(point)
    return [run for run in found if run]


def columns(kind: str, numbers: Sequence[tuple[int, str]], height: int = 48) -> Markup:
    """Return columns over time on one scale, each (number, title), in the colour of a state."""
    most = max((n for n, _ in numbers), default=0)
    label = f"at most {number(most)} in a column" if most else "none"
    drawn = [Markup('<path class="base" d="M0 {}H{}"/>').format(height - 0.5, 4 * len(numbers))]
    for place, (n, title) in enumerate(numbers):
        if n:
            tall = max(LEAST / 4, (height - 2) * n / most)
            drawn.append(
                Markup('<rect class="s-{}" x="{}" y="{}" width="3" height="{}"><title>{}</title></rect>').format(
                    kind, 4 * place, f"{height - 1 - tall:.1f}", f"{tall:.1f}", title
                )
            )
    return Markup(
        '<svg class="bars" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(4 * len(numbers), height, label, Markup("").join(drawn))


def bar(parts: Sequence[tuple[str, float, str]]) -> Markup:
    """Return one bar of parts, each (state, size, title). Short parts are as wide as can be seen."""
    total = sum(size for _, size, _ in parts)
    if not total:
        return Markup('<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true"></svg>')
    widths = [max(LEAST, WIDTH * size / total) if size else 0.0 for _, size, _ in parts]
    scale = WIDTH / sum(widths)
    drawn, x = [], 0.0
    for (letter, _, title), width in zip(parts, widths):
        if width:
            drawn.append(
                Markup('<rect class="s-{}" x="{}" width="{}" height="10"><title>{}</title></rect>').format(
                    known(letter), f"{x:.2f}", f"{width * scale:.2f}", title
                )
            )
            x += width * scale
    return Markup('<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img">{}</svg>').format(
        Markup("").join(drawn)
    )


def known(letter: str | None) -> str:
    """Return the letter of a state that has a colour; "other" for those of the application's own features."""
    return letter if letter and letter in f"{ORDER}X" else "other"


def of_counts(counts: dict[str, int]) -> Markup:
    """Return a bar of the tasks in each state."""
    return bar([(letter, n, f"{n:,} {state(letter)}") for letter, n in counts.items()])


def of_steps(steps: Sequence[tuple[str, float]]) -> Markup:
    """Return a bar of the time that a task was in each state."""
    return bar([(letter, seconds, f"{state(letter)} for {span(seconds)}") for letter, seconds in steps])
