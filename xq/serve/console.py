"""The console as an ASGI application: its settings, its table of pages, and the one place that answers."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, Literal
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from xq.core.errors import BadType, BadValue, Error, shown
from xq.serve import charts, texts
from xq.serve.entries import Entry, Threads, entries_of, on, refusal_of
from xq.serve.guard import Guard, hosts_of
from xq.serve.login import LASTS, FromScope, Login, tokens_of
from xq.serve.rights import VERBS, VIEW, Caller, Refusal, permit, rights_of
from xq.serve.snapshot import EVERY, Snapshot, Snapshots
from xq.serve.visit import Visit, form_of, query_of

OPEN: Final = ""  # the verb of pages that need no login
BY_VERB: Final = "*"  # of pages whose form names the verb
BROWSERS: Final = 200  # that may follow the snapshots at once
LONGEST: Final = 900.0  # seconds of one stream of events: a browser asks for the next one, and logs in again if it must
QUIET: Final = 15.0  # seconds without a snapshot after which a comment is sent, which detects that a browser is gone
STATIC: Final = {"console.css": "text/css", "console.js": "text/javascript"}
METRICS: Final = {"off": "", "token": VIEW, "open": OPEN}  # the verb that /metrics needs
COLOUR: Final = "#3b6fb6"
COLOURS: Final = re.compile(r"#[0-9a-fA-F]{6}")

Page = Callable[["Console", Visit], Response]


@dataclass(frozen=True)
class Route:
    """A page: its method, its path, and the verb that its caller must be allowed."""

    method: str
    path: str
    verb: str
    page: Page

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the named parts of a path that this is; None for another."""
        if self.method != ("GET" if method == "HEAD" else method):
            return None
        found = _pattern(self.path).fullmatch(path)
        return found.groupdict() if found else None


