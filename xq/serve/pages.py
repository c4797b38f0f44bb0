"""The table with all pages, what answers where a template does not, and the console that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from xq.core import time
from xq.core.errors import BadValue, shown
from xq.engine.limits import limit_in_text
from xq.serve.console import BY_FORM, OPEN, Answer, Console, Route
from xq.serve.entries import ConsoleQueue, entries_of, on
from xq.serve.login import LASTS, VIEW, ConsoleOptions, FromScope, Visit, address_of, log
from xq.serve.operations import act, cancel, preview
from xq.serve.snapshot import EVERY, Look

METRICS: Final = {"token": VIEW, "open": OPEN}  # the verb that /metrics needs
KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "json": "application/json"}
INSIDE: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")  # an address in this console


async def part(console: Console, visit: Visit) -> Response:
    """Return the part that a page asks for again and again."""
    await console.current(visit)
    return HTMLResponse(await run_in_threadpool(console.part, visit))


def plain(console: Console, visit: Visit) -> Response:
    """Return what is no page: a file that pages load, or a task's fields as JSON."""
    name = visit.path.rpartition("/")[2]
    return Response(on(visit.entry, partial(console.render, name, visit)), media_type=KINDS[name.rpartition(".")[2]])


def metrics_of(entries: tuple[ConsoleQueue, ...]) -> Answer:
    from xq.metrics import Metrics

    kept, look = Metrics({entry.name: entry.queue for entry in entries}), Look()  # its threads: a database may hang

    async def page(console: Console, visit: Visit) -> Response:
        accept = visit.request.headers.get("accept", "")[:1000]
        body, kind = await look.call(partial(kept.scrape, accept))
        return Response(body, headers={"Content-Type": kind})

    return page


def log_in(console: Console, visit: Visit) -> Response:
    login, wanted = console.settings, visit.text("next", "/")
    name = login.named(visit.request, visit.text("token"))
    if name is None:
        return console.show("login.html", visit, 401, wanted=wanted, failed="This token is not valid.")
    log.info("%s logged in from %s", name, address_of(visit.request))
    response = RedirectResponse(visit.url(wanted if INSIDE.fullmatch(wanted) else "/"), 303)
    cookie, is_secure = login.cookie_for(name, f"{int(time.time()) + LASTS}"), visit.request.url.scheme == "https"
    response.set_cookie(
        login.cookie, cookie, LASTS, path=f"{visit.root}/", secure=is_secure, httponly=True, samesite="strict"
    )
    return response


def log_out(console: Console, visit: Visit) -> Response:
    response = RedirectResponse(visit.url("/login"), 303)
    response.delete_cookie(console.settings.cookie, path=f"{visit.root}/")
    return response


def pause(console: Console, visit: Visit) -> Response:
    """Pause or resume the queue, or one of its tubes or groups."""
    queue, tube, group = visit.entry.queue, visit.text("tube") or None, visit.text("group")
    event, by = visit.path.rpartition("/")[2], {"actor": visit.caller.name, "reason": visit.text("reason") or None}
    on(visit.entry, lambda: getattr(queue.group(group), event)(**by) if group else getattr(queue, event)(tube, **by))
    return RedirectResponse(visit.here("pauses"), 303)


def limit(console: Console, visit: Visit) -> Response:
    """Set a limit of utube or rate, or remove what was set."""
    queue, by = visit.entry.queue, {"actor": visit.caller.name, "reason": visit.text("reason") or None}
    feature, to = visit.text("feature"), limit_in_text(visit.text("limit"))
    on(visit.entry, lambda: queue.set_limit(feature, to, visit.text("value") or None, **by))
    return RedirectResponse(visit.here("pauses"), 303)


