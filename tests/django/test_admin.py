"""Queues in Django's admin, without a browser: what a page has, who may do what, and what is told."""

from __future__ import annotations

import html
import re
from contextvars import copy_context
from typing import Any

import pytest
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connections, models
from django.test.utils import CaptureQueriesContext, override_settings

import xq
from tests.django.sites import EVERYTHING, TABLES, Site, actions_of, messages_of, one_of_each
from xq.adapters.django import upgrade
from xq.adapters.django.admin import BATCH, QueueAdmin


def state_of(task: Any) -> str:
    return str(type(task).xq.peek(task.pk).status)


def words(page: str) -> list[str]:
    """The coloured words in the list."""
    return re.findall(r'field-xq_state">(?:<span class="xq-state xq-\w" title="[^"]*">)?([^<]*)<', page)


def counts(page: str) -> dict[str, str]:
    """How many tasks the filter says there are, by state."""
    items = re.findall(r'<a href="\?[^"]*">(.*?) <span class="xq-count">(.*?)</span>', page)
    return {re.sub("<.*?>", "", name): n for name, n in items}


# what a list shows


def test_a_list_shows_states_as_words_and_how_many_tasks_are_in_each(manage):
    Task, site = manage()
    one_of_each(Task)
    Task.xq.put_many({"name": "more"} for _ in range(20))
    page = site.client("view").get(f"{site.list}?p=3").content.decode()
    assert words(page) == ["waiting", "ready", "taken", "done", "buried"]
    assert counts(page) == {"All": "25", "ready": "21", "taken": "1", "waiting": "1", "buried": "1", "done": "1"}
    assert "xq/admin.css" in page


def test_a_list_can_be_filtered_and_sorted_by_state(manage):
    Task, site = manage(statuses={"R": "new", "T": "packing", "W": "later", "B": "failed", "D": "mailed"})
    one_of_each(Task)
    client = site.client("view")
    assert words(client.get(f"{site.list}?xq_state=B").content.decode()) == ["failed"]
    assert words(client.get(f"{site.list}?o=1").content.decode()) == ["failed", "later", "mailed", "new", "packing"]
    assert client.get(f"{site.list}?xq_state=Q").headers["Location"] == f"{site.list}?e=1"


def test_a_row_that_is_no_task_shows_what_it_holds_and_is_not_counted(manage):
    Task, site = manage()
    Task.objects.create(name="a draft", status="draft")
    page = site.client("view").get(site.list).content.decode()
    assert words(page) == ["draft"]
    assert counts(page)["All"] == "0"
    told = site.act(site.client(), "kill", Task.objects.all(), post="yes")
    assert told == [f"1 task was not killed: {Task.objects.get()} (its row has a status that is not the queue's)."]


def test_a_list_of_a_queue_that_is_not_installed_says_so_and_shows_the_rows(manage):
    Task, site = manage()
    Task.xq.put_many([{"name": "one"}, {"name": "two"}])
    Task.xq.uninstall()
    client = site.client()
    response = client.get(site.list)
    page = response.content.decode()
    assert words(page) == ["ready", "ready"]
    assert set(counts(page).values()) == {"?"}
    (told,) = messages_of(response)
    assert "is not installed" in told
    by_action, by_list = site.act(client, "restart", Task.objects.all())  # once, not for each task
    assert by_action == by_list == told


