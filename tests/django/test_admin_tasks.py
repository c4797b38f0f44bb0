"""A task, its failures and all queues in Django's admin: what the pages say, and what their buttons do."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections, models
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.django.sites import EVERYTHING, messages_of, one_of_each
from xq.adapters.django.admin import filters, panel
from xq.adapters.django.admin.words import lasting

HISTORY = EVERYTHING | {"history": True}
ROLES = ("runat", "owner", "attempts", "error")
FIELDS = {"fields": ["name", "size"]}
MAILED = {"R": "new", "T": "packing", "W": "later", "B": "failed", "D": "mailed"}


def text(page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page))).strip()


def panel_in(response) -> str:
    page: str = response.content.decode()
    return page.partition('<section class="xq-panel')[2].partition("</section>")[0]


def page_of(site, client, task, more="") -> str:
    return panel_in(client.get(f"{site.list}{task.pk}/change/{more}"))


def buttons(page: str) -> list[str]:
    return re.findall(r'<button[^>]* name="action" value="(\w+)"', page)


def press(site, client, task, action, **more):
    return client.post(f"{site.list}{task.pk}/queue/", {"action": action, **more}, follow=True)


def cells(page: str) -> list[list[str]]:
    """What stands in the rows of the table of a page."""
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:-1]
    return [[text(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


# the page of a task


def test_the_page_of_a_task_says_its_state_in_the_words_of_the_application_and_why_it_is_not_running(manage):
    Task, site = manage(roles=ROLES, statuses=MAILED, admin=FIELDS)
    tasks = one_of_each(Task)
    client = site.client()
    for letter, why in {
        "R": "no process takes from this queue|nothing holds it",
        "T": "it is taken by the session",
        "W": r"new at \(delay\)",
        "B": "dig returns it to the queue",
        "D": "nothing moves it but a call",
    }.items():
        said = text(page_of(site, client, tasks[letter]))
        assert re.search(rf"Queue {MAILED[letter]} .*({why})", said), said


@pytest.mark.parametrize("roles", [ROLES, ("runat",)], ids=["owner in a column", "owner in a table"])
def test_the_page_says_who_has_taken_a_task_and_since_when(manage, roles):
    Task, site = manage(roles=roles, admin=FIELDS)
    Task.put({"name": "one"})
    taken = Task.take()
    ((_, session, _),) = Task.xq.taken()
    said = text(page_of(site, site.client(), taken))
    ((_, _, pid, *_),) = Task.xq.processes()
    assert f"held by pid {pid} on host " in said
    assert f"taken by the session {session} taken since 20" in said
    assert "ready at (ttr) 20" in said


def test_the_words_of_states_are_the_labels_of_their_choices(manage):
    choices = [("N", "Brand new"), ("P", "Being <packed>"), ("B", "Lost")]
    status = models.CharField(max_length=10, default="N", choices=choices)
    Task, site = manage(
        {"buried": True}, statuses={"R": "N", "T": "P"}, roles=(), attributes={"status": status}, admin=FIELDS
    )
    Task.xq.put_many([{"name": "one"}, {"name": "two"}])
    taken = Task.take()
    client = site.client()
    page = client.get(site.list).content.decode()
    assert "Brand new</span>" in page
    assert "Being &lt;packed&gt;</span>" in page
    assert "Queue Being <packed> " in text(page_of(site, client, taken))


def test_the_history_of_a_task_is_a_timeline_with_the_time_in_each_state_and_who_moved_it(manage, monkeypatch):
    Task, site = manage(HISTORY, roles=ROLES, admin=FIELDS)
    client = site.client()
    Task.xq.clock.now = 1_000_000.0
    Task.put({"name": "one"})
    Task.xq.clock.tick(5)
    Task.take()
    Task.xq.clock.tick(90)
    task = Task.xq.bury(Task.objects.get().pk)
    Task.xq.clock.tick(7200)
    page = page_of(site, client, task)
    assert [(event, state, lasted) for _, event, state, lasted, *_ in cells(page)] == [
        ("put", "ready", "5 s"),
        ("take", "taken", "1 min 30 s"),
        ("bury", "buried", "2 h until now"),
    ]
    assert cells(page)[0][0] == "1970-01-12 13:46:40"
    assert "buried since 1970-01-12 13:48:15" in text(page)
    press(site, client, task, "dig")
    assert [row.actor for row in Task.xq.history(task.pk)] == [None, None, None, "root"]

    monkeypatch.setattr(panel, "STEPS", 2)
    page = page_of(site, client, task)
    assert "History: the last 2 transitions, 2 earlier ones left out" in text(page)
    assert [event for _, event, *_ in cells(page)] == ["bury", "dig"]

    monkeypatch.setattr(panel, "MANY", 1)  # the queue is too busy to be read through unasked
    page = page_of(site, client, task)
    assert "Read the history of this task among the 4 transitions of the queue." in text(page)
    assert cells(page) == []
    assert [event for _, event, *_ in cells(page_of(site, client, task, "?xq_history=1"))] == ["bury", "dig"]


def test_a_queue_that_does_not_answer_hides_neither_the_form_nor_other_queues(manage):
    Task, site = manage(admin=FIELDS | {"change_form_template": "shop_of_tests/form.html"})
    task = Task.put({"name": "one"})
    client = site.client()
    response = client.get(f"{site.list}{task.pk}/change/")
    assert "from the application" in response.content.decode()
    assert "ready" in text(panel_in(response))
    Task.xq.uninstall()
    response = client.get(f"{site.list}{task.pk}/change/")
    assert "is not installed" in text(panel_in(response))
    assert 'name="name"' in response.content.decode()
    (told,) = messages_of(press(site, client, task, "restart", post="yes"))
    assert "is not installed" in told
    (row,) = overview(client)
    assert "is not installed" in row[1]


# buttons


def test_a_task_has_buttons_for_what_its_state_and_the_rights_of_the_user_allow(manage):
    def has_change_permission(self, request, obj=None):
        return request.user.username != "view" and (obj is None or obj.name != "not mine")

    Task, site = manage(roles=ROLES, admin=FIELDS | {"has_change_permission": has_change_permission})
    tasks = one_of_each(Task)
    tasks["draft"] = Task.objects.create(name="a draft", status="draft")
    tasks["not mine"] = Task.objects.create(name="not mine", status="B")
    client = site.client()
    assert {letter: buttons(page_of(site, client, task)) for letter, task in tasks.items()} == {
        "B": ["dig", "kill"],
        "D": ["restart", "kill"],
        "T": ["release", "kill"],
        "R": ["kill"],
        "W": ["restart", "kill"],
        "draft": ["put"],
        "not mine": ["kill"],
    }
    assert buttons(page_of(site, site.client("view", "change"), tasks["B"])) == ["dig"]
    assert press(site, client, tasks["not mine"], "dig").status_code == 403
    assert site.act(client, "dig", [tasks["not mine"]]) == ["1 task was not dug out: not mine (you may not)."]
    viewer = site.client("view")
    page = page_of(site, viewer, tasks["B"])
    assert "buried" in page
    assert "<form" not in page
    for action in ("dig", "kill"):
        assert press(site, viewer, tasks["B"], action, post="yes").status_code == 403
    assert press(site, Client(), tasks["B"], "dig").redirect_chain[0][0].startswith("/admin/login/")
    assert Task.xq.peek(tasks["B"].pk).status == "B"


def test_a_button_moves_the_task_reports_it_and_writes_the_log_of_the_admin(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    buried = one_of_each(Task)["B"]
    client = site.client()
    response = press(site, client, buried, "dig")
    assert messages_of(response) == ["The task “a task in B” was dug out."]
    assert response.redirect_chain == [(f"{site.list}{buried.pk}/change/", 302)]
    assert Task.xq.peek(buried.pk).status == "R"
    assert [(e.user.username, e.object_id, e.change_message) for e in LogEntry.objects.all()] == [
        ("root", str(buried.pk), "Dug out.")
    ]
    assert "Dug out." in client.get(f"{site.list}{buried.pk}/history/").content.decode()
    assert messages_of(press(site, client, buried, "dig")) == ["The task “a task in B” was not dug out: it is ready."]


def test_kill_asks_before_it_deletes_a_task(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    task = Task.put({"name": "<b>one</b>"})
    client = site.client()
    page = press(site, client, task, "kill").content.decode()
    assert "Kill &lt;b&gt;one&lt;/b&gt;?" in page
    assert "<b>one" not in page
    assert f'href="{site.list}{task.pk}/change/"' in page
    assert Task.xq.count() == 1
    assert press(site, client, task, "kill", post="yes").redirect_chain == [(site.list, 302)]
    assert not Task.objects.exists()
    assert messages_of(press(site, client, task, "kill", post="yes"))[-1] == "This task is gone."


def test_a_button_needs_the_token_against_forged_requests_and_a_known_action(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    buried = one_of_each(Task)["B"]
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(site.user())
    assert press(site, strict, buried, "dig").status_code == 403
    client = site.client("view", "change")
    assert [press(site, client, buried, action).status_code for action in ("delete_selected", "")] == [404, 404]
    assert client.get(f"{site.list}{buried.pk}/queue/", {"action": "dig"}).status_code == 302
    assert Task.xq.peek(buried.pk).status == "B"
    (token,) = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page_of(site, strict, buried))
    assert press(site, strict, buried, "dig", csrfmiddlewaretoken=token).status_code == 200
    assert Task.xq.peek(buried.pk).status == "R"


# drafts


def test_a_draft_becomes_a_task_with_the_ttl_of_the_queue_or_its_own_and_a_task_stays_as_it_is(manage):
    Task, site = manage({"ttl": 60}, roles=("runat", "ttl", "attempts"), admin=FIELDS)
    drafts = [Task.objects.create(name="a draft", status="draft", ttl=ttl, attempts=3) for ttl in (None, 5)]
    ready = Task.put({"name": "ready"})
    client = site.client()
    keys = {"action": "put", "_selected_action": [str(task.pk) for task in (*drafts, ready)]}
    assert "Put 3 tasks into the queue?" in client.post(site.list, keys).content.decode()
    assert Task.xq.count() == 1
    now = Task.xq.clock.now
    assert site.act(client, "put", [*drafts, ready], post="yes") == [
        "2 tasks were put into the queue.",
        "1 task was not put into the queue: ready (it is ready).",
    ]
    assert [task.runat - now for task in Task.objects.order_by("pk")] == pytest.approx([60, 5, 60], abs=1e-3)
    taken = Task.take()
    assert (taken.name, taken.attempts) == ("a draft", 1)


# failures


def failed(Task, *errors):
    Task.xq.put_many({"name": f"task {n}"} for n, _ in enumerate(errors))
    Task.xq.bury_many([Task.take() for _ in errors], error=list(errors))


def errors_in(page: str) -> dict[str, str]:
    found = re.findall(r'<a href="(\?[^"]*xq_error=[^"]*)">(.*?) <span class="xq-count">(.*?)</span>', page)
    return {html.unescape(name): n for _, name, n in found}


HOSTILE = "<script>alert(1)</script>"


def test_the_list_shows_the_first_line_of_errors_and_filters_by_their_class(manage):
    Task, site = manage(roles=ROLES)
    long = "x" * 200
    failed(Task, "Timeout: no answer\nTraceback", "Timeout: other", "TimeoutError: late", "Timeout", HOSTILE, long)
    Task.put({"name": "ready", "error": "Timeout: once, before a retry"})
    client = site.client("view")
    page = client.get(site.list).content.decode()
    assert errors_in(page) == {"Timeout": "3", "TimeoutError": "1", HOSTILE: "1", "x" * 80: "1"}
    assert "By error (of the buried tasks)" in text(page)
    assert re.findall(r'field-xq_error">(.*?)<', page)[-3:] == [
        "TimeoutError: late",
        "Timeout: other",
        "Timeout: no answer",
    ]
    assert "<script>alert" not in page
    for chosen, names in {"Timeout": ["task 3", "task 1", "task 0"], HOSTILE: ["task 4"], "x" * 80: ["task 5"]}.items():
        page = client.get(site.list, {"xq_error": chosen}).content.decode()
        assert re.findall(r'field-name">(?:<a[^>]*>)?([^<]*)<', page) == names
        assert "<script>alert" not in page
    for strange in ("\0", "x" * 81):
        assert client.get(site.list, {"xq_error": strange}).status_code == 302


def test_the_filter_by_errors_reads_the_newest_failures_only_and_says_so(manage, monkeypatch):
    monkeypatch.setattr(filters, "LOOKED", 3)
    Task, site = manage(roles=ROLES)
    failed(Task, "Old: 1", "New: 1", "New: 2", "New: 3")
    with CaptureQueriesContext(connections["default"]) as seen:
        page = site.client("view").get(site.list).content.decode()
    assert errors_in(page) == {"New": "3"}
    assert "By error (of the newest 3 buried tasks)" in text(page)
    (read,) = [each["sql"] for each in seen if "LEFT(" in each["sql"].upper() or "SUBSTR(" in each["sql"].upper()]
    assert "LIMIT 4" in read


# forms


@pytest.mark.parametrize(
    "options",
    [
        {"fields": ["name", "size", ("status", "owner")]},
        {"fields": None, "fieldsets": [(None, {"fields": [("name", "status"), "size", "owner"]})]},
        {"fields": None},
    ],
    ids=["fields", "fieldsets", "neither"],
)
def test_a_row_is_added_without_the_fields_that_only_the_queue_writes(manage, options):
    _, site = manage(roles=ROLES, admin=options)
    page = site.client().get(f"{site.list}add/").content.decode()
    shown = set(re.findall(r"field-(\w+)", page))
    assert {"name", "size"} <= shown
    assert not shown & {"status", "owner", "runat", "attempts"}


# all queues


def overview(client) -> list[list[str]]:
    return cells(client.get("/admin/xq/overview/").content.decode())


def test_the_index_links_a_page_of_all_queues_that_a_user_may_view_with_their_numbers(manage):
    Task, site = manage(HISTORY, roles=ROLES, statuses={"R": "new"}, admin=FIELDS)
    one_of_each(Task)
    Task.xq.put_many([{"name": "more"}] * 2)
    Task.xq.pause()
    Task.xq.clock.tick(90)
    client = site.client("view")
    assert 'href="/admin/xq/overview/"' in client.get("/admin/").content.decode()
    (row,) = overview(client)
    assert row[:6] == ["tasks", "3 new", "1", "1", "1", "1"]
    assert row[6:9] == ["a task in R for 1 min 30 s", "the whole queue", "default"]
    assert int(row[9]) >= 1
    nobody = Client()
    nobody.force_login(site.user("fly"))
    assert nobody.get("/admin/xq/overview/").status_code == 403
    assert "overview" not in nobody.get("/admin/").content.decode()
    assert Client().get("/admin/xq/overview/").status_code == 302
    assert site.client("change").get("/admin/xq/overview/add/").status_code == 404


def test_durations_are_said_in_two_units():
    assert [lasting(n) for n in (0.2134, 59.6, 90, 3600, 7265, 100_000, 20_000_000)] == [
        "0.213 s", "60 s", "1 min 30 s", "1 h", "2 h 1 min", "1 d 3 h", "231 d 11 h",
    ]  # fmt: skip
