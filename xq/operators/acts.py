"""What operators do to tasks: the table for `Queue.act`, the command line, the console and Django's admin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from xq.core.errors import BadValue, shown

if TYPE_CHECKING:
    from xq.core.machine import Machine


@dataclass(frozen=True, slots=True)
class Act:
    """What an operator does to one task, or to all that a filter shows. It takes tasks from any session."""

    name: str
    event: str  # the machine's
    done: str
    help: str  # of its command, and on the pages that ask
    # What may become of people's work: then each way to do it asks, also about one task.
    risk: Literal["", "lost", "repeated", "deleted"] = ""
    option: str = ""  # the number that it needs

    @property
    def destroys(self) -> bool:
        """Whether it deletes rows, so it needs the role admin, or the right to delete."""
        return self.risk == "deleted"

    def moves(self, machine: Machine, states: Iterable[str]) -> bool:
        """Return whether an operator may do it to tasks in one of these states: a bury may be the owner's alone."""
        return self.event not in machine.fenced and not set(machine.sources(self.event)).isdisjoint(states)

    def options(self, text: str) -> dict[str, float]:
        """Return the option that it needs, by a number as text. Raises BadValue."""
        if not self.option:
            return {}
        try:
            return {self.option: int(text) if text.strip("+- ").isdecimal() else float(text)}
        except ValueError:
            raise BadValue(f"{self.name} needs a number as {self.option}, not {shown(text)}") from None


_ACTS: Final = (
    Act("dig", "dig", "dug", "Make buried tasks ready again."),
    Act("release", "snatch", "released", "Take tasks from workers, whose begun work may be done twice.", "lost"),
    Act("restart", "restart", "restarted", "Make waiting and finished tasks ready: these are done again.", "repeated"),
    Act("bury", "bury", "buried", 'Bury tasks until they are dug. Needs the feature buried="any".'),
    Act(
        "reprioritise",
        "reprioritise",
        "reprioritised",
        "Change ready and waiting tasks' priority.",
        "",
        "priority",
    ),
    Act("cancel", "cancel", "cancelled", "Delete unfinished tasks, and ask their workers to stop.", "deleted"),
    Act("kill", "kill", "killed", "Delete tasks, in whatever state they are.", "deleted"),
)
ACTS: Final[Mapping[str, Act]] = {act.name: act for act in _ACTS}
