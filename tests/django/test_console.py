"""An application at a URL of a Django project: who reaches it, what of its answers returns, and whose rights count."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any
from urllib.parse import urlencode

import peewee
import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import include, path
from starlette.responses import StreamingResponse

import xq
import xq.serve
from tests.django.on_tasks import asynchronously
from xq.adapters.django.console import console, user_of

pytestmark = pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # the database has no part in it


def mount(site: Any, app: Any, **options: Any) -> None:
    """Mount an application at /queues/, beside the admin of a site."""
    urls = console(app, **{"site": site.admin.admin_site, **options})
    vars(site.urls)["urlpatterns"].append(path("queues/", include(urls)))


def console_of(*queues: Any) -> Any:
    return xq.serve.app(queues, user=user_of, hosts=["*"])


def client_of(site: Any, *may: str, kind: Any = Client, **headers: str) -> Any:
    sent = headers or {"Sec-Fetch-Site": "same-origin"}
    client = kind(enforce_csrf_checks=True, headers={"Accept": "text/html", **sent})
    client.force_login(site.user(*may))
    return client


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application of some other make, which says what it gets, in pieces, until the browser leaves."""
    body = (await receive())["body"]
    if scope["path"].endswith("/broken"):
        raise LookupError("broken")
    found = {name: scope[name] for name in ("method", "path", "root_path")} | {"user": user_of(scope)}
    found |= {"query": scope["query_string"].decode(), "body": body.decode()}
    answer = StreamingResponse(iter(json.dumps(found).partition(",")), 207, {"X-From": "echo"}, "text/plain")
    answer.set_cookie("seen", "yes")
    await answer(scope, receive, send)


def test_another_application_is_for_superusers_gets_the_request_and_its_answer_returns(manage):
    _, site = manage()
    mount(site, echo)
    assert client_of(site, "view", "change", "delete").get("/queues/shop").status_code == 403
    client = client_of(site)
    answer = client.get("/queues/shop/a%20b?state=B&q=%C3%A4")
    assert (answer.status_code, answer["Content-Type"]) == (207, "text/plain; charset=utf-8")
    assert (answer["X-From"], answer.cookies["seen"].value) == ("echo", "yes")
    got = {"method": "GET", "user": "root", "query": "state=B&q=%C3%A4", "body": ""}
    assert json.loads(answer.content) == got | {"path": "/queues/shop/a b", "root_path": "/queues"}
    with pytest.raises(LookupError, match="broken"):
        client.get("/queues/broken")


def test_who_is_not_of_the_staff_is_sent_to_the_login(manage):
    Task, site = manage()
    mount(site, console_of(Task))
    clients = [Client(), client_of(site)]
    User.objects.update(is_staff=False)
    for client in clients:
        answer = client.get("/queues/q/Task")
        assert (answer.status_code, answer.get("Location")) == (302, "/admin/login/?next=/queues/q/Task")


