"""An ASGI application at a URL of a Django project, behind the login of the staff.

from xq.adapters.django.console import console, user_of

app = xq.serve.app([Order.xq], user=user_of)
urlpatterns = [path("queues/", include(console(app)))]

Who may do what: as in the admin, unless `may=` says who may use it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib import admin
from django.contrib.auth import REDIRECT_FIELD_NAME, get_permission_codename
from django.contrib.auth.views import redirect_to_login
from django.core.handlers.asgi import ASGIRequest
from django.db import models
from django.http import HttpResponse, HttpResponseForbidden, StreamingHttpResponse
from django.urls import re_path, reverse
from django.views.decorators.csrf import csrf_exempt

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

USER: Final = "xq.user"  # the name of the user in the scope of the application
IN_SCOPE: Final = "xq.verbs"  # in the scope: all that the application may let this user do; absent: it decides alone
VIEW: Final = "view"
# The verbs of the console, and the permission that each needs where the admin of the model has none of its own for it.
NEEDED: Final = {VIEW: "view_or_change", "kill": "delete"} | dict.fromkeys(
    ("dig", "release", "restart", "bury", "pause", "resume"), "change"
)
SAFE: Final = ("GET", "HEAD", "OPTIONS")
PIECES: Final = 16  # of an answer that wait to be sent
EVENTS: Final[Message] = {"body": b"", "more_body": True}  # what stands for the first piece of a stream of events
DROPPED: Final = frozenset({"transfer-encoding", "connection", "content-length"})  # Django's server sets them


def user_of(scope: Mapping[str, Any]) -> str | None:
    """Return the name of the user of Django who sent a request, from the scope of the mounted application."""
    name = scope.get(USER)
    return None if name is None else str(name)


def console(app: Application, *, may: Callable[[Any], bool] | None = None, site: Any = None) -> list[Any]:
    """Return URL patterns that pass the requests of the staff on to an ASGI application: `include(console(app))`.

    `may` decides by the request who may use it, and the application what they may do there. None: superusers; and in
    the console of `xq.serve.app` the staff that may view the models of all its queues, who may do what the admin of
    `site` (None: the admin's own) lets them do with each of these. Others are sent to the login of `site`; users that
    are logged in and may not get 403. The scope has the user's name (`user_of`). A request that changes something must
    come from a page of the same host (Sec-Fetch-Site, Origin).
    """
    loops = _Loops()
    here = admin.site if site is None else site
    shown = _models_of(app)

    @csrf_exempt  # the browser says which site has sent a request, and the application's forms have no token of Django
    def view(request: Any, rest: str = "") -> Any:
        if not (may or here.has_permission)(request):
            if request.user.is_authenticated and may is not None:
                return HttpResponseForbidden("You have no right to use this console.")
            login = reverse("admin:login", current_app=here.name)
            return redirect_to_login(request.get_full_path(), login, REDIRECT_FIELD_NAME)
        verbs = None if may is not None or request.user.is_superuser else _verbs(request, here, shown)
        if verbs is not None and VIEW not in verbs:
            return HttpResponseForbidden("You have no right to view all that this console shows.")
        if request.method not in SAFE and not _is_of_this_site(request):
            return HttpResponseForbidden("Another site sent this request: use the pages of this one.")
        scope = _scope(request, rest) | ({} if verbs is None else {IN_SCOPE: verbs})
        call = _Call(app, scope, request.body, loops.running())
        return call.response(isinstance(request, ASGIRequest))

    return [re_path(r"^(?P<rest>.*)$", view, name="xq_console")]


def _models_of(app: Application) -> list[Any] | None:
    """Return the models of the queues in a console of xq; None for any other application."""
    try:
        from xq.serve.console import Console
    except ImportError:  # without the extra serve
        return None
    return [entry.queue.model for entry in app.entries] if isinstance(app, Console) else None


def _verbs(request: Any, site: Any, shown: list[Any] | None) -> frozenset[str]:
    """Return the verbs that the admin would let a user use on each of these models."""
    return frozenset(verb for verb in NEEDED if shown and all(_may(verb, request, site, model) for model in shown))


def _may(verb: str, request: Any, site: Any, model: Any) -> bool:
    if not issubclass(model, models.Model):
        return False  # of another ORM, for which Django has no permissions
    of_admin = site._registry.get(model)
    needed = NEEDED[verb]
    if of_admin is not None:
        own = getattr(of_admin, f"has_{verb}_permission", None) if verb != VIEW else None
        return bool((own or getattr(of_admin, f"has_{needed}_permission"))(request))
    label, options = model._meta.app_label, model._meta
    codes = [get_permission_codename(each, options) for each in needed.split("_or_")]
    return any(request.user.has_perm(f"{label}.{code}") for code in codes)


def _is_of_this_site(request: Any) -> bool:
    sent_by = request.headers.get("Sec-Fetch-Site")
    if sent_by is not None:
        return bool(sent_by == "same-origin")
    try:
        origin = urlsplit(request.headers.get("Origin", "")).netloc
    except ValueError:
        return False
    return bool(origin) and origin.lower() == request.get_host().lower()


def _scope(request: Any, rest: str) -> dict[str, Any]:
    path = request.path_info
    root = request.META.get("SCRIPT_NAME", "").rstrip("/") + path[: len(path) - len(rest)].rstrip("/")
    host, _, port = request.get_host().partition(":")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": f"{root}/{rest}",
        "raw_path": request.get_full_path().partition("?")[0].encode("ascii", "replace"),
        "root_path": root,
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1", "replace"),
        "headers": [
            (name.lower().encode("latin-1"), str(value).encode("latin-1", "replace"))
            for name, value in request.headers.items()
        ],
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        "server": (host, int(port) if port.isdigit() else None),
        "extensions": {},
        "state": {},
        USER: request.user.get_username(),
    }


class _Loops:
    """The event loop in which the application runs, in a thread of its own: one for each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # a fork leaves the thread behind
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="xq console", daemon=True).start()
            return self._loop


