"""Errors of the same kind: the same class and message, but for numbers, identifiers and quoted texts."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """The first line of an error, and the group that it belongs to."""

    error: str
    message: str
    example: str

    @property
    def id(self) -> str:
        return hashlib.blake2b(f"{self.error}\0{self.message}".encode(), digest_size=6).hexdigest()


CLASS = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: ?|$)")
# Each alternative is bounded or has one loop, and the text is short: a hostile error costs no time.
VARYING = re.compile(
    r"(?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<text>(?<!\w)'[^']{0,500}'|\"[^\"]{0,500}\"|(?<!\w)`[^`]{0,500}`)"
    r"|(?P<hex>\b0[xX][0-9a-fA-F]+\b|\b(?=[a-fA-F]{0,40}[0-9])[0-9a-fA-F]{8,}\b)"
    r"|(?P<n>\d+(?:[.,:]\d+)*)"
)


def failure_of(error: str | None) -> Failure:
    """Return the group of an error, which a worker writes as `Type: message` and the traceback."""
    line = str(error or "").strip().partition("\n")[0].strip()
    found = CLASS.match(line)
    kind, message = (found[1], line[found.end() :]) if found else ("", line)
    varied = VARYING.sub(lambda part: f"<{part.lastgroup}>", message)
    return Failure(kind, varied, line)
