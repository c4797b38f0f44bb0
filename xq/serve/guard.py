"""The guard before every answer of the console: hosts, logins, requests from other sites, and headers."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from xq.core.errors import BadType, shown
from xq.serve.login import Login, is_loopback
from xq.serve.rights import Caller, Refusal

log = logging.getLogger("xq.serve")

SAFE: Final = frozenset({"GET", "HEAD"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-store",
    "Vary": "Cookie, Authorization",
}

Answer = Callable[[Request, Caller | None], Awaitable[Response]]
OnRefusal = Callable[[Request, Caller | None, Refusal], Response]


def hosts_of(given: object) -> frozenset[str]:
    """Return the names that the Host header may have. Raises BadType."""
    if given is None:
        return frozenset()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadType(f"hosts= is a list of names, as ['queues.example.org'], not {shown(given)}")
    names = list(given)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise BadType(f"hosts= has names, not {shown(wrong[0])}")
    return frozenset(name.lower() for name in names)


def name_in(host: str) -> str:
    """Return the name of a Host header without its port; "" if it has none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Guard:
    """An ASGI application that passes a request on, or refuses it: by its host, its caller and its origin."""

    login: Login
    hosts: frozenset[str]
    is_open: Callable[[str, str], bool]  # whether a method and a path need no login
    answer: Answer
    refused: OnRefusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._response(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        caller: Caller | None = None
        try:
            self._check_host(request)
            caller = self.login.caller(request)
            if caller is None and not self.is_open(request.method, path_of(request)):
                raise Refusal(401, self._how())
            self._check_origin(request, caller)
            return await self.answer(request, caller)
        except Refusal as refusal:
            return self.refused(request, caller, refusal)
        except Exception:
            log.exception("the console failed to answer %s %s", request.method, path_of(request))
            return self.refused(request, caller, Refusal(500, "The console failed. Its log has the traceback."))

    def _how(self) -> str:
        if self.login.tokens:
            return "Log in, or send the token in an Authorization: Bearer header."
        if self.login.user is not None:
            return "The application or proxy before this console named no user."
        return "This console has no token, so it answers only this machine itself. Start it with a token (XQ_TOKEN)."

    def _check_host(self, request: Request) -> None:
        """Refuse a name that is not this console's: another site may have made it lead here (DNS rebinding)."""
        name = name_in(request.headers.get("host", ""))
        if "*" in self.hosts or name in self.hosts or is_loopback(name):
            return
        if any(each.startswith(".") and name.endswith(each) for each in self.hosts):
            return
        if is_address(name) and (self.login.tokens or self.login.user is not None):
            return  # no name leads there
        raise Refusal(400, f"This console is not called {name or 'so'}. Name its hosts: hosts=[...], or --allow-host.")

    @staticmethod
    def _check_origin(request: Request, caller: Caller | None) -> None:
        """Refuse a change that another site may have sent. A browser adds no Bearer header by itself."""
        if request.method in SAFE or (caller is not None and caller.by == "bearer"):
            return
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            if site == "same-origin":
                return
            raise Refusal(403, "Another site sent this request, so nothing was changed. Use the console's own pages.")
        try:
            origin = urlsplit(request.headers.get("origin", "")).netloc
        except ValueError:
            origin = ""
        if not origin or origin.lower() != request.headers.get("host", "").lower():
            raise Refusal(
                403,
                "The request does not say that a page of this console sent it (Sec-Fetch-Site, Origin), so nothing was "
                "changed. A program sends the token in an Authorization: Bearer header.",
            )


def path_of(request: Request) -> str:
    """Return the path below the place where the console is mounted."""
    path, root = str(request.scope["path"]), str(request.scope.get("root_path", ""))
    inner = path[len(root) :] if root and path.startswith(root) else path
    return inner or "/"
