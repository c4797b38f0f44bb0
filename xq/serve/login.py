"""How a request shows who sends it: a Bearer header, a cookie made from a token, a proxy, or the same machine."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.requests import Request

from xq.core.errors import BadType, BadValue, shown
from xq.serve.rights import ANYBODY, Caller

SHORTEST: Final = 16  # characters of a token: a shorter one could be guessed
LASTS: Final = 12 * 3600  # seconds for which a login is good
LONGEST: Final = 2_000  # characters of a header that is compared
CONSOLE: Final = "console"  # the name of a caller that has no other
IN_SCOPE: Final = "xq.verbs"  # in the scope: the verbs to which the application around a console restricts a caller
GRANTS: Final = "The application grants it (in Django: the permissions on the models), and the rights= of the console."

FromScope = Callable[[Mapping[str, Any]], str | None]


def is_loopback(host: str | None) -> bool:
    """Return whether an address or name is that of this machine itself."""
    if host == "localhost":
        return True
    try:
        return host is not None and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tokens_of(given: object) -> dict[str, str]:
    """Return tokens by name; one text is the token of "console". Raises BadType, BadValue."""
    if given is None:
        return {}
    named = {CONSOLE: given} if isinstance(given, str) else given
    if not isinstance(named, Mapping):
        raise BadType(f"token= is a text, or texts by the names of their users, not {type(named).__name__}")
    for name, token in named.items():
        if not isinstance(name, str) or not isinstance(token, str):
            raise BadType("token= is a text, or texts by the names of their users")
        if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
            raise BadValue(
                f"a token has at least {SHORTEST} printable characters without spaces: "
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
            )
        if not name or not name.isprintable() or len(name) > 100:
            raise BadValue(f"the name of a token is text of 1 to 100 characters, not {shown(name)}")
    if len(set(named.values())) < len(named):
        raise BadValue("two names have the same token: give each its own")
    return dict(named)


@dataclass(frozen=True)
class Login:
    """The tokens of a console, and what they prove."""

    tokens: Mapping[str, str]  # by name
    rights: Mapping[str, frozenset[str]]  # by name
    user: str | FromScope | None = None  # the header of a proxy, or a function of the ASGI scope
    proxies: frozenset[str] = frozenset()  # the addresses whose header is believed, besides this machine's

    def caller(self, request: Request) -> Caller | None:
        """Return who sends a request, or None if it must log in."""
        found, most = self._caller(request), request.scope.get(IN_SCOPE)
        return found if found is None or most is None else replace(found, verbs=found.verbs & most, grants=GRANTS)

    def _caller(self, request: Request) -> Caller | None:
        header = request.headers.get("authorization", "")
        if header[:7].lower() == "bearer ":
            return self._named(self.named_by(header[7:].strip()), "bearer")
        if name := self._user(request):
            return self._named(name, "user")
        if self.tokens:
            return self._named(self._of_cookie(request), "cookie")
        if self.user is None and request.client and is_loopback(request.client.host):
            return self._named(CONSOLE, "loopback")
        return None

    def _named(self, name: str | None, by: str) -> Caller | None:
        if name is None:
            return None
        return Caller(name, self.rights.get(name, self.rights.get(ANYBODY, frozenset())), by)

    def _user(self, request: Request) -> str | None:
        if self.user is None:
            return None
        if isinstance(self.user, str):
            name = request.headers.get(self.user) if self._is_of_a_proxy(request) else None
        else:
            name = self.user(request.scope)
        return name if name and name.isprintable() and len(name) <= 100 else None

    def _is_of_a_proxy(self, request: Request) -> bool:
        """Return whether a header is believed. A request without an address may come from anywhere."""
        address = request.client.host if request.client else None
        return is_loopback(address) or address in self.proxies

    def named_by(self, token: str) -> str | None:
        """Return the name of a token. It is compared with each of them, in a time that says nothing of them."""
        given, found = token[:LONGEST].encode("utf-8", "replace"), None
        for name, known in self.tokens.items():
            if hmac.compare_digest(given, known.encode()):
                found = name
        return found

    # the cookie: name, end and a signature by the token of that name. It never has the token itself.

    @property
    def cookie(self) -> str:
        """Returns the name of the cookie. Consoles on several ports of one host have several: ports share cookies."""
        keys = "\n".join(f"{name}\n{token}" for name, token in sorted(self.tokens.items()))
        return f"xq_{hmac.new(keys.encode(), b'the name of the cookie', hashlib.sha256).hexdigest()[:8]}"

    def cookie_for(self, name: str) -> str:
        """Return a cookie that proves a name for the next hours."""
        said = f"{name.encode().hex()}.{int(time.time()) + LASTS}"
        return f"{said}.{self._signature(name, said)}"

    def _signature(self, name: str, said: str) -> str:
        key = self.tokens.get(name, "")
        return hmac.new(key.encode(), f"xq console {said}".encode(), hashlib.sha256).hexdigest()

    def _of_cookie(self, request: Request) -> str | None:
        said, _, signature = request.cookies.get(self.cookie, "")[:LONGEST].rpartition(".")
        hexed, _, ends = said.partition(".")
        try:
            name, until = bytes.fromhex(hexed).decode(), int(ends)
        except ValueError:
            return None
        genuine = hmac.compare_digest(self._signature(name, said).encode(), signature.encode("utf-8", "replace"))
        return name if genuine and name in self.tokens and time.time() < until else None
