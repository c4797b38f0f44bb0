"""An ASGI application at a URL of a Django project: who reaches it, what it gets, and what of its answers returns."""

from __future__ import annotations

import asyncio
import threading
import types

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path

from xq.adapters.django.console import console, user_of

pytestmark = pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # the database only has the users
PATIENCE = 30


class Echo:
    """An application that says what it gets. /stream goes on until the browser has left."""

    def __init__(self):
        self.scope = None
        self.body = b""
        self.left = threading.Event()
        self.happened = threading.Event()

    async def __call__(self, scope, receive, send):
        self.scope, self.body = scope, (await receive())["body"]
        if scope["path"].endswith("/broken"):
            raise LookupError("broken")
        if scope["path"].endswith("/silent"):
            return
        if scope["path"].endswith("/events"):
            started = {"status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            await send({"type": "http.response.start", **started})
            await asyncio.to_thread(self.happened.wait, PATIENCE)
            await send({"type": "http.response.body", "body": b"data: 1\n\n"})
            return
        headers = [(b"content-type", b"text/plain"), (b"set-cookie", b"seen=yes; Path=/"), (b"x-from", b"echo")]
        await send({"type": "http.response.start", "status": 207, "headers": headers})
        if not scope["path"].endswith("/stream"):
            await send({"type": "http.response.body", "body": f"{scope['method']} {user_of(scope)}".encode()})
            return
        try:
            for n in range(10_000_000):
                await send({"type": "http.response.body", "body": b"%d\n" % n, "more_body": True})
        finally:
            self.left.set()


@pytest.fixture
def mounted(django_db):
    """Mounts an application at /queues/, and returns it with a client of a user of that kind."""
    undo = []
    ContentType.objects.clear_cache()
    django_db.create(ContentType, Permission, Group, User, Session)

    def made(client=Client, name="ann", is_staff=True, is_superuser=True, **options):
        app, urls = Echo(), types.ModuleType("urls_of_a_test")
        vars(urls)["urlpatterns"] = [
            path("admin/", admin.AdminSite().urls),
            path("queues/", include(console(app, **options))),
        ]
        here = override_settings(ROOT_URLCONF=urls)
        here.enable()
        undo.append(here)
        browser = client(enforce_csrf_checks=True)
        if name:
            given = {"is_staff": is_staff, "is_superuser": is_superuser and is_staff}
            browser.force_login(User.objects.create_user(name, password="secret", **given))
        return app, browser

    yield made
    for here in undo:
        here.disable()


def test_the_application_gets_the_request_with_its_place_and_user_and_its_answer_returns(mounted):
    app, browser = mounted()
    answer = browser.get("/queues/shop/a%20b?state=B&q=%C3%A4")
    assert (answer.status_code, answer.content) == (207, b"GET ann")
    assert (answer["Content-Type"], answer["X-From"], answer.cookies["seen"].value) == ("text/plain", "echo", "yes")
    scope = app.scope
    assert (scope["path"], scope["root_path"]) == ("/queues/shop/a b", "/queues")
    assert (scope["raw_path"], scope["query_string"]) == (b"/queues/shop/a%20b", b"state=B&q=%C3%A4")


def is_bob(request):
    return request.user.username == "bob"


@pytest.mark.parametrize(
    ("user", "status"),
    [
        ({"name": ""}, 302),
        ({"is_staff": False}, 302),
        ({"is_superuser": False}, 403),
        ({"may": is_bob, "is_superuser": False}, 403),
        ({"may": is_bob, "name": "bob", "is_staff": False}, 207),
    ],
    ids=["nobody", "not of the staff", "no superuser", "whom the project does not name", "whom the project names"],
)
def test_an_application_that_is_no_console_of_xq_is_for_superusers_or_whom_the_project_names(mounted, user, status):
    app, browser = mounted(**user)
    answer = browser.get("/queues/shop")
    assert answer.status_code == status
    assert (app.scope is None) == (status != 207)
    assert answer.get("Location") == ("/admin/login/?next=/queues/shop" if status == 302 else None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"HTTP_SEC_FETCH_SITE": "cross-site"}, 403),
        ({"HTTP_SEC_FETCH_SITE": "same-site"}, 403),
        ({"HTTP_ORIGIN": "http://evil.example"}, 403),
        ({"HTTP_ORIGIN": "http://[evil"}, 403),
        ({"HTTP_ORIGIN": "null"}, 403),
        ({"HTTP_SEC_FETCH_SITE": "same-origin"}, 207),
        ({"HTTP_ORIGIN": "http://testserver"}, 207),
    ],
)
def test_a_request_that_another_site_sent_changes_nothing(mounted, headers, status):
    app, browser = mounted()
    answer = browser.post("/queues/kill", b"key=7", content_type="text/plain", **headers)
    assert answer.status_code == status
    assert app.body == (b"key=7" if status == 207 else b"")


def test_an_answer_in_pieces_is_a_stream_and_ends_when_the_browser_leaves(mounted):
    app, browser = mounted()
    answer = browser.get("/queues/stream")
    pieces = iter(answer.streaming_content)
    assert [next(pieces) for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    answer.close()
    assert app.left.wait(PATIENCE)
    app.left.clear()
    browser.get("/queues/stream").close()  # which nothing reads
    assert app.left.wait(PATIENCE)


def test_a_project_that_runs_under_asgi_gets_whole_answers_and_streams(mounted):
    app, browser = mounted(AsyncClient)

    async def read():
        whole = await browser.get("/queues/shop")
        stream = await browser.get("/queues/stream")
        pieces = aiter(stream)
        read = [await anext(pieces) for _ in range(3)]
        await asyncio.to_thread(stream.close)
        return whole.content, read

    assert asyncio.run(read()) == (b"GET ann", [b"0\n", b"1\n", b"2\n"])
    assert app.left.wait(PATIENCE)


def test_a_stream_of_events_begins_before_its_first_event(mounted):
    app, browser = mounted()
    answer = browser.get("/queues/events")
    assert answer["Content-Type"] == "text/event-stream"
    app.happened.set()
    assert b"".join(answer.streaming_content) == b"data: 1\n\n"


def test_what_the_application_raises_is_raised_by_the_view(mounted):
    _, browser = mounted()
    with pytest.raises(LookupError, match="broken"):
        browser.get("/queues/broken")
    with pytest.raises(RuntimeError, match="ended without an answer"):
        browser.get("/queues/silent")
