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


NO = {f"has_{name}_permission": lambda admin, request, obj=None: False for name in ("change", "delete")}
DIG = {"has_dig_permission": lambda admin, request, obj=None: True}
VERBS = ["bury", "dig", "kill", "release", "restart"]
CHANGES = ["bury", "dig", "release", "restart"]
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
}


@pytest.mark.parametrize("who", RIGHTS)
def test_a_user_may_do_in_the_console_what_the_permissions_on_the_model_say(manage, who):
    may, said, status, allowed = RIGHTS[who]
    Task, site = manage(admin=said.get("admin"))
    mounted, task = Mounted(Task, site, **{"may": said["may"]} if "may" in said else {}), buried(Task)
    if said.get("admin", DIG) is None:
        site.admin.admin_site.unregister(Task)
        client = Client(headers={"Sec-Fetch-Site": "same-origin", "Accept": "text/html"})
        client.force_login(site.user(*may))
    else:
        client = mounted.client(*may)
    assert client.get("/queues/").status_code == status
    page = client.get(f"/queues/q/Task/task?key={task.pk}").content.decode()
    assert set(re.findall(r'name="verb" value="(\w+)"', page)) <= set(allowed)
    assert [verb for verb in VERBS if mounted.act(client, verb, task) != 403] == allowed
    assert ("kill" not in allowed) == bool(Task.objects.filter(pk=task.pk))


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
