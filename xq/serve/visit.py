"""One request: its caller, its queue, and its parameters, each of which is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from xq.handle import Queue
from xq.serve.entries import Entry
from xq.serve.login import CONSOLE, Caller

MOST: Final = 500  # parameters of a request
LONGEST_QUERY: Final = 24_000  # characters
LONGEST_BODY: Final = 512_000  # bytes
FORM: Final = "application/x-www-form-urlencoded"
# By parameter: the most characters that it may have. Any other is ignored.
LENGTHS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("filter", "key", "keys", "token", "next"), 2_000),
    **dict.fromkeys(("tube", "reason", "sure"), 500),
    **dict.fromkeys(("back", "n", "scope", "span", "verb"), 20),
    "after": 16_000,  # a cursor of find
}


@dataclass(frozen=True)
class Visit:
    """A request that passed the guard. Its parameters are those of the form, and of the address."""

    request: Request
    caller: Caller | None
    parameters: Mapping[str, list[str]] = field(default_factory=dict)
    of: Entry | None = None  # the queue of the page
    number: int = 0  # the part of the path that is one

    @property
    def root(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def path(self) -> str:
        """The path below the place where the console is mounted."""
        return str(self.request.scope["path"]).removeprefix(self.root) or "/"

    @property
    def entry(self) -> Entry:
        if self.of is None:
            raise HTTPException(404, "This page has no queue.")
        return self.of

    @property
    def queue(self) -> Queue[Any]:
        return self.entry.queue

    @property
    def actor(self) -> str:
        """The name of the caller, for the history."""
        return self.caller.name if self.caller else CONSOLE

    @property
    def filter(self) -> str:
        return self.text("filter").strip()

    def text(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, [default])[-1]


async def parameters_of(request: Request) -> dict[str, list[str]]:
    """Return the parameters of the form and of the address. Raises HTTPException for those that are too long."""
    query, body = request.scope.get("query_string", b""), bytearray()
    if len(query) > LONGEST_QUERY:
        raise HTTPException(414, "The address is too long. Shorten the filter.")
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, "The request is too long. Select fewer tasks, or use a filter.")
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, f"A form of this console is {FORM}.")
    found = dict[str, list[str]]()
    for given in (QueryParams(body.decode("utf-8", "replace")), QueryParams(query)):  # the form counts more
        if len(given.multi_items()) > MOST:
            raise HTTPException(400, f"More than {MOST} parameters: select fewer tasks, or use a filter.")
        for name in set(LENGTHS).intersection(given).difference(found):
            found[name] = [value.replace("\0", "\N{REPLACEMENT CHARACTER}") for value in given.getlist(name)]
            if max(map(len, found[name])) > LENGTHS[name]:
                raise HTTPException(400, f"{name} is longer than {LENGTHS[name]:,} characters. Shorten it.")
    return found
