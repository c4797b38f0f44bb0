"""One request: who sends it (by a token, a cookie or a proxy's header), what they may do, and its parameters."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic.networks import IPvAnyNetwork
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from xq.core import time
from xq.core.errors import BadValue, shown
from xq.operators.acts import ACTS

log = logging.getLogger("xq.serve")

VIEW: Final = "view"
DESTROYS: Final = tuple(act.name for act in ACTS.values() if act.destroys)
VERBS: Final = (VIEW, *(act for act in ACTS if act not in DESTROYS), "pause", "resume", "limit", "run", *DESTROYS)
"""What a user of the console may do."""
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "viewer": frozenset({VIEW}),
    "operator": frozenset(VERBS).difference(DESTROYS),
    "admin": frozenset(VERBS),
}
"""The verbs of each role."""

ANYBODY: Final = "*"  # the name under which `rights` has those that it does not name
CONSOLE: Final = "console"  # the name for a caller that has no other
FORWARDED: Final = ("x-forwarded-for", "forwarded", "x-real-ip")  # in requests that a proxy has passed on
PEER: Final = "xq.peer"  # in the scope: the address that has sent it, the browser's or a proxy's
LASTS: Final = 12 * 3600  # seconds for which a login is good
REFUSED: Final = 10  # tokens from one address that are refused within a minute; further ones have to wait
LONGEST_PARAMETER: Final = 16_000  # characters in a parameter, and in a token
IN_SCOPE: Final = "xq.verbs"  # in the scope: the verbs to which the application around a console restricts a caller
MOST_PARAMETERS: Final = 500  # parameters in a request
LONGEST_QUERY: Final = 24_000  # characters
LONGEST_BODY: Final = 512_000  # bytes

FromScope = Callable[[Mapping[str, Any]], str | None]


@dataclass(frozen=True)
class Caller:
    """A person or a program that is logged in."""

    name: str
    verbs: frozenset[str]
    by: str  # "bearer", "cookie", "user" or "loopback"

    def permit(self, verb: str) -> None:
        """Raise HTTPException unless the caller may use a verb. The only place where the console decides that."""
        if verb not in self.verbs:
            grants = "The rights= of the console grant it, unless it is read_only; in Django those on the models, too."
            raise HTTPException(403, f"{self.name} has no right to {verb}. {grants}")


NOBODY: Final = Caller("", frozenset(), "")  # sends a request without a login


def _address(text: str) -> Any:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def host_in(text: str) -> str:
    """Return the name or the address that a header has, without a port and brackets."""
    text = text.strip()
    return text if _address(text) else re.sub(r":\d*$", "", text).strip("[]").rstrip(".").lower()


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def is_loopback(host: str) -> bool:
    """Return whether an address or name means this machine itself."""
    return host == "localhost" or ((address := _address(host)) is not None and bool(address.is_loopback))


def tokens_of(given: object) -> object:
    return {} if given is None else {CONSOLE: given} if isinstance(given, str) else given


def rights_of(given: object) -> object:
    of = given if isinstance(given, Mapping) else {ANYBODY: given}
    return {name: ROLES.get(each, each) if isinstance(each, str) else each for name, each in of.items()}


def each_another(tokens: dict[str, str]) -> dict[str, str]:
    if len(set(tokens.values())) < len(tokens):
        raise ValueError
    return tokens


Name = Annotated[str, Field(pattern=r"^\P{C}{1,100}$")]
Token = Annotated[str, Field(pattern="^[!-~]{16,2000}$")]
Verb = Annotated[str, Field(pattern=f"^({'|'.join(VERBS)})$")]
Verbs = Annotated[frozenset[Verb], AfterValidator(lambda verbs: verbs | {VIEW})]
NAMES: Final = "a list of names, as ['example.org']"


class ConsoleOptions(BaseModel):
    """A console's options, each described as an error says it; and what they require from a request."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    tokens: Annotated[dict[Name, Token], BeforeValidator(tokens_of), AfterValidator(each_another)] = Field(
        alias="token",
        description="text of at least 16 printable ASCII characters without spaces, or such texts, no two the same, by "
        "the names of their users: python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
    )
    rights: Annotated[dict[str, Verbs], BeforeValidator(rights_of)] = Field(
        description=f"a role ({', '.join(ROLES)}), or a list of verbs ({', '.join(VERBS)}), or these by users' names"
    )
    read_only: bool = Field(description="True or False")
    name: Annotated[str, Field(pattern=r"^\P{C}{1,60}$")] | None = Field(description="text of 1 to 60 characters")
    colour: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")] | None = Field(description="#rrggbb, as '#b3261e'")
    hosts: frozenset[str] = Field(description=NAMES)
    user: str | FromScope | None = Field(description="the name of a header, or a function of the ASGI scope")
    proxies: tuple[IPvAnyNetwork, ...] = Field(description="a list of addresses or networks, as ['10.0.0.0/8']")
    hide: frozenset[str] = Field(description=NAMES)
    metrics: str = Field(pattern="^(off|token|open)$", description="'off', 'token' or 'open'")
    every: float = Field(description="a number of seconds")
    root_path: str = Field(pattern="^[A-Za-z0-9_/.~-]*$", description="the path of the console behind a proxy")
    _refused: deque[tuple[float, str]] = PrivateAttr(default_factory=lambda: deque(maxlen=1_000))  # when, from where

    @classmethod
    def of(cls, **options: Any) -> ConsoleOptions:
        """Return the options, checked. Raises BadValue, which shows no token."""
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            option = str(error.errors()[0]["loc"][0])
            told = {field.alias or name: field.description for name, field in cls.model_fields.items()}
            given = "" if option == "token" else f", not {shown(options[option])}"
            raise BadValue(f"{option}= is {told[option]}{given}") from None

    @property
    def root(self) -> str:
        """The path at which a proxy has the console; "" for the surrounding application's."""
        return f"/{self.root_path}/".replace("//", "/").rstrip("/")

    def believes(self, address: str) -> bool:
        found = _address(address)
        return is_loopback(address) or (found is not None and any(found in network for network in self.proxies))

    def as_sent(self, scope: Scope) -> dict[str, Any]:
        """Return a request as the browser sent it, by the headers that a proxy has added."""
        headers, peer = Headers(scope=scope), (scope.get("client") or ("",))[0]
        sent = {**scope, PEER: peer}
        if self.believes(peer):
            hops = map(host_in, reversed(",".join(headers.getlist("x-forwarded-for")).split(",")))
            first = next((hop for hop in hops if not self.believes(hop)), "")
            sent["client"] = first if _address(first) else peer, 0
            scheme = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
            sent["scheme"] = scheme if scheme in ("http", "https") else scope["scheme"]
        return sent | ({"root_path": self.root} if self.root else {})

    def named(self, request: Request, token: str) -> str | None:
        """Return whose token it is; None if it is refused. HTTPException: too many from this address were."""
        address, now = address_of(request), time.monotonic()
        if isinstance(found := _address(address), ipaddress.IPv6Address):  # one line has 2**64 of them
            address = str(ipaddress.ip_network((found, 64), strict=False))
        if sum(by == address and at > now - 60 for at, by in list(self._refused)) >= REFUSED:
            raise HTTPException(429, "Too many tokens from this address were refused. Wait a minute.")
        if (name := equal(token, self.tokens)) is None:
            self._refused.append((now, address))
            log.warning("a token from %s was refused", address)
        return name

    def check_host(self, request: Request) -> None:
        """Refuse a name that is not this console's: another site may have made it lead here (DNS rebinding)."""
        name = host_in(request.headers.get("host", ""))
        is_known = any(
            host in ("*", name) or (host.startswith(".") and name.endswith(host)) for host in map(str.lower, self.hosts)
        )
        is_numeric = _address(name) is not None and (self.tokens or self.user is not None)  # no name leads there
        if not is_known and not is_numeric and not is_loopback(name):
            raise HTTPException(400, f"This console has no name {name}: hosts=[...] or --allow-host give it more.")

    @staticmethod
    def check_origin(request: Request, caller: Caller) -> None:
        """Refuse a change that another site may have sent. A browser adds no Bearer header by itself."""
        if request.method in ("GET", "HEAD") or caller.by == "bearer":
            return
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "").lower()
        here = [f"{scheme}://{request.headers.get('host', '').lower()}" for scheme in ("http", "https")]
        if site != "same-origin" and (site is not None or origin not in here):
            raise HTTPException(403, "Another site sent this request: use the pages of this one, or a Bearer header.")

    def missing(self) -> str:
        """Return what a request lacks that has no caller."""
        if self.tokens or self.user is not None:
            return "Log in here or at the proxy, or send the token in an Authorization: Bearer header."
        return "This console has no token, so it answers only this machine itself. Start it with a token (XQ_TOKEN)."

    def caller(self, request: Request) -> Caller:
        """Return who sends a request: NOBODY if it must log in."""
        name, by = self._sender(request)
        if name is None:
            return NOBODY
        verbs = self.rights.get(name, self.rights.get(ANYBODY, frozenset()))
        most = request.scope.get(IN_SCOPE, verbs)
        return Caller(name, verbs & most & ({VIEW} if self.read_only else verbs), by)

    def _sender(self, request: Request) -> tuple[str | None, str]:
        header, address = request.headers.get("authorization", ""), address_of(request)
        if header[:7].lower() == "bearer ":
            return self.named(request, header[7:].strip()), "bearer"
        named = None
        if callable(self.user):
            named = self.user(request.scope)
        elif self.user is not None and self.believes(request.scope[PEER]):
            named = request.headers.get(self.user)
        if isinstance(named, str) and named.isprintable() and 1 <= len(named) <= 100:
            return named, "user"
        if self.tokens:
            return self._of_cookie(request.cookies.get(self.cookie, "")), "cookie"
        is_here = is_loopback(address) and not any(header in request.headers for header in FORWARDED)
        return (CONSOLE if self.user is None and is_here else None), "loopback"

    # The cookie says when the login ends, signed with the name's token: it never has the token itself. It is made here,
    # since SessionMiddleware keeps its data in scope["session"], where the surrounding application has its own.

    @property
    def cookie(self) -> str:
        """The cookie's name, another one for each console on a host: its ports share cookies."""
        keys = "\n".join(f"{name}\n{token}" for name, token in sorted(self.tokens.items()))
        return f"xq_{hashlib.sha256(keys.encode()).hexdigest()[:8]}"

    def cookie_for(self, name: str, until: str) -> str:
        said = f"xq console {name.encode().hex()} {until}"
        return f"{until}.{hmac.new(self.tokens[name].encode(), said.encode(), hashlib.sha256).hexdigest()}"

    def _of_cookie(self, given: str) -> str | None:
        until = given.partition(".")[0]
        if not re.fullmatch("[0-9]{1,12}", until) or int(until) < time.time():
            return None
        return equal(given, {name: self.cookie_for(name, until) for name in self.tokens})