def schedule(console: Console, visit: Visit) -> Response:
    """Run, pause or resume a schedule."""
    change = getattr(visit.entry.queue, f"{visit.text('verb')}_schedule", None)
    name, by = visit.text("schedule"), {"actor": visit.caller.name}
    if change is None or not on(visit.entry, lambda: change(name, **by)):
        raise HTTPException(404, f"{visit.entry.name} has no schedule {name}.")
    return RedirectResponse(visit.here("schedules"), 303)


# Every page, and the verb that it needs. What is not here is not answered. A template's page asks what the template
# asks for.
PAGES: Final = (
    Route("GET", "/login", OPEN, "login.html"),
    Route("POST", "/login", OPEN, log_in),
    Route("POST", "/logout", VIEW, log_out),
    Route("GET", "/static/console.css", OPEN, plain),  # the form to log in needs it
    Route("GET", "/static/console.js", VIEW, plain),
    Route("GET", "/static/favicon.svg", VIEW, plain),
    Route("GET", "/", VIEW, "overview.html"),
    Route("GET", "/part", VIEW, part),
    Route("GET", "/q/{queue}", VIEW, "tasks.html"),
    Route("GET", "/q/{queue}/part", VIEW, part),
    Route("GET", "/q/{queue}/task", VIEW, "task.html"),
    Route("GET", "/q/{queue}/task.json", VIEW, plain),
    *(Route("GET", f"/q/{{queue}}/{each}", VIEW, f"{each}.html") for each in ("failures", "workers", "schedules")),
    *(Route("GET", f"/q/{{queue}}/{each}", VIEW, f"{each}.html") for each in ("pauses", "doctor", "group")),
    Route("POST", "/q/{queue}/preview", BY_FORM, preview),
    Route("POST", "/q/{queue}/act", BY_FORM, act),
    Route("POST", "/q/{queue}/cancel", BY_FORM, cancel),
    Route("POST", "/q/{queue}/schedule", BY_FORM, schedule),
    Route("POST", "/q/{queue}/pause", "pause", pause),
    Route("POST", "/q/{queue}/resume", "resume", pause),
    Route("POST", "/q/{queue}/limit", "limit", limit),
)


def app(
    queues: Any,
    *,
    token: str | Mapping[str, str] | None = None,
    rights: Any = "admin",
    read_only: bool = False,
    name: str | None = None,
    colour: str | None = None,
    hosts: Any = (),
    user: str | FromScope | None = None,
    proxies: Any = (),
    hide: Any = (),
    metrics: str = "off",
    every: float = EVERY,
    root_path: str = "",
) -> Console:
    """Return a console for queues as an ASGI application, which can be mounted into another one.

    `queues` are models, handles or tubes, or these by name. `token` is a text, or texts by user name: a request needs
    one, in a Bearer header or by the login form. Without a token the console answers this machine only. `user` is the
    header in which a proxy names its user, or a function from the ASGI scope to a name or None. The console believes
    this header, X-Forwarded-Proto and -For from proxies on this machine and from the addresses and networks
    `proxies`. `root_path` is the path at which a proxy has the console.

    `rights` is a role (viewer, operator, admin) or verbs, for everybody; or these by name, where "*" means the others.
    `hosts` are the names under which the console is reached ("*": any; ".example.org": all below). `name` and `colour`
    (#rrggbb) show which environment this is. Values with a name in `hide` are not shown. `metrics` answers /metrics
    for Prometheus: "off", "token" (as a page) or "open" (without a login). Pages ask for new numbers every `every`
    seconds.

    Raises BadType, BadValue.
    """
    options = locals()
    entries, settings = entries_of(options.pop("queues")), ConsoleOptions.of(**options)
    for entry in entries:
        if named := settings.hide & {*map(entry.queue.roles.get, ("tube", "utube")), *entry.queue.parts.store.key}:
            raise BadValue(f"hide= cannot hide {shown(min(named))} of {entry.name}: pages name keys and tubes")
    scraped = [Route("GET", "/metrics", METRICS[metrics], metrics_of(entries))] if metrics in METRICS else []
    return Console(entries, settings, (*PAGES, *scraped))