@pytest.mark.parametrize(
    ("headers", "is_done"),
    [
        ({"X-Other": "header"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://[evil"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://testserver"}, True),
    ],
)
def test_a_request_that_another_site_sent_changes_nothing(manage, headers, is_done):
    _, site = manage()
    mount(site, echo)
    answer = client_of(site, **headers).post("/queues/kill", "key=7", content_type="text/plain")
    assert (answer.status_code, b"key=7" in answer.content) == ((207, True) if is_done else (403, False))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_console_has_pages_and_new_numbers_in_a_project_under_wsgi_or_asgi(manage, kind):
    Task, site = manage()
    mount(site, console_of(Task))
    browser = client_of(site, kind=kind)
    gets = (partial(browser.get, f"/queues/{path}") for path in ("q/Task", "part"))
    page, numbers = (get() if kind is Client else asynchronously(get) for get in gets)
    assert (page.status_code, numbers.status_code) == (200, 200)
    assert "/queues/q/Task" in numbers.content.decode()


def act(client: Client, verb: str, task: Any) -> Any:
    """The status of the answer to a verb on one task."""
    form = urlencode({"verb": verb, "scope": "selected", "keys": str(task.pk)})
    return client.post("/queues/q/Task/act", form, content_type="application/x-www-form-urlencoded").status_code


def test_a_button_works_where_each_request_is_a_transaction_that_locks_the_file(manage, monkeypatch):
    Task, site = manage()
    mount(site, console_of(Task))
    task, browser = Task.put({"name": "a"}), client_of(site)
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(connections["default"], "transaction_mode", "IMMEDIATE", raising=False)
    assert act(browser, "kill", task) == 200
    assert not Task.objects.exists()


NO = {f"has_{name}_permission": lambda admin, request, obj=None: False for name in ("change", "delete")}
DIG = {"has_dig_permission": lambda admin, request, obj=None: True}
CHANGES = ["bury", "dig", "release", "restart"]
VERBS = [*CHANGES, "kill"]
# who, with what rights on the model, what the project says -> the status of the page, and the verbs that are allowed
RIGHTS: dict[str, tuple[list[str], dict[str, Any], int, list[str]]] = {
    "no right to view": (["add"], {}, 403, []),
    "view": (["view"], {}, 200, []),
    "change": (["change"], {}, 200, CHANGES),
    "delete": (["view", "delete"], {}, 200, ["kill"]),
    "a superuser": ([], {}, 200, VERBS),
    "view, of a model without admin": (["view"], {"admin": None}, 200, []),
    "change, of a model without admin": (["change"], {"admin": None}, 200, CHANGES),
    "the admin allows to dig": (["view"], {"admin": DIG}, 200, ["dig"]),
    "the admin forbids": (["view", "change", "delete"], {"admin": NO}, 200, []),
    "the project allows": (["view"], {"may": lambda request: request.user.is_staff}, 200, VERBS),
    "the project does not": ([], {"may": lambda request: request.user.username == "bob"}, 403, []),
}


@pytest.mark.parametrize("who", RIGHTS)
def test_a_user_may_do_in_the_console_what_the_permissions_on_the_model_say(manage, who):
    may, said, status, allowed = RIGHTS[who]
    Task, site = manage(admin=said.get("admin"))
    mount(site, console_of(Task), may=said.get("may"))
    Task.put({"name": "a"})
    task = Task.take().bury()
    if said.get("admin", DIG) is None:
        site.admin.admin_site.unregister(Task)
    client = client_of(site, *may)
    assert client.get("/queues/").status_code == status
    page = client.get(f"/queues/q/Task/task?key={task.pk}").content.decode()
    assert set(re.findall(r'name="verb" value="(\w+)"', page)) <= set(allowed)
    assert [verb for verb in VERBS if act(client, verb, task) != 403] == allowed
    assert ("kill" not in allowed) == bool(Task.objects.filter(pk=task.pk))


@pytest.mark.parametrize(("may", "status"), [(["view", "change"], 403), (["view", "add"], 303)])
def test_who_may_add_may_run_a_schedule(manage, may, status):
    Task, site = manage()
    mount(site, console_of(Task))
    Task.xq.every("@daily", {"name": "a"}, name="daily")
    form = urlencode({"verb": "run", "schedule": "daily"})
    kind = "application/x-www-form-urlencoded"
    assert client_of(site, *may).post("/queues/q/Task/schedule", form, content_type=kind).status_code == status
    assert Task.xq.count() == (status == 303)


def test_a_console_with_rows_that_the_admin_does_not_show_is_for_superusers(manage, tmp_path):
    class Page(peewee.Model):
        status = peewee.TextField(default="R")

        class Meta:
            database = peewee.SqliteDatabase(tmp_path / "pages.db")

    Page.create_table()
    xq.upgrade(Page, {"status": "status"}, {}).install()
    Task, site = manage()
    mount(site, console_of(Task, Page))
    assert client_of(site, "view", "change", "delete").get("/queues/").status_code == 403
    assert client_of(site).get("/queues/").status_code == 200
    vars(site.urls)["urlpatterns"].pop()
    type(site.admin).get_queryset = lambda self, request: Task.objects.none()
    mount(site, console_of(Task))
    assert client_of(site, "view").get("/queues/").status_code == 403, "the admin limits the rows"