def equal(given: str, known: Mapping[str, str]) -> str | None:
    """Return the name whose text equals the given one. All are compared, in a time that says nothing about them."""
    sent = given[:LONGEST_PARAMETER].encode("utf-8", "replace")
    return ([None] + [name for name, each in known.items() if hmac.compare_digest(sent, each.encode())])[-1]


@dataclass(frozen=True)
class Visit:
    """A request that passed the guard. Its parameters come from the form and the address."""

    request: Request
    caller: Caller
    parameters: Mapping[str, list[str]] = field(default_factory=dict)
    entry: Any = None  # the ConsoleQueue, on a queue's page

    @property
    def root(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def path(self) -> str:
        """The path below the place where the console is mounted."""
        return str(self.request.scope["path"]).removeprefix(self.root) or "/"

    @property
    def filter(self) -> str:
        return self.text("filter").strip()

    def url(self, path: str = "/", **query: Any) -> str:
        """Return an address in this console, below the place where it is mounted."""
        given = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return f"{self.root}{path}{'?' if given else ''}{given}"

    def here(self, page: str = "tasks", **query: Any) -> str:
        return self.url(f"/q/{self.entry.slug}{'' if page == 'tasks' else f'/{page}'}", **query)

    def text(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, [default])[-1]


async def parameters_of(request: Request) -> dict[str, list[str]]:
    """Return the parameters from the form and the address. Raises HTTPException if they are too long."""
    query, body = request.scope.get("query_string", b""), bytearray()
    if len(query) > LONGEST_QUERY:
        raise HTTPException(414, "The address is too long. Shorten the filter.")
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, "The request is too long. Select fewer tasks, or use a filter.")
    if body.count(b"&") + query.count(b"&") >= MOST_PARAMETERS:
        raise HTTPException(400, f"More than {MOST_PARAMETERS} parameters: select fewer tasks, or use a filter.")
    found = dict[str, list[str]]()
    for given in (QueryParams(body.decode("utf-8", "replace")), QueryParams(query)):  # the form counts more
        for name in set(given).difference(found):
            found[name] = [value.replace("\0", "\N{REPLACEMENT CHARACTER}") for value in given.getlist(name)]
            if max(map(len, found[name])) > LONGEST_PARAMETER:
                raise HTTPException(400, f"{shown(name)} is longer than {LONGEST_PARAMETER:,} characters. Shorten it.")
    return found