@cache
def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path)  # every other one is the name of a part
    return re.compile(
        "".join(f"(?P<{part}>[^/]{{1,120}})" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    )


@dataclass(frozen=True)
class Settings:
    """What a console is called, and what it may do."""

    name: str | None = None
    colour: str = COLOUR
    read_only: bool = False
    live: Literal["events", "poll"] = "events"
    hide: frozenset[str] = frozenset()
    every: float = EVERY
    activity: str | None = None  # the table of stream()


class Console:
    """The console of some queues."""

    def __init__(
        self,
        entries: tuple[Entry, ...],
        login: Login,
        hosts: frozenset[str],
        settings: Settings,
        routes: tuple[Route, ...],
    ) -> None:
        self.entries = entries
        self.login = login
        self.settings = settings
        self.routes = routes
        self.threads = Threads()
        self.snapshots = Snapshots(entries, settings.every)
        self.following = 0  # browsers
        self.running: set[tuple[str, int]] = set()  # the operations that this process runs: slug and id
        self.failed: dict[tuple[str, int], str] = {}  # why operations ended early
        self.begun: dict[tuple[str, str], int] = {}  # the last operations: slug and form, which begins one only
        self.beginning = threading.Lock()
        self.examining = threading.Lock()  # held while a page reads a whole table
        self._fragments: dict[tuple[str, str], tuple[int, str]] = {}
        self._templates = Environment(
            loader=PackageLoader("xq.serve"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"texts": texts, "charts": charts, "settings": settings, "verbs": VERBS}
        self._templates.filters |= {"number": texts.number, "span": texts.span, "moment": texts.moment}
        self.guard = Guard(login, hosts, self._is_open, self.answer, self.refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self.guard(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def close(self) -> None:
        """End what follows the snapshots, since a server that stops waits for it, and operations after their chunk."""
        self.snapshots.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    # answering

    def _found(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        matches = ((route, route.match(method, path)) for route in self.routes)
        return next(((route, parts) for route, parts in matches if parts is not None), None)

    def _is_open(self, method: str, path: str) -> bool:
        found = self._found(method, path)
        return found is not None and found[0].verb == OPEN

    async def answer(self, request: Request, caller: Caller | None) -> Response:
        """Answer a request that passed the guard. Raises Refusal."""
        visit = Visit(request, caller, query_of(request))
        found = self._found(request.method, visit.path)
        if found is None:
            raise Refusal(404, "This console has no such page.")
        route, parts = found
        visit = replace(
            visit,
            form=await form_of(request) if request.method == "POST" else {},
            entry=self.entry_of(parts["queue"]) if "queue" in parts else None,
            number=_number(parts.get("number", "0")),
        )
        if route.verb != OPEN and caller is not None:
            permit(caller, self.verb(route, visit), read_only=self.settings.read_only)
        return await self.threads.run(partial(self._page, route, visit))

    def verb(self, route: Route, visit: Visit) -> str:
        """Return the verb that a request needs. Raises Refusal for one that there is not."""
        verb = visit.text("verb") if route.verb == BY_VERB else route.verb
        if verb not in VERBS or (route.verb == BY_VERB and verb == VIEW):
            raise Refusal(400, f"The console has the verbs {texts.listed(VERBS)}.")
        return verb

    def _page(self, route: Route, visit: Visit) -> Response:
        try:
            if route.verb not in (OPEN, VIEW):
                self._check_writable(visit.queue)
            return route.page(self, visit)
        except Error as error:
            raise refusal_of(error) from error

    def _check_writable(self, entry: Entry) -> None:
        if on(entry, entry.queue.adapter.only_reads):
            raise Refusal(
                503, f"The database of {entry.name} only reads, so nothing was changed. Ask its primary server."
            )

    def entry_of(self, slug: str) -> Entry:
        for entry in self.entries:
            if entry.slug == slug:
                return entry
        raise Refusal(404, "This console has no such queue.")

    # pages

    def url(self, root: str, path: str = "/", **query: Any) -> str:
        """Return an address of this console, below the place where it is mounted."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{root}{path}{'?' if given else ''}{urlencode(given)}"

    def render(self, template: str, visit: Visit, **values: Any) -> str:
        """Return a page or a part of one. The only place that makes HTML of templates.

        In a page, `part()` is the part of it that follows the snapshots.
        """
        caller = visit.caller
        may = (caller.verbs if caller else frozenset()) if not self.settings.read_only else frozenset({VIEW})
        made = self._templates.get_template(template).render(
            values
            | {
                "url": partial(self.url, visit.root),
                "caller": caller,
                "may": may,
                "entries": self.entries,
                "entry": visit.entry,
                "path": visit.path,
                "live": self.live(visit),
                "part": lambda: self.fragment(self.snapshots.current(), visit),
            }
        )
        return made.encode("utf-8", "replace").decode()  # data may have half a surrogate pair

    def html(self, template: str, visit: Visit, status: int = 200, **values: Any) -> Response:
        return Response(self.render(template, visit, **values), status, media_type="text/html")

    def redirect(self, visit: Visit, path: str, **query: Any) -> Response:
        return RedirectResponse(self.url(visit.root, path, **query), 303)

    def refused(self, request: Request, caller: Caller | None, refusal: Refusal) -> Response:
        """Return the page of a refusal; the form to log in where that would help."""
        visit = Visit(request, caller)
        asks = refusal.status == 401 and bool(self.login.tokens)
        if "text/html" not in request.headers.get("accept", ""):
            response: Response = PlainTextResponse(f"{refusal.sentence}\n", refusal.status)
        elif asks:
            wanted = f"{visit.path}?{request.scope.get('query_string', b'').decode('latin-1')}".rstrip("?")
            response = self.html("login.html", visit, 401, wanted=wanted if request.method == "GET" else "/", failed="")
        else:
            response = self.html("refusal.html", visit, refusal.status, refusal=refusal)
        if refusal.status == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="xq"'
        if refusal.status == 503:
            response.headers["Retry-After"] = "5"
        return response

    # what changes by itself

    def fragment(self, snapshot: Snapshot, visit: Visit) -> str:
        """Return the part of a page that follows the snapshots. All browsers share the part of a snapshot.

        Before it stands the age of its numbers, if a database does not answer.
        """
        entry = visit.entry
        name = (visit.root, entry.slug if entry else "")
        version, made = self._fragments.get(name, (0, ""))
        if version != snapshot.version:
            template, values = ("_queue.html", {"now": snapshot.of(entry)}) if entry else ("_overview.html", {})
            made = self.render(template, replace(visit, caller=None), snapshot=snapshot, **values)
            if len(self._fragments) > 1000:
                self._fragments.clear()
            self._fragments[name] = (snapshot.version, made)
        age = self.snapshots.age(snapshot)
        return made if age is None else self.render("_age.html", visit, age=age) + made

    def live(self, visit: Visit) -> str:
        """Return how pages get new numbers: as the settings say, unless the application around this one says it."""
        return str(visit.request.scope.get("xq.live", self.settings.live))

    async def is_over(self, visit: Visit, until: float) -> bool:
        return self.snapshots.is_closed or time.monotonic() > until or await visit.request.is_disconnected()


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal(404, "This console has no such page.")
    return int(text)


# pages that have no queue


def overview(console: Console, visit: Visit) -> Response:
    return console.html("overview.html", visit)


def events(console: Console, visit: Visit) -> Response:
    """Return the snapshots as server-sent events, for as long as the browser stays."""
    if console.live(visit) == "poll":
        raise Refusal(404, "This console sends no events. Its pages ask for the numbers at /live.")
    if slug := visit.text("queue"):
        visit = replace(visit, entry=console.entry_of(slug))
    if console.following >= BROWSERS:
        raise Refusal(503, "Too many browsers follow this console. Close some of its pages.")

    async def sent() -> AsyncIterator[str]:
        version, until = 0, time.monotonic() + LONGEST
        console.following += 1
        try:
            yield "retry: 3000\n\n"
            while not await console.is_over(visit, until):
                snapshot = await console.snapshots.after(version, QUIET)
                latest = console.snapshots.latest
                if snapshot is None and (latest is None or console.snapshots.age(latest) is None):
                    yield ": nothing new\n\n"
                    continue
                snapshot = snapshot or latest  # its numbers are old by now: say so
                assert snapshot is not None
                version = snapshot.version
                part = await run_in_threadpool(console.fragment, snapshot, visit)
                yield f"event: snapshot\ndata: {json.dumps(part)}\n\n"
        finally:
            console.following -= 1

    return StreamingResponse(sent(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def live(console: Console, visit: Visit) -> Response:
    """Return the part of a page that changes, where events cannot be sent: in a server of WSGI."""
    if slug := visit.text("queue"):
        visit = replace(visit, entry=console.entry_of(slug))
    return Response(console.fragment(console.snapshots.current(), visit), media_type="text/html")


def static(name: str) -> Page:
    content = files("xq.serve").joinpath("static", name).read_bytes()
    return lambda console, visit: Response(content, media_type=STATIC[name])


def theme(console: Console, visit: Visit) -> Response:
    return Response(f":root {{ --accent: {console.settings.colour}; }}\n", media_type="text/css")


def favicon(console: Console, visit: Visit) -> Response:
    letter = (console.settings.name or "q")[:1].upper()
    svg = console.render("favicon.svg", visit, letter=letter)
    return Response(svg, media_type="image/svg+xml")


def metrics_of(entries: tuple[Entry, ...], verb: str) -> Route:
    """Return the page for Prometheus."""
    from xq.metrics import Metrics

    kept = Metrics({entry.name: entry.queue for entry in entries})

    def page(console: Console, visit: Visit) -> Response:
        body, kind = kept.scrape(visit.request.headers.get("accept", "")[:1000])
        return Response(body, headers={"Content-Type": kind})

    return Route("GET", "/metrics", verb, page)


def login_page(console: Console, visit: Visit) -> Response:
    return console.html("login.html", visit, wanted=visit.text("next", "/"), failed="")


def log_in(console: Console, visit: Visit) -> Response:
    wanted = visit.text("next", "/")
    name = console.login.named_by(visit.text("token"))
    if name is None:
        return console.html("login.html", visit, 401, wanted=wanted, failed="This token is not valid.")
    inside = wanted if re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", wanted) and "\\" not in wanted else "/"
    response = RedirectResponse(f"{visit.root}{inside}", 303)
    response.set_cookie(
        console.login.cookie,
        console.login.cookie_for(name),
        max_age=LASTS,
        path=f"{visit.root}/",
        secure=visit.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def log_out(console: Console, visit: Visit) -> Response:
    response = console.redirect(visit, "/login")
    response.delete_cookie(console.login.cookie, path=f"{visit.root}/", httponly=True, samesite="strict")
    return response


def app(
    queues: Any,
    *,
    token: str | Mapping[str, str] | None = None,
    rights: Any = "admin",
    read_only: bool = False,
    name: str | None = None,
    colour: str | None = None,
    hosts: Any = None,
    user: str | FromScope | None = None,
    proxies: Any = (),
    live: Literal["events", "poll"] = "events",
    hide: Any = (),
    metrics: str = "off",
    every: float = EVERY,
    activity: str | None = None,
) -> Console:
    """Return a console of queues as an ASGI application, which can be mounted into another one.

    `queues` are models, handles or tubes, or these by name. `token` is a text, or texts by the names of their users: a
    request needs one, in a Bearer header or by the login form. Without a token the console answers this machine only.
    `user` is the name of the header in which a proxy on this machine, or one of the addresses `proxies`, names its
    user; or a function of the ASGI scope that returns a name or None.

    `rights` is a role (viewer, operator, admin) or verbs, for everybody; or these by name, where "*" means the others.
    `hosts` are the names under which the console is reached ("*": any; ".example.org": all below). `name` and `colour`
    (#rrggbb) show which environment this is. Values of the names in `hide` are not shown. `live="poll"` is for servers
    of WSGI. `metrics` answers /metrics for Prometheus: "off", "token" (as a page) or "open"
    (without a login). A snapshot is taken every `every` seconds. `activity` names the table of `xq.spark.stream()` in
    the databases of the queues, where they have the names that they have here: each queue gets a page of it.

    Raises BadType, BadValue.
    """
    from xq.serve.activity import PAGE
    from xq.serve.pages import PAGES

    if name is not None and (not isinstance(name, str) or not 1 <= len(name) <= 60 or not name.isprintable()):
        raise BadValue(f"the name of an environment is text of 1 to 60 characters, not {shown(name)}")
    if colour is not None and (not isinstance(colour, str) or not COLOURS.fullmatch(colour)):
        raise BadValue(f"a colour is #rrggbb, as '#b3261e', not {shown(colour)}")
    if live not in ("events", "poll"):
        raise BadValue(f"live= is 'events' or 'poll', not {shown(live)}")
    if metrics not in METRICS:
        raise BadValue(f"metrics= is {', '.join(map(repr, METRICS))}, not {shown(metrics)}")
    if user is not None and not isinstance(user, str) and not callable(user):
        raise BadType(f"user= is the name of a header, or a function of the ASGI scope, not {shown(user)}")
    for option, given in {"hide": hide, "proxies": proxies}.items():
        if isinstance(given, str):
            raise BadType(f"{option}= is a list of texts, not {shown(given)}")
    settings = Settings(name, colour or COLOUR, bool(read_only), live, frozenset(hide), every, activity)
    login = Login(tokens_of(token), rights_of(rights), user, frozenset(proxies))
    entries = entries_of(queues)
    for entry in entries:
        if named := settings.hide & {entry.queue.roles.get(role) for role in ("tube", "utube")}:
            raise BadValue(f"hide= cannot hide {shown(min(named))} of {entry.name}: many pages name tubes and utubes")
    routes = PAGES if metrics == "off" else (*PAGES, metrics_of(entries, METRICS[metrics]))
    if activity is not None:
        entries[0].queue.pipeline.rollup(activity)  # raises for what names no table
        routes = (*routes, PAGE)
    return Console(entries, login, hosts_of(hosts), settings, routes)
