"""The console as an ASGI application: the one place that answers, behind its guard."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from xq.core import time
from xq.core.errors import Error
from xq.operators.operations import Operation
from xq.serve import login
from xq.serve.charts import LINES
from xq.serve.entries import ConsoleQueue, on, status_of
from xq.serve.login import NOBODY, VIEW, ConsoleOptions, Visit, log
from xq.serve.snapshot import looks_of
from xq.serve.texts import Texts

OPEN: Final = ""  # the verb for pages without a login
BY_FORM: Final = "*"  # for pages whose form names the verb
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}
HINTS: Final = {401: {"WWW-Authenticate": 'Bearer realm="xq"'}, 429: {"Retry-After": "60"}, 503: {"Retry-After": "5"}}

Answer = Callable[["Console", Visit], Any]  # a Response, or a coroutine that returns one


class Route(NamedTuple):
    """A page: where it is, the verb that its caller must be allowed, and the function or template for its answer."""

    method: str
    path: str
    verb: str
    answer: Answer | str


class Begun(NamedTuple):
    """An operation that this process runs, or has run, in a thread."""

    entry: ConsoleQueue
    operation: Operation[Any]
    ended: Future[Any]

    @property
    def state(self) -> str:
        if not self.ended.done():
            return "waits for others" if self.operation.state == "new" else "running"
        error = self.ended.exception()
        return f"failed: {getattr(error, 'detail', error)}" if error else self.operation.state


class Console:
    """A console for some queues."""

    def __init__(self, entries: tuple[ConsoleQueue, ...], settings: ConsoleOptions, pages: tuple[Route, ...]) -> None:
        self.entries, self.settings, self.pages = entries, settings, pages
        self.look = looks_of(entries, settings.every)  # at each queue's database
        self.operations: dict[tuple[ConsoleQueue, str, str], Begun] = {}  # this process's: by queue, verb and filter
        self.beginning = threading.Lock()
        self._others = Router()  # for what is not HTTP
        loader = PackageLoader("xq.serve")
        self._templates = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.filters |= Texts(settings.hide).filters
        self._templates.globals |= {"console": self, "settings": settings, "LINES": LINES, "now": time.time}
        self._templates.globals |= vars(self._templates.get_template("macros.html").module)

    def operations_of(self, entry: ConsoleQueue) -> list[Begun]:
        """Return the operations on a queue that have not ended, and the newest one."""
        mine = [each for each in reversed([*self.operations.values()]) if each.entry is entry]
        return mine[:1] + [each for each in mine[1:] if not each.ended.done()]

    # answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._others
        if scope["type"] == "http":
            scope = self.settings.as_sent(scope)
            answer = await self._guarded(Request(scope, receive))
            answer.headers.update({name: value for name, value in HEADERS.items() if name not in answer.headers})
        await answer(scope, receive, send)

    async def _guarded(self, request: Request) -> Response:
        caller, settings = NOBODY, self.settings
        try:
            settings.check_host(request)
            caller, (page, entry) = settings.caller(request), self._page(request.method, Visit(request, NOBODY).path)
            if caller is NOBODY and (page is None or page.verb != OPEN):
                raise HTTPException(401, settings.missing())
            settings.check_origin(request, caller)
            if page is None:
                raise HTTPException(404, "This console has no such page, or no such queue.")
            visit = Visit(request, caller, await login.parameters_of(request), entry)
            if page.verb != OPEN:
                caller.permit(visit.text("verb") if page.verb == BY_FORM else page.verb)
            if inspect.iscoroutinefunction(page.answer):
                return cast("Response", await page.answer(self, visit))
            answer = partial(self._answer, page, visit)
            if visit.entry or page.path == "/":  # the others wait for no database
                await self.current(visit)
            look = self.look.get(visit.entry)
            return await (look.call(answer) if look else run_in_threadpool(answer))
        except ClientDisconnect:
            return Response(status_code=400)
        except HTTPException as refusal:
            return self._refusal(Visit(request, caller), refusal.status_code, refusal.detail)
        except Exception:
            log.exception("the console failed to answer %s %s", request.method, request.scope["path"])
            return self._refusal(Visit(request, caller), 500, "The console failed. Its log has the traceback.")

    def _page(self, method: str, path: str) -> tuple[Route | None, ConsoleQueue | None]:
        slug = path.split("/")[2] if path.startswith("/q/") else None
        entry = next((entry for entry in self.entries if entry.slug == slug), None)
        path = path if slug is None else path.replace(f"/q/{slug}", "/q/{queue}", 1)
        asked = "GET" if method == "HEAD" else method, path
        page = next((page for page in self.pages if page[:2] == asked), None)
        return (page if slug is None or entry else None), entry

    def _answer(self, page: Route, visit: Visit) -> Any:
        if isinstance(page.answer, str):
            return self.show(page.answer, visit)
        try:
            if page.verb not in (OPEN, VIEW) and on(visit.entry, visit.entry.queue.parts.executor.only_reads):
                raise HTTPException(503, "The database only reads, so nothing was changed. Ask its primary server.")
            return page.answer(self, visit)
        except Error as error:
            raise HTTPException(status_of(error), f"{error}.") from error

    # pages

    def show(self, page: str, visit: Visit, status: int = 200, **values: Any) -> Response:
        """Return a page. Its template asks the queue, with a connection; where the queue refuses, the page says why."""
        frame, values = "queue.html" if visit.entry else "base.html", {**values, "page": page}
        try:
            render = partial(self.render, frame, visit, wrong="", **values)
            return HTMLResponse(on(visit.entry, render), status)
        except Error as error:
            return HTMLResponse(self.render(frame, visit, wrong=f"{error}", **values), status_of(error))

    def render(self, template: str, visit: Visit, **values: Any) -> str:
        """Return a page or a part. This is the only place that makes HTML."""
        values |= {"visit": visit, "url": visit.url, "here": visit.here, "caller": visit.caller}
        values |= {"may": visit.caller.verbs, "entry": visit.entry, "queue": visit.entry and visit.entry.queue}
        made = self._templates.get_template(template).render(values)
        return made.encode("utf-8", "backslashreplace").decode()  # data may have half a surrogate pair

    async def current(self, visit: Visit) -> None:
        """Wait for the due looks: at the queue's database, or at all databases."""
        looks = {look for entry, look in self.look.items() if visit.entry in (entry, None)}
        await asyncio.gather(*(look.current() for look in looks))

    def part(self, visit: Visit) -> str:
        """Return the part of a page that changes with the numbers."""
        all = [look.of(entry) for entry, look in self.look.items() if visit.entry in (entry, None)]
        return self.render("_queue.html" if visit.entry else "_overview.html", visit, all=all)

    def _refusal(self, visit: Visit, status: int, sentence: str) -> Response:
        """Return a page for a refusal; the login form where that would help."""
        if "text/html" not in visit.request.headers.get("accept", ""):
            response: Response = PlainTextResponse(f"{sentence}\n", status)
        elif status == 401 and self.settings.tokens:
            query = visit.request.scope.get("query_string", b"").decode("latin-1")
            wanted = f"{visit.path}?{query}".rstrip("?") if visit.request.method == "GET" else "/"
            response = self.show("login.html", visit, 401, wanted=wanted)
        else:
            response = self.show("note.html", visit, status, title=sentence, lines=[])
        response.headers.update(HINTS.get(status, {}))
        return response
