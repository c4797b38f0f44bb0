"""Group errors by their function, class and message, but for numbers, identifiers and quoted texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Failure(NamedTuple):
    """An error's first line, and the group to which it belongs."""

    id: str
    error: str
    message: str
    example: str
    function: str


@dataclass(frozen=True)
class FailureGroup:
    """Tasks whose errors have the same class and the same message, but for numbers, identifiers and quoted texts.

    Those of django.tasks also have the same function.

    `filter` selects them again. `first` and `last` are times in seconds since 1970, as `since` in `Found`.
    """

    id: str
    error: str  # the error's class
    message: str  # with <n>, <hex>, <uuid> and <text> in the place of what varies
    example: str  # one task's error
    function: str  # the path of what they run; "" if tasks of this queue do not say it
    key: Any  # that task's, of which the example is
    count: int
    states: Mapping[str, int]
    first: float | None
    last: float | None
    filter: str

    @property
    def title(self) -> str:
        """The class and the message in one line."""
        return ": ".join(filter(None, [self.error, self.message]))


class Failures(list[FailureGroup]):
    """The largest groups. `looked` and `ended` as in `Found`: if the call has not ended, a count is a lower bound."""

    looked: int = 0
    ended: bool = True


CLASS = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: ?|$)")
# Each alternative is bounded or has one loop, and the text is short: a hostile error costs no time.
VARYING = re.compile(
    r"(?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<text>(?<!\w)'[^']{0,500}'|\"[^\"]{0,500}\"|(?<!\w)`[^`]{0,500}`)"
    r"|(?P<hex>\b0[xX][0-9a-fA-F]+\b|\b(?=[a-fA-F]{0,40}[0-9])[0-9a-fA-F]{8,}\b)"
    r"|(?P<n>\d+(?:[.,:]\d+)*)"
)


def failure_of(error: str | None, function: str | None = None) -> Failure:
    """Return an error's group. A worker writes an error as `Type: message` and the traceback."""
    line = str(error or "").strip().partition("\n")[0].strip()
    found = CLASS.match(line)
    kind, message = (found[1], line[found.end() :]) if found else ("", line)
    varied = VARYING.sub(lambda part: f"<{part.lastgroup}>", message)
    digest = hashlib.blake2b("\0".join([kind, varied, *filter(None, [function])]).encode(), digest_size=6)
    return Failure(digest.hexdigest(), kind, varied, line, function or "")
