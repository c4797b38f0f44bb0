"""An ASGI application, such as xq's console, at a URL in a Django project, behind the login for staff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.db import models
from django.http import HttpResponse, HttpResponseForbidden
from django.urls import re_path, reverse
from django.views.decorators.csrf import csrf_exempt

from xq.adapters.django.connections import non_atomic
from xq.operators.acts import ACTS

Application = Callable[..., Awaitable[None]]  # ASGI: (scope, receive, send)

USER: Final = "xq.user"  # in the scope: the user's name
VERBS: Final = "xq.verbs"  # in the scope: all that the application may let this user do; absent: it decides alone
VIEW: Final = "view"
# The console's verbs, and the permission that each needs where the model's admin has none of its own for it.
NEEDED: Final = {
    VIEW: "view_or_change",
    "run": "add",
    **dict.fromkeys(("pause", "resume", "limit"), "change"),
    **{act.name: "delete" if act.destroys else "change" for act in ACTS.values()},
}
SAFE: Final = ("GET", "HEAD", "OPTIONS")


def user_of(scope: Mapping[str, Any]) -> str | None:
    """Return the name of the Django user who sent a request, from the mounted application's scope."""
    return scope.get(USER)


def console(app: Application, *, may: Callable[[Any], bool] | None = None, site: Any = None) -> list[Any]:
    """Return URL patterns that pass the staff's requests on to an ASGI application: `include(console(app))`.

    `may` decides by the request who may use it, and the application what they may do there. None: superusers, and in
    the console of `xq.serve.app` also the staff with the right to view all its queues' models. These may do what the
    admin of `site` (None: the admin's own) allows for each model. `console` sends others to the login of `site`; users
    who are logged in and may not use it get 403. The scope has the user's name (`user_of`). A request that changes
    something must come from a page on the same host (Sec-Fetch-Site, Origin). An answer is sent when it is complete:
    no stream works.
    """
    here = site or admin.site
    shown = [entry.queue.model for entry in getattr(app, "entries", ())]  # none if another product made the application

    @csrf_exempt  # the browser says which site has sent a request, and the application's forms have no Django token
    def view(request: Any, rest: str = "") -> HttpResponse:
        if not (may or here.has_permission)(request):
            if may is not None and request.user.is_authenticated:
                return HttpResponseForbidden("You have no right to use this console.")
            return redirect_to_login(request.get_full_path(), reverse("admin:login", current_app=here.name))
        scope = _scope(request, rest)
        if may is None and not request.user.is_superuser:
            scope[VERBS] = _verbs(request, here, shown)
            if VIEW not in scope[VERBS]:
                return HttpResponseForbidden("You have no right to view all that this console shows.")
        if request.method not in SAFE and not _is_of_this_site(request):
            return HttpResponseForbidden("Another site sent this request: use the pages of this one.")
        return async_to_sync(_answer)(app, scope, request.body)

    # Another thread does what the page asks for: it would wait for a transaction around the request (ATOMIC_REQUESTS).
    return [re_path(r"^(?P<rest>.*)$", non_atomic(view), name="xq_console")]


def _verbs(request: Any, site: Any, shown: list[Any]) -> frozenset[str]:
    """Return the verbs that the admin allows a user on every model."""
    if not shown or not all(issubclass(model, models.Model) for model in shown):
        return frozenset()  # Django has no permissions for another ORM's models
    from xq.adapters.django.admin.queue_admin import QueueAdmin  # the admin may not be installed

    admins = [site._registry.get(model) or admin.ModelAdmin(model, site) for model in shown]
    whole = (admin.ModelAdmin.get_queryset, QueueAdmin.get_queryset)
    if any(type(of_model).get_queryset not in whole for of_model in admins):
        return frozenset()  # it shows some rows only, and the console all
    return frozenset(verb for verb in NEEDED if all(_may(verb, request, of_model) for of_model in admins))


def _may(verb: str, request: Any, of_model: Any) -> bool:
    own = getattr(of_model, f"has_{verb}_permission", None) if verb != VIEW else None
    return bool((own or getattr(of_model, f"has_{NEEDED[verb]}_permission"))(request))


def _is_of_this_site(request: Any) -> bool:
    is_own = request.headers.get("Origin", "").lower().partition("://")[2] == request.get_host().lower()
    return bool(request.headers.get("Sec-Fetch-Site", "same-origin" if is_own else "") == "same-origin")


def _scope(request: Any, rest: str) -> dict[str, Any]:
    root = request.path.removesuffix(rest).rstrip("/")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": f"{root}/{rest}",
        "root_path": root,
        "query_string": request.META.get("QUERY_STRING", "").encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers.items()],
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        USER: str(request.user.get_username()),
    }


async def _answer(app: Application, scope: dict[str, Any], body: bytes) -> HttpResponse:
    """Run the application to its end, and return what it has sent."""
    requests, sent = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive() -> Any:
        return requests.pop() if requests else await asyncio.Future()  # the browser does not leave before the answer

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *pieces = sent
    response = HttpResponse(b"".join(piece.get("body", b"") for piece in pieces), status=start["status"])
    del response.headers["Content-Type"]  # Django's own
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())):
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        else:
            response.headers[name] = ", ".join(filter(None, (response.headers.get(name), value)))
    return response
