"""One request: its caller, its queue, and its parameters, each of which is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from xq.serve.entries import Entry
from xq.serve.guard import path_of
from xq.serve.rights import Caller, Refusal

MOST: Final = 500  # parameters of a request
LONGEST_QUERY: Final = 24_000  # characters
LONGEST_BODY: Final = 512_000  # bytes

# By parameter: the most characters that it may have. Any other is ignored.
LENGTHS: Final[Mapping[str, int]] = {
    "filter": 2_000,  # as of a filter
    "after": 16_000,  # a cursor of find
    "back": 1,
    "n": 4,
    "key": 2_000,
    "keys": 2_000,
    "scope": 8,
    "verb": 20,
    "tube": 255,
    "reason": 500,
    "delay": 20,
    "token": 2_000,
    "next": 2_000,
    "queue": 100,
    "sure": 255,  # as long as the name of a tube
    "once": 40,
    "span": 8,
}


@dataclass(frozen=True)
class Visit:
    """A request that passed the guard."""

    request: Request
    caller: Caller | None
    query: Mapping[str, list[str]] = field(default_factory=dict)
    form: Mapping[str, list[str]] = field(default_factory=dict)
    entry: Entry | None = None
    number: int = 0  # the part of the path that is one

    @property
    def path(self) -> str:
        return path_of(self.request)

    @property
    def root(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def queue(self) -> Entry:
        if self.entry is None:
            raise Refusal(404, "This page has no queue.")
        return self.entry

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the form, else of the query string."""
        found = self.form.get(name) or self.query.get(name) or [default]
        return found[-1]

    def texts(self, name: str) -> list[str]:
        return self.form.get(name) or self.query.get(name) or []

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name)
        return min(most, max(least, int(text))) if text.isascii() and text.isdigit() else default


def bounded(text: str) -> dict[str, list[str]]:
    """Return the parameters of a query string or a form. Raises Refusal for one that is too long."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MOST)
    except ValueError:
        raise Refusal(
            400, f"The request has more than {MOST} parameters. Select fewer tasks, or use a filter."
        ) from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in LENGTHS:
            continue
        if len(value) > LENGTHS[name]:
            raise Refusal(400, f"The parameter {name} is longer than {LENGTHS[name]:,} characters. Shorten it.")
        found.setdefault(name, []).append(value.replace("\0", "\N{REPLACEMENT CHARACTER}"))
    return found


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return the parameters of a form. Raises Refusal if it is too long, or of another kind."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise Refusal(413, "The request is too long. Select fewer tasks, or use a filter.")
    if not body:
        return {}
    if kind != "application/x-www-form-urlencoded":
        raise Refusal(415, "A form of this console is application/x-www-form-urlencoded.")
    return bounded(body.decode("utf-8", "replace"))


def query_of(request: Request) -> dict[str, list[str]]:
    raw = request.scope.get("query_string", b"")
    if len(raw) > LONGEST_QUERY:
        raise Refusal(414, "The address is too long. Shorten the filter.")
    return bounded(raw.decode("latin-1"))
