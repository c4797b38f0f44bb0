"""The list of a queue in Django's admin, without a browser: what it has, who may do what, and what is told."""

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
from django.test.utils import override_settings

import xq
from tests.django.sites import EVERYTHING, TABLES, Site, actions_of, messages_of, one_of_each
from xq.adapters.django import upgrade
from xq.adapters.django.admin import BATCH, QueueAdmin

MAILED = {"R": "new", "T": "packing", "W": "later", "B": "failed", "D": "mailed"}


def state_of(task: Any) -> str:
    found = type(task).objects.filter(pk=task.pk).first()
    return str(found.status) if found else "X"


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
    Task, site = manage(statuses=MAILED)
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


def test_a_queue_on_another_database_is_shown_and_moved_and_written_there(django_db, other):
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
        assert counts(client.get(site.list).content.decode())["buried"] == "1"
        assert site.act(client, "dig", [buried]) == ["1 task was dug out."]
        form = {"name": "added", "size": "3"}
        assert client.post(f"{site.list}add/", form).status_code == 302
        assert client.post(f"{site.list}{buried.pk}/change/", form | {"name": "changed"}).status_code == 302
        assert site.act(client, "kill", Task.xq.by_state("R")[1:], post="yes")[-1] == "1 task was killed."
    assert [task.name for task in Task.objects.using(other).order_by("pk")] == ["changed"]


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


def is_digger(self: Any, request: Any, obj: Any = None) -> bool:
    return bool(request.user.username == "digger")


@pytest.mark.parametrize(
    ("made", "offered"),
    [
        ({"features": {}, "roles": ()}, ["delete_selected", "release", "put", "kill"]),
        ({"admin": {"actions": None}}, []),
        ({"admin": {"has_dig_permission": is_digger}}, ["delete_selected", "release", "restart", "put", "kill"]),
    ],
    ids=["a queue without features", "an admin without actions", "an admin that says who may dig"],
)
def test_a_list_offers_what_the_queue_can_do_and_the_admin_of_the_application_allows(manage, made, offered):
    Task, site = manage(**made)
    Task.put({})
    assert actions_of(site.client().get(site.list)) == offered


# actions: on the tasks in these states -> what is told, what stands in the log, the states of B, D, T, R and W

NOT_DUG = "a task in D (it is done), a task in T (it is taken), a task in R (it is ready), a task in W (it is waiting)"
ACTIONS = {
    "dig": ("BDTRW", ["1 task was dug out.", f"4 tasks were not dug out: {NOT_DUG}."], "Dug out.", "RDTRW"),
    "restart": ("DW", ["2 tasks were restarted."], "Restarted.", "BRTRR"),
    "release": ("T", ["1 task was released."], "Released.", "BDRRW"),
    "kill": ("BDTRW", ["5 tasks were killed."], "Killed.", "XXXXX"),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("features", [EVERYTHING, EVERYTHING | {"retval": "dict"}], ids=["", "dictionaries"])
def test_an_action_tells_how_many_it_moved_and_names_the_others_with_the_reason(manage, action, features):
    letters, told, logged, after = ACTIONS[action]
    if "retval" in features and action != "dig":
        return  # one of them shows it
    Task, site = manage(features)
    keys = [Task.objects.create(name=f"a task in {letter}", status=letter).pk for letter in "BDTRW"]
    tasks = [task for task in Task.objects.order_by("pk") if task.status in letters]
    client = site.client()
    if action in ("release", "kill"):
        asked = {"action": action, "_selected_action": [str(task.pk) for task in tasks]}
        page = client.post(site.list, asked).content.decode()
        assert f"{action.title()} {len(tasks)} task" in page
        assert "a task in T" in page
        assert "".join(Task.objects.order_by("pk").values_list("status", flat=True)) == "BDTRW"
    assert site.act(client, action, tasks, post="yes") == told
    assert "".join(state_of(Task(pk=key)) for key in keys) == after
    assert {(e.user.username, e.change_message) for e in LogEntry.objects.all()} == {("root", logged)}


def test_release_takes_a_task_away_from_its_owner(manage):
    Task, site = manage()
    Task.put({"name": "in hand"})
    of_another, session = copy_context(), Task.xq.session()
    of_another.run(session.__enter__)
    taken = of_another.run(Task.take)
    with pytest.raises(xq.NotOwner):
        Task.release(taken.pk)
    assert site.act(site.client("change"), "release", [taken], post="yes") == ["1 task was released."]
    with pytest.raises(xq.WrongState):
        of_another.run(taken.ack)
    of_another.run(session.__exit__, None, None, None)


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


def test_an_action_reaches_all_that_match_beyond_the_page_and_what_is_in_memory_at_once(manage):
    Task, site = manage()
    Task.objects.bulk_create(Task(name=f"task {n}", status="B") for n in range(BATCH + 1))
    ready = Task.put({"name": "ready"})
    client = site.client("change")
    chosen = {"action": "dig", "_selected_action": [str(Task.objects.first().pk)], "select_across": "1"}
    response = client.post(f"{site.list}?xq_state=B", chosen, follow=True)
    assert messages_of(response) == [f"{BATCH + 1} tasks were dug out."]
    (told,) = site.act(client, "dig", [ready], select_across="1")
    assert told.startswith(f"{BATCH + 2} tasks were not dug out: task 0 (it is ready), ")
    assert told.endswith(f", task 9 (it is ready) and {BATCH - 8} more.")


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


# forms

FORM = {"name": "new", "size": "3"}


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
    form = FORM | {"status": "D", "owner": "me", "attempts": "9", "runat": "1"}
    assert client.post(f"{site.list}{taken.pk}/change/", form).status_code == 302
    now = Task.xq.peek(taken.pk)
    assert (now.name, now.size, now.status, now.owner, now.attempts) == ("new", 3, "T", taken.owner, 1)


def test_a_form_saved_while_a_worker_takes_the_task_leaves_it_taken(manage):
    def save_model(self, request, task, form, change):
        Task.take()
        admin.ModelAdmin.save_model(self, request, task, form, change)

    Task, site = manage(admin={"save_model": save_model})
    task = Task.put({"name": "old"})
    assert site.client("view", "change").post(f"{site.list}{task.pk}/change/", FORM).status_code == 302
    now = Task.xq.peek(task.pk)
    assert (now.name, now.status) == ("new", "T")


def test_the_status_of_a_row_that_is_no_task_is_edited_as_ever_and_makes_it_one(manage):
    Task, site = manage(statuses=MAILED | {"R": "paid"})
    order = Task.objects.create(name="an order", status="open")
    client = site.client()
    page = f"{site.list}{order.pk}/change/"
    for status, then in (("cancelled", "cancelled"), ("paid", "paid"), ("cancelled", "paid")):
        assert client.post(page, FORM | {"status": status}).status_code == 302
        assert Task.objects.get().status == then
    assert Task.take().pk == order.pk


# what does not fit


def test_a_list_in_which_the_state_could_be_edited_is_refused(manage):
    with pytest.raises(xq.ConfigurationError, match=r"TaskAdmin\.list_editable has status, which only the queue"):
        manage(admin={"list_display": ["name", "status"], "list_editable": ["status"]})


def test_the_admin_passes_the_checks_of_django_on_a_queue_and_is_refused_on_another_model(django_db, manage):
    _, site = manage(admin={"list_display": ["name", "xq_state", "size"], "list_filter": ["tube"]})
    assert site.admin.check() == []
    with pytest.raises(xq.ConfigurationError, match="QueueAdmin, and Plain is no queue: upgrade it"):
        QueueAdmin(django_db.model("Plain"), admin.AdminSite())
