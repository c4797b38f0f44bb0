"""The list of a queue in Django's admin, without a browser: what it has, who may do what, and what is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.test.utils import override_settings

import xq
from tests.django.sites import TABLES, Site, actions_of, messages_of, one_of_each
from xq.adapters.django import upgrade
from xq.adapters.django.admin import IN_MEMORY, QueueAdmin

MAILED = {"R": "new", "T": "packing", "W": "later", "B": "failed", "D": "mailed"}


def state_of(task: Any) -> str:
    found = type(task).objects.filter(pk=task.pk).first()
    return str(found.status) if found else "X"


def words(page: str) -> list[str]:
    """The coloured words in the list."""
    return re.findall(r'field-xq_state">(?:<span class="xq-state xq-\w" title="[^"]*">)?([^<]*)<', page)


def counts(page: str) -> dict[str, str]:
    """How many tasks the filter says there are, by state."""
    return dict(re.findall(r'<a href="\?[^"]*xq_state=[^"]*">\s*(.*?) \((.*?)\)\s*</a>', page))


# what a list shows


def test_a_list_shows_states_as_words_and_how_many_tasks_are_in_each(manage):
    Task, site = manage()
    one_of_each(Task)
    Task.xq.put_many({"name": "more"} for _ in range(20))
    page = site.client("view").get(f"{site.list}?p=3").content.decode()
    assert words(page) == ["waiting", "ready", "taken", "done", "buried"]
    assert counts(page) == {"ready": "21", "taken": "1", "waiting": "1", "buried": "1", "done": "1"}
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
    assert set(counts(page).values()) == {"0"}
    told = site.act(site.client(), "kill", Task.objects.all(), post="yes")
    assert told == [f"1 task was not killed: {Task.objects.get()} (its row has a status that is not the queue's)."]


def test_a_queue_on_another_database_is_shown_and_moved_and_written_there(django_db, other):
    Task = django_db.model(meta={"app_label": "shop", "apps": Apps(["tests.django.shop"])})
    upgrade(Task, {"status": "status", "runat": "runat"}, {"delayed": True, "buried": True}, using=other)
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    Task.xq.install()
    django_db.create(*TABLES)
    site, form = Site(Task), {"name": "added", "size": "3"}
    Task.put({"name": "buried"})
    buried = Task.take().bury()
    with override_settings(ROOT_URLCONF=site.urls):
        client = site.client()
        assert counts(client.get(site.list).content.decode())["buried"] == "1"
        assert site.act(client, "dig", [buried]) == ["1 task was dug."]
        assert client.post(f"{site.list}add/", form).status_code == 302
        assert client.post(f"{site.list}{buried.pk}/change/", form | {"name": "changed"}).status_code == 302
        assert site.act(client, "kill", Task.xq.by_state("R")[1:], post="yes")[-1] == "1 task was killed."
    assert [task.name for task in Task.objects.using(other).order_by("pk")] == ["changed"]


MAY = {"view": [], "change": ["dig", "release", "restart"], "view delete": ["delete_selected", "cancel", "kill"]}


def test_actions_are_for_those_who_may_change_tasks_and_kill_for_those_who_may_delete(manage):
    Task, site = manage()
    buried = one_of_each(Task)["B"]
    for may, offered in MAY.items():
        client = site.client(*may.split())
        assert actions_of(client.get(site.list)) == offered, may
        for action in {"dig", "cancel", "kill"} - set(offered):
            site.act(client, action, [buried], post="yes")
            assert state_of(buried) == "B", (may, action)


# actions: on the tasks in these states -> what is told, what stands in the log, the states of B, D, T, R and W

NOT_DUG = "a task in D (it is done), a task in T (it is taken), a task in R (it is ready), a task in W (it is waiting)"
ACTIONS = {
    "dig": ("BDTRW", ["1 task was dug.", f"4 tasks were not dug: {NOT_DUG}."], "Dug.", "RDTRW"),
    "restart": ("DW", ["2 tasks were restarted."], "Restarted.", "BRTRR"),
    "release": ("T", ["1 task was released."], "Released.", "BDRRW"),
    "cancel": ("TRW", ["3 tasks were cancelled."], "Cancelled.", "BDXXX"),
    "kill": ("BDTRW", ["5 tasks were killed."], "Killed.", "XXXXX"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_tells_how_many_it_moved_and_names_the_others_with_the_reason(manage, action):
    letters, told, logged, after = ACTIONS[action]
    Task, site = manage()
    keys = [Task.objects.create(name=f"a task in {letter}", status=letter).pk for letter in "BDTRW"]
    tasks = [task for task in Task.objects.order_by("pk") if task.status in letters]
    client = site.client()
    if action != "dig":  # which asks only if the queue counts attempts
        assert site.act(client, action, tasks) == []
        assert "".join(Task.objects.order_by("pk").values_list("status", flat=True)) == "BDTRW"
    assert site.act(client, action, tasks, post="yes") == told
    assert "".join(state_of(Task(pk=key)) for key in keys) == after
    assert {(e.user.username, e.change_message) for e in LogEntry.objects.all()} == {("root", logged)}


def test_an_action_reaches_all_that_match_beyond_the_page_and_what_is_in_memory_at_once(manage):
    Task, site = manage()
    Task.objects.bulk_create(Task(name=f"task {n}", status="B") for n in range(IN_MEMORY + 1))
    client, all_of_them = site.client(), [Task.objects.first()]
    assert site.act(client, "dig", all_of_them, select_across="1") == [f"{IN_MEMORY + 1:,} tasks were dug."]
    (told,) = site.act(client, "dig", all_of_them, select_across="1")
    assert told.startswith(f"{IN_MEMORY + 1:,} tasks were not dug: task 0 (it is ready), ")
    assert told.endswith(f", task 9 (it is ready) and {IN_MEMORY - 9} more.")
    asked = {"action": "kill", "_selected_action": [str(all_of_them[0].pk)], "select_across": "1"}
    page = client.post(site.list, asked).content.decode()
    assert f"Kill {IN_MEMORY + 1:,} tasks?" in page
    form = page.partition('<form method="post">')[2].partition("</form>")[0]
    answered = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert messages_of(client.post(site.list, answered, follow=True)) == [f"{IN_MEMORY + 1:,} tasks were killed."]


def test_a_dig_says_how_many_attempts_are_left_and_offers_fresh_ones(manage):
    Task, site = manage(roles=("owner", "attempts", "error"))

    @Task.xq.worker(max_attempts=5)
    def work(task):
        raise AssertionError("is not called")

    for had in (5, 1):
        Task.objects.create(name=f"task {had}", status="B", attempts=had, error="Timeout: 3 s")
    tired, young = Task.objects.order_by("pk")
    client = site.client()
    asked = {"action": "dig", "_selected_action": [tired.pk, young.pk]}
    page = client.post(site.list, asked).content.decode()
    assert "Dig 2 tasks?" in page
    assert re.findall(r"<li>(task .*)</li>", page) == [
        "task 1: 1 attempt, 4 left of 5",
        "task 5: 5 attempts, 1 left of 5",
    ]
    assert site.act(client, "dig", [tired], post="yes") == ["1 task was dug."]
    assert site.act(client, "dig", [young], post="yes", fresh="Yes") == ["1 task was dug."]
    assert list(Task.objects.order_by("pk").values_list("attempts", "error")) == [(5, "Timeout: 3 s"), (0, None)]


@pytest.mark.parametrize("named", ["", "restart", "restart cancel kill"])
def test_a_model_with_words_of_its_own_has_no_action_that_repeats_or_deletes_until_it_is_named(manage, named):
    Task, site = manage(statuses=MAILED, admin={"xq_actions": named.split()})
    done, client = one_of_each(Task)["D"], site.client()
    assert actions_of(client.get(site.list))[1:] == ["dig", "release", *named.split()]
    site.act(client, "restart", [done], post="yes")
    assert state_of(done) == ("new" if named else "mailed")
    wrong: Any = type("TaskAdmin", (QueueAdmin, admin.ModelAdmin), {"xq_actions": ["ship"]})
    with pytest.raises(xq.ConfigurationError, match="xq_actions has 'ship', and names some of dig, release, restart"):
        wrong(Task, admin.AdminSite())


def test_a_chunk_of_an_action_stays_though_a_later_one_fails_and_the_actions_of_others_keep_their_transaction(
    manage, monkeypatch
):
    def of_the_application(of_model, request, queryset):
        queryset.update(size=7)
        raise OSError("by the application")

    def has_dig_permission(self, request, obj=None):
        if obj is not None and obj.name == "the last":
            raise OSError("by the application")
        return True

    Task, site = manage(admin={"actions": [of_the_application], "has_dig_permission": has_dig_permission})
    Task.objects.bulk_create(Task(name="one", status="B") for _ in range(IN_MEMORY))
    Task.objects.create(name="the last", status="B")
    client = site.client()
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    for action in ("dig", "of_the_application"):
        with pytest.raises(OSError, match="by the application"):
            site.act(client, action, Task.objects.all()[:1], select_across="1")
    assert (Task.xq.stats().counts["R"], Task.xq.stats().counts["B"]) == (IN_MEMORY, 1)
    assert LogEntry.objects.count() == IN_MEMORY
    assert not Task.objects.filter(size=7).exists()


# forms

FORM = {"name": "new", "size": "3"}


def test_a_form_shows_what_only_the_queue_writes_and_does_not_write_it(manage):
    fields = ["name", "size", "status", "runat", "owner", "attempts"]
    Task, site = manage(roles=("runat", "owner", "attempts"), admin={"fields": fields})
    Task.put({"name": "old"})
    taken, client = Task.take(), site.client()
    page, added = f"{site.list}{taken.pk}/change/", f"{site.list}add/"
    for form, names in ((page, {"name", "size"}), (added, {"name", "size"})):
        inputs = re.findall(r'<(?:input|select|textarea)[^>]* name="(\w+)"', client.get(form).content.decode())
        assert {*fields, "runat_0"} & set(inputs) == names
    assert taken.owner in client.get(page).content.decode()
    posted = FORM | {"status": "D", "owner": "me", "attempts": "9", "runat": "1"}
    assert client.post(page, posted).status_code == 302
    now = Task.xq.peek(taken.pk)
    assert (now.name, now.size, now.status, now.owner, now.attempts) == ("new", 3, "T", taken.owner, 1)


def test_the_status_of_a_row_that_is_no_task_is_edited_as_ever_and_makes_it_one(manage):
    Task, site = manage(statuses=MAILED | {"R": "paid"})
    order = Task.objects.create(name="an order", status="open")
    client = site.client()
    page = f"{site.list}{order.pk}/change/"
    for status, then in (("cancelled", "cancelled"), ("paid", "paid"), ("cancelled", "paid")):
        assert client.post(page, FORM | {"status": status}).status_code == 302
        assert Task.objects.get().status == then
    assert Task.take().pk == order.pk


def test_the_admin_is_refused_where_the_status_could_be_edited_and_on_another_model(django_db, manage):
    Task, site = manage(admin={"list_display": ["name", "xq_state", "size"], "list_filter": ["tube"]})
    assert site.admin.check() == []
    editable = {"list_display": ["name", "status"], "list_editable": ["status"]}
    editing: Any = type("TaskAdmin", (QueueAdmin, admin.ModelAdmin), editable)
    with pytest.raises(xq.ConfigurationError, match="QueueAdmin, and Plain is not a queue: upgrade it"):
        QueueAdmin(django_db.model("Plain"), admin.AdminSite())
    with pytest.raises(xq.ConfigurationError, match=r"TaskAdmin\.list_editable has status, which only the queue"):
        editing(Task, admin.AdminSite())


def test_the_page_that_asks_has_a_field_for_a_priority(manage):
    Task, site = manage(features={"priority": True}, roles=("priority",))
    first, second = Task.xq.put_many([{"name": "first"}, {"name": "second"}])
    client = site.client()
    asked = {"action": "reprioritise", "_selected_action": [second.pk]}
    assert 'name="priority" required' in client.post(site.list, asked).content.decode()
    told = "1 task was not reprioritised: second (reprioritise needs a number as priority, not 'high')."
    assert site.act(client, "reprioritise", [second], post="yes", priority="high") == [told]
    assert site.act(client, "reprioritise", [second], post="yes", priority="-1") == ["1 task was reprioritised."]
    assert [Task.take().pk, Task.take().pk] == [second.pk, first.pk]