class _Call:
    """One request to the application, and the pieces of its answer."""

    def __init__(
        self, app: Application, scope: MutableMapping[str, Any], body: bytes, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._body, self._loop = body, loop
        self._received = False
        self._gone: asyncio.Event = asyncio.Event()  # the browser has left, or the answer is complete
        self._pieces: queue.Queue[Message | Exception | None] = queue.Queue()
        self._room = asyncio.Semaphore(PIECES)
        self._task = asyncio.run_coroutine_threadsafe(self._run(app, scope), loop)

    async def _run(self, app: Application, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            self._pieces.put(error)
        finally:
            self._pieces.put(None)

    async def _receive(self) -> Message:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._room.acquire()
        self._pieces.put(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._gone.set()

    def next(self) -> Message | None:
        found = self._pieces.get()
        self._loop.call_soon_threadsafe(self._room.release)
        if isinstance(found, Exception):
            raise found
        return found

    def leave(self) -> None:
        """Send the application that the browser has left, and cancel it."""
        self._loop.call_soon_threadsafe(self._gone.set)
        self._task.cancel()

    def response(self, is_async: bool) -> Any:
        """Return the answer: whole, or as a stream if the application sends more than one piece."""
        start = self.next()
        first = None
        if start is not None:
            first = EVENTS if _is_of_events(start) else self.next()
        if start is None or first is None:
            raise RuntimeError("the application that is mounted in Django ended without an answer")
        body, status = first.get("body", b""), start["status"]
        made: Any
        if first.get("more_body", False):
            made = StreamingHttpResponse((_AsyncStream if is_async else _Stream)(self, body), status=status)
        else:
            made = HttpResponse(body, status=status)
        del made.headers["Content-Type"]
        for name, value in start.get("headers", ()):
            _set(made, bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
        return made


def _is_of_events(start: Message) -> bool:
    """Return whether an answer is a stream of events, whose first one may come late."""
    types = [value for name, value in start.get("headers", ()) if bytes(name).lower() == b"content-type"]
    return any(bytes(value).lower().startswith(b"text/event-stream") for value in types)


def _set(made: Any, name: str, value: str) -> None:
    if name.lower() == "set-cookie":
        made.cookies.load(value)
    elif name.lower() not in DROPPED:
        made.headers[name] = f"{made.headers[name]}, {value}" if name in made.headers else value


class _Stream:
    """The pieces of an answer. Django closes it when the browser has left."""

    def __init__(self, call: _Call, first: bytes) -> None:
        self._call, self._first = call, first

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        while (message := self._call.next()) is not None:
            yield message.get("body", b"")

    def close(self) -> None:
        self._call.leave()


class _AsyncStream:
    """As `_Stream`, for a project that runs under ASGI."""

    def __init__(self, call: _Call, first: bytes) -> None:
        self._call, self._first = call, first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        while (message := await asyncio.to_thread(self._call.next)) is not None:
            yield message.get("body", b"")

    def close(self) -> None:
        self._call.leave()
