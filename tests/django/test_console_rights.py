"""Who may do what in the console of a queue at a URL of a Django project: what the admin would let them do."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import peewee
import pytest
from django.test import Client
from django.urls import include, path

import xq
import xq.serve
from tests.django.sites import EVERYTHING
from xq.adapters.django.console import console, user_of

pytestmark = pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # the database has no part in it


class Mounted:
    """The console of a queue at /queues/, beside the admin that has the queue."""

    def __init__(self, model: Any, site: Any, queues: Any = None, **options: Any) -> None:
        self.model, self.site = model, site
        app = xq.serve.app(queues or [model], user=user_of, hosts=["*"], live="poll")
        of_the_admin = console(app, **{"site": site.admin.admin_site, **options})
        vars(site.urls)["urlpatterns"].append(path("queues/", include(of_the_admin)))

    def client(self, *may: str) -> Client:
        client = self.site.client(*may)
        client.defaults |= {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ACCEPT": "text/html"}
        return client

    def act(self, client: Client, verb: str, task: Any) -> int:
        """The status of the answer to a verb on one task."""
        form = urlencode({"verb": verb, "scope": "selected", "keys": str(task.pk)})
        kind = "application/x-www-form-urlencoded"
        return int(client.post(f"/queues/q/{self.model.__name__}/act", form, content_type=kind).status_code)


def buried(Task: Any) -> Any:
    Task.put({"name": "a"})
    return Task.take().bury()


def test_a_member_of_the_staff_without_a_permission_on_the_model_sees_and_changes_nothing(manage):
    Task, site = manage()
    mounted, task = Mounted(Task, site), buried(Task)
    client = mounted.client("add")
    assert client.get("/queues/").status_code == 403
    assert [mounted.act(client, verb, task) for verb in ("dig", "kill")] == [403, 403]
    assert Task.xq.peek(task.pk).status == "B"


@pytest.mark.parametrize(
    ("may", "allowed"),
    [
        (["view"], []),
        (["change"], ["bury", "dig", "release", "restart"]),
        (["view", "delete"], ["kill"]),
        ([], ["bury", "dig", "kill", "release", "restart"]),
    ],
    ids=["view", "change", "delete", "a superuser"],
)
@pytest.mark.parametrize("registered", [True, False])
def test_a_user_may_view_change_and_kill_in_the_console_what_the_permissions_on_the_model_say(
    manage, may, allowed, registered
):
    Task, site = manage()
    mounted, task = Mounted(Task, site), buried(Task)
    if not registered:
        site.admin.admin_site.unregister(Task)
        client = Client(headers={"Sec-Fetch-Site": "same-origin", "Accept": "text/html"})
        client.force_login(site.user(*may))
    else:
        client = mounted.client(*may)
    assert client.get("/queues/").status_code == 200
    page = client.get(f"/queues/q/Task/task?key={task.pk}").content.decode()
    assert set(re.findall(r'name="verb" value="(\w+)"', page)) <= set(allowed)
    verbs = ("bury", "dig", "kill", "release", "restart")
    assert [verb for verb in verbs if mounted.act(client, verb, task) != 403] == allowed
    assert ("kill" not in allowed) == bool(Task.objects.filter(pk=task.pk))


def test_the_admin_of_the_model_may_allow_an_action_to_others(manage):
    attributes = {"has_dig_permission": lambda admin, request, obj=None: True}
    Task, site = manage(admin=attributes)
    mounted, task = Mounted(Task, site), buried(Task)
    client = mounted.client("view")
    assert (mounted.act(client, "kill", task), mounted.act(client, "dig", task)) == (403, 200)
    assert Task.xq.peek(task.pk).status == "R"


def test_the_admin_of_the_model_may_forbid_what_the_permissions_allow(manage):
    no = {f"has_{name}_permission": lambda admin, request, obj=None: False for name in ("change", "delete")}
    Task, site = manage(admin=no)
    mounted, task = Mounted(Task, site), buried(Task)
    client = mounted.client("view", "change", "delete")
    assert client.get("/queues/").status_code == 200
    assert {mounted.act(client, verb, task) for verb in ("bury", "dig", "kill", "release", "restart")} == {403}


def test_a_refusal_names_the_permissions_of_django(manage):
    Task, site = manage()
    mounted, task = Mounted(Task, site), buried(Task)
    client = mounted.client("view")
    form = urlencode({"verb": "kill", "scope": "selected", "keys": str(task.pk)})
    answer = client.post("/queues/q/Task/act", form, content_type="application/x-www-form-urlencoded")
    assert "in Django: the permissions on the models" in answer.content.decode()


def test_a_console_with_a_queue_of_another_orm_is_for_superusers(manage, tmp_path):
    class Page(peewee.Model):
        status = peewee.TextField(default="R")

        class Meta:
            database = peewee.SqliteDatabase(tmp_path / "pages.db")

    Page.create_table()
    xq.upgrade(Page, {"status": "status"}, {}).install()
    Task, site = manage()
    mounted = Mounted(Task, site, [Task, Page])
    assert mounted.client("view", "change", "delete").get("/queues/").status_code == 403
    assert mounted.client().get("/queues/").status_code == 200


def test_a_project_widens_it_by_saying_who_may_use_it_and_what_they_may(manage):
    Task, site = manage(EVERYTHING)
    mounted, task = Mounted(Task, site, may=lambda request: request.user.is_staff), buried(Task)
    client = mounted.client("view")
    assert mounted.act(client, "kill", task) == 200
    assert Task.objects.count() == 0