class ReadsElsewhere:
    """A router that has tasks written to the default database, and read from another."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.model_name == "task" else None


def test_a_list_reads_where_the_queue_is_and_not_from_a_replica(manage, other):
    Task, site = manage()
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    task = Task.put({"name": "not there yet"})
    with override_settings(DATABASE_ROUTERS=[ReadsElsewhere()]):
        client = site.client()
        assert words(client.get(site.list).content.decode()) == ["ready"]
        assert site.act(client, "kill", [task], post="yes") == ["1 task was killed."]


def test_a_queue_on_another_database_is_shown_and_moved_and_written_there(make, django_db, other):
    meta = {"app_label": "shop", "apps": Apps(["tests.django.shop"])}
    Task = django_db.model(meta=meta)
    upgrade(Task, {"status": "status", "runat": "runat"}, {"delayed": True, "buried": True}, using=other)
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    Task.xq.install()
    django_db.create(*TABLES)
    site = Site(Task)
    Task.put({"name": "buried"})
    buried = Task.take().bury()
    with override_settings(ROOT_URLCONF=site.urls):
        client = site.client()
        page = client.get(site.list).content.decode()
        assert words(page) == ["buried"]
        assert counts(page)["buried"] == "1"
        assert site.act(client, "dig", [buried]) == ["1 task was dug out."]
        form = {"name": "added", "size": "3"}
        assert client.post(f"{site.list}add/", form).status_code == 302
        assert client.post(f"{site.list}{buried.pk}/change/", form | {"name": "changed"}).status_code == 302
        assert site.act(client, "kill", Task.xq.by_state("R")[1:], post="yes")[-1] == "1 task was killed."
    assert [task.name for task in Task.objects.using(other).order_by("pk")] == ["changed"]
    assert Task.xq.check() == []


# who may do what


@pytest.mark.parametrize(
    ("may", "offered"),
    [
        (["view"], []),
        (["change"], ["dig", "release", "restart", "put"]),
        (["view", "delete"], ["delete_selected", "kill"]),
    ],
    ids=["view", "change", "delete"],
)
def test_actions_are_for_those_who_may_change_tasks_and_kill_for_those_who_may_delete(manage, may, offered):
    Task, site = manage()
    buried = one_of_each(Task)["B"]
    client = site.client(*may)
    assert actions_of(client.get(site.list)) == offered
    for action in {"dig", "kill"} - set(offered):
        site.act(client, action, [buried], post="yes")
        assert state_of(buried) == "B"


def test_an_application_says_itself_who_may_do_what(manage):
    Task, site = manage(admin={"has_dig_permission": lambda self, request, obj=None: request.user.username == "digger"})
    buried = one_of_each(Task)["B"]
    site.act(site.client("change"), "dig", [buried])
    assert state_of(buried) == "B"


def test_a_queue_offers_only_what_it_can_do(manage):
    Task, site = manage({}, roles=())
    Task.put({})
    assert actions_of(site.client().get(site.list)) == ["delete_selected", "release", "put", "kill"]


def test_an_admin_without_actions_stays_without(manage):
    Task, site = manage(admin={"actions": None})
    Task.put({})
    assert actions_of(site.client().get(site.list)) == []


# actions


def test_an_action_tells_how_many_it_moved_and_names_the_others_with_the_reason(manage):
    Task, site = manage()
    tasks = one_of_each(Task)
    told = site.act(site.client("change"), "dig", tasks.values())
    assert told == [
        "1 task was dug out.",
        "4 tasks were not dug out: a task in D (it is done), a task in T (it is taken), a task in R (it is ready), "
        "a task in W (it is waiting).",
    ]
    assert state_of(tasks["B"]) == "R"


def test_release_asks_and_then_takes_a_task_away_from_its_owner(manage):
    Task, site = manage()
    Task.put({"name": "in hand"})
    of_another, session = copy_context(), Task.xq.session()
    of_another.run(session.__enter__)
    taken = of_another.run(Task.take)
    with pytest.raises(xq.NotOwner):
        Task.release(taken.pk)
    client = site.client("change")
    page = client.post(site.list, {"action": "release", "_selected_action": [str(taken.pk)]}).content.decode()
    assert "Release 1 task?" in page
    assert "in hand" in page
    assert state_of(taken) == "T"
    assert site.act(client, "release", [taken], post="yes") == ["1 task was released."]
    with pytest.raises(xq.WrongState):
        of_another.run(taken.ack)
    of_another.run(session.__exit__, None, None, None)


def test_restart_does_what_is_done_once_more(manage):
    Task, site = manage()
    tasks = one_of_each(Task)
    told = site.act(site.client("change"), "restart", [tasks["D"], tasks["W"]])
    assert told == ["2 tasks were restarted."]
    assert (state_of(tasks["D"]), state_of(tasks["W"])) == ("R", "R")


def test_kill_asks_and_then_deletes_in_whatever_state(manage):
    Task, site = manage()
    tasks = one_of_each(Task)
    client = site.client("view", "delete")
    keys = [str(task.pk) for task in tasks.values()]
    page = client.post(site.list, {"action": "kill", "_selected_action": keys}).content.decode()
    assert "Kill 5 tasks?" in page
    assert Task.xq.count() == 5
    assert site.act(client, "kill", tasks.values(), post="yes") == ["5 tasks were killed."]
    assert Task.xq.count() == Task.objects.count() == 0


def test_what_is_done_stands_in_the_history_of_the_admin(manage):
    Task, site = manage()
    buried = one_of_each(Task)["B"]
    client = site.client()
    site.act(client, "dig", [buried])
    assert [(e.user.username, e.object_id, e.change_message) for e in LogEntry.objects.all()] == [
        ("root", str(buried.pk), "Dug out.")
    ]
    assert "Dug out." in client.get(f"{site.list}{buried.pk}/history/").content.decode()


def test_a_task_that_others_refer_to_is_not_killed_and_the_message_says_why(manage, django_db):
    Task, site = manage()
    Line = django_db.model("Line", task=models.ForeignKey(Task, models.PROTECT))
    django_db.create(Line)
    kept, other = Task.put({"name": "kept"}), Task.put({"name": "other"})
    Line.objects.create(task_id=kept.pk)
    killed, refused = site.act(site.client(), "kill", [kept, other], post="yes")
    assert killed == "1 task was killed."
    assert refused.startswith("1 task was not killed: kept (")
    assert [task.name for task in Task.objects.all()] == ["kept"]


def test_a_kill_that_is_a_transaction_of_its_own_reads_no_table_that_refers_to_tasks(manage, django_db):
    Task, site = manage()
    meta = {"app_label": "shop", "apps": Task._meta.apps}
    Parcel = django_db.model("Parcel", meta, task=models.ForeignKey(Task, models.PROTECT))
    django_db.create(Parcel)
    client, tasks = site.client(), [Task.put({"name": name}) for name in ("one", "two")]
    with CaptureQueriesContext(connections["default"]) as seen:
        assert site.act(client, "kill", tasks, post="yes") == ["2 tasks were killed."]
    checks = [each["sql"] for each in seen if "parcel" in each["sql"] or "CONSTRAINTS" in each["sql"]]
    assert checks == []


def test_an_action_reaches_all_that_match_beyond_the_page_and_what_is_in_memory_at_once(manage):
    Task, site = manage()
    Task.objects.bulk_create(Task(name=f"task {n}", status="B") for n in range(BATCH + 1))
    ready = Task.put({"name": "ready"})
    client = site.client("change")
    response = client.post(
        f"{site.list}?xq_state=B",
        {"action": "dig", "_selected_action": [str(Task.objects.first().pk)], "select_across": "1"},
        follow=True,
    )
    assert messages_of(response) == [f"{BATCH + 1} tasks were dug out."]
    assert Task.xq.stats().counts["R"] == BATCH + 2
    assert site.act(client, "dig", [ready], select_across="1") == [
        f"{BATCH + 2} tasks were not dug out: "
        + ", ".join(f"task {n} (it is ready)" for n in range(10))
        + f" and {BATCH - 8} more."
    ]


def test_what_is_asked_about_all_that_match_is_then_done_to_all_that_match(manage):
    Task, site = manage()
    Task.xq.put_many({"name": f"task {n}"} for n in range(12))
    client = site.client()
    one = {"action": "kill", "_selected_action": [str(Task.objects.first().pk)], "select_across": "1"}
    page = client.post(site.list, one).content.decode()
    assert "Kill 12 tasks?" in page
    assert "and 2 more" in page
    form = page.partition('<form method="post">')[2].partition("</form>")[0]
    answered = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert messages_of(client.post(site.list, answered, follow=True)) == ["12 tasks were killed."]
    assert not Task.objects.exists()


def test_actions_work_whatever_the_methods_of_the_queue_return(manage):
    Task, site = manage(EVERYTHING | {"retval": "dict"})
    Task.put({"name": "one"})
    Task.bury(Task.take()["id"])
    assert site.act(site.client(), "dig", Task.objects.all()) == ["1 task was dug out."]


# forms


def test_a_form_shows_what_only_the_queue_writes_and_does_not_write_it(manage):
    fields = ["name", "size", "status", "runat", "owner", "attempts"]
    Task, site = manage(roles=("runat", "owner", "attempts"), admin={"fields": fields})
    Task.put({"name": "old"})
    taken = Task.take()
    client = site.client("view", "change")
    page = html.unescape(client.get(f"{site.list}{taken.pk}/change/").content.decode())
    names = set(re.findall(r'<(?:input|select|textarea)[^>]* name="(\w+)"', page))
    assert {"name", "size"} <= names
    assert not names & {"status", "runat", "owner", "attempts", "runat_0"}
    assert taken.owner in page
    form = {"name": "new", "size": "3", "status": "D", "owner": "me", "attempts": "9", "runat": "1"}
    assert client.post(f"{site.list}{taken.pk}/change/", form).status_code == 302
    now = Task.xq.peek(taken.pk)
    assert (now.name, now.size, now.status, now.owner, now.attempts) == ("new", 3, "T", taken.owner, 1)
    assert taken.ack().status == "D"


def test_a_form_saved_while_a_worker_takes_the_task_leaves_it_taken(manage):
    def save_model(self, request, task, form, change):
        Task.take()
        admin.ModelAdmin.save_model(self, request, task, form, change)

    Task, site = manage(admin={"save_model": save_model})
    task = Task.put({"name": "old"})
    client = site.client("view", "change")
    form = {"name": "new", "size": "3"}
    assert client.post(f"{site.list}{task.pk}/change/", form).status_code == 302
    now = Task.xq.peek(task.pk)
    assert (now.name, now.status) == ("new", "T")


def test_the_status_of_a_row_that_is_no_task_is_edited_as_ever_and_makes_it_one(manage):
    Task, site = manage(statuses={"R": "paid", "T": "packing", "W": "later", "B": "failed", "D": "mailed"})
    order = Task.objects.create(name="an order", status="open")
    client = site.client("view", "change")
    page = f"{site.list}{order.pk}/change/"
    form = {"name": "an order", "size": "3"}
    assert client.post(page, form | {"status": "cancelled"}).status_code == 302
    assert Task.objects.get().status == "cancelled"
    assert Task.take() is None
    assert client.post(page, form | {"status": "paid"}).status_code == 302
    assert Task.take().pk == order.pk
    assert client.post(page, form | {"status": "cancelled"}).status_code == 302
    assert Task.objects.get().status == "packing"


def test_an_admin_that_shows_the_status_read_only_shows_it_so_in_all_rows(manage):
    Task, site = manage(admin={"readonly_fields": ["status"]})
    draft = Task.objects.create(name="a draft", status="draft")
    page = site.client("view", "change").get(f"{site.list}{draft.pk}/change/").content.decode()
    assert 'name="status"' not in page


def test_a_row_added_in_the_admin_is_a_task(manage):
    Task, site = manage()
    form = {"name": "by hand", "size": "3"}
    assert site.client().post(f"{site.list}add/", form).status_code == 302
    assert Task.take().name == "by hand"


# what does not fit


def plain() -> Any:
    from django.apps.registry import Apps

    own = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "plain", "apps": Apps()})}
    return type("Plain", (models.Model,), own)


def test_a_model_that_is_no_queue_is_refused_by_name():
    with pytest.raises(xq.ConfigurationError, match="QueueAdmin, and Plain is no queue: upgrade it"):
        QueueAdmin(plain(), admin.AdminSite())


def test_a_list_in_which_the_state_could_be_edited_is_refused(manage):
    with pytest.raises(xq.ConfigurationError, match=r"TaskAdmin\.list_editable has status, which only the queue"):
        manage(admin={"list_display": ["name", "status"], "list_editable": ["status"]})


def test_the_admin_passes_the_checks_of_django(manage):
    _, site = manage(admin={"list_display": ["name", "xq_state", "size"], "list_filter": ["tube"]})
    assert site.admin.check() == []
