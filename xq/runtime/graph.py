"""The members of a group and what they wait for: as text for Mermaid, and as a drawing in layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from xq.core.errors import shown
from xq.core.kinds import Row
from xq.core.machine import ABSENT
from xq.core.values import Key, Tasks

MOST: Final = 500  # nodes


class Graph(NamedTuple):
    """Tasks and links: from a parent to its dependant, until the dependant is released."""

    nodes: dict[Key, tuple[str, str]]  # by key: the key as text, and the task's state, X for one that is gone
    links: list[tuple[Key, Key]]
    more: bool  # whether tasks were left out

    def layers(self) -> list[list[Key]]:
        """Return the keys in layers: each task below its parents."""
        depth = dict.fromkeys(self.nodes, 0)
        for _ in self.nodes:
            deeper = {
                dependant: depth[parent] + 1 for parent, dependant in self.links if depth[dependant] <= depth[parent]
            }
            if not deeper:
                break
            depth |= deeper
        return [[key for key in depth if depth[key] == layer] for layer in range(max(depth.values(), default=-1) + 1)]

    def mermaid(self, tasks: Tasks[Any]) -> str:
        numbers = {key: i for i, key in enumerate(self.nodes)}
        lines = ["graph TD", *[f"    %% the first {MOST} members"] * self.more]
        for key, (text, state) in self.nodes.items():
            word = "gone" if state == ABSENT else tasks.wording.state(state)
            label = f"{text} {word}".replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
            lines.append(f'    t{numbers[key]}["{label}"]')
        links = sorted((numbers[parent], numbers[dependant]) for parent, dependant in self.links)
        return "\n".join([*lines, *(f"    t{parent} --> t{dependant}" for parent, dependant in links)])


def graph_of(tasks: Tasks[Any], members: Sequence[Row], links: Iterable[Row]) -> Graph:
    """Return the graph of members, each with its state, and of links: parent, dependant, ..., the parent's state."""
    wide = len(tasks.table.key)
    nodes = {tuple(row[:wide]): row[wide] for row in members[:MOST]}
    found = []
    for row in links:
        parent, dependant = tuple(row[:wide]), tuple(row[wide : 2 * wide])
        if dependant in nodes and (parent in nodes or len(nodes) < MOST):
            nodes.setdefault(parent, row[-1])  # a parent that is no member, or gone
            found.append((parent, dependant))
    return Graph({key: (shown(tasks.app_key(key)), state) for key, state in nodes.items()}, found, len(members) > MOST)
