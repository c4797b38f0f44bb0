"""The verbs of the console, and the roles that may use them: one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from xq.core.errors import BadType, BadValue, shown

VIEW: Final = "view"
VERBS: Final = (VIEW, "dig", "release", "restart", "bury", "pause", "resume", "kill")
"""What a user of the console may do."""
ANYBODY: Final = "*"  # the name under which `rights` has those that it does not name

ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "viewer": frozenset({VIEW}),
        "operator": frozenset(VERBS) - {"kill"},
        "admin": frozenset(VERBS),
    }
)
"""The verbs of each role."""

Given = str | Iterable[str]  # a role, or verbs


@dataclass(frozen=True)
class Caller:
    """A person or a program that is logged in."""

    name: str
    verbs: frozenset[str]
    by: str  # "bearer", "cookie", "user" or "loopback"
    grants: str = "The rights= of the console grant it."  # who gives a verb that this caller lacks


@dataclass(frozen=True)
class Refusal(Exception):
    """Ends a request with an error page: the status, and a sentence that says what to do."""

    status: int
    sentence: str


def verbs_of(given: object) -> frozenset[str]:
    """Return the verbs of a role, or those that are listed, to which `view` is added. Raises BadType and BadValue."""
    if isinstance(given, str):
        if given not in ROLES:
            raise BadValue(f"a role of the console is {', '.join(ROLES)}, not {shown(given)}")
        return ROLES[given]
    if not isinstance(given, Iterable):
        raise BadType(f"rights are a role ({', '.join(ROLES)}) or verbs ({', '.join(VERBS)}), not {shown(given)}")
    listed = list(given)
    if wrong := [verb for verb in listed if verb not in VERBS]:
        raise BadValue(f"a verb of the console is {', '.join(VERBS)}, not {shown(wrong[0])}")
    return frozenset({VIEW, *listed})


def rights_of(given: Any) -> dict[str, frozenset[str]]:
    """Return verbs by name. One role, or one list of verbs, is that of everybody. Raises BadType and BadValue."""
    if not isinstance(given, Mapping):
        return {ANYBODY: verbs_of(given)}
    for name in given:
        if not isinstance(name, str):
            raise BadType(f"rights= has rights by name, not by {shown(name)}")
    return {name: verbs_of(each) for name, each in given.items()}


def permit(caller: Caller, verb: str, *, read_only: bool = False) -> None:
    """Raise Refusal unless the caller may use a verb. The only place where the console decides that."""
    if verb not in caller.verbs:
        raise Refusal(403, f"{caller.name} has no right to {verb}. {caller.grants}")
    if read_only and verb != VIEW:
        raise Refusal(403, f"This console is read-only, so it does not {verb}. Start it without read_only.")
