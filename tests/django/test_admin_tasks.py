"""A task and its failures in Django's admin: what the pages say, and what their buttons do."""

from __future__ import annotations

import html
import re

from django.db import models
from django.test import Client, override_settings

from tests.django.sites import EVERYTHING, messages_of, one_of_each

HISTORY = EVERYTHING | {"history": True}
ROLES = ("runat", "owner", "attempts", "error")
FIELDS = {"fields": ["name", "size"]}
MAILED = {"R": "new", "T": "packing", "W": "later", "B": "failed", "D": "mailed"}


def text(page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page))).strip()


def page_of(site, client, task) -> str:
    """What the page of a task says of the queue."""
    page: str = client.get(f"{site.list}{task.pk}/change/").content.decode()
    return page.partition('<section class="xq-panel')[2].partition("</section>")[0]


def buttons(page: str) -> list[str]:
    return re.findall(r'<button[^>]* name="xq_action" value="(\w+)"', page)


def press(site, client, task, action, **more):
    return client.post(f"{site.list}{task.pk}/change/", {"xq_action": action, **more}, follow=True)


def cells(page: str) -> list[list[str]]:
    """What stands in the rows of the table of a page."""
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:-1]
    return [[text(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


# the page of a task


def test_the_page_of_a_task_says_its_state_in_the_words_of_the_application_and_why_it_is_not_running(manage):
    status = models.CharField(max_length=10, default="new", choices=[("packing", "Being <packed>"), ("failed", "Lost")])
    Task, site = manage(roles=ROLES, statuses=MAILED, admin=FIELDS, attributes={"status": status})
    tasks = one_of_each(Task)
    client = site.client()
    Task.objects.filter(pk=tasks["B"].pk).update(error="Timeout: dig\nTraceback")
    ((_, session, _),), ((_, _, pid, *_),) = Task.xq.taken(), Task.xq.processes()
    for letter, said in {
        "R": "new .*(no process takes from this queue|nothing holds it)",
        "T": f"Being <packed> .*by the session {session} for .*: pid {pid} on host .*new at .ttr. ",
        "W": r"later .*new at \(delay\)",
        "B": "Lost Timeout: dig dig returns it to the queue",
        "D": "mailed .*nothing moves it but a call",
    }.items():
        page = page_of(site, client, tasks[letter])
        assert re.search(f"Queue {said}", text(page)), letter
        assert "<packed>" not in page
    assert "Being &lt;packed&gt;</span>" in client.get(site.list).content.decode()


def test_the_page_of_a_task_has_all_its_times_in_the_zone_of_the_project_and_spans_as_people_say_them(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    Task.xq.clock.now = 1_000_000.0  # 1970-01-12 13:46:40 UTC
    task = Task.put({"name": "one"}, delay=108_000)
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        page = text(page_of(site, site.client(), task))
    assert "it is waiting (W) until 1970-01-14 04:46:40, and becomes ready (R) in 30 h" in page
    assert page.count("1970-01-14 04:46:40") == 2, "the reason, and the time beside it"


def test_the_history_of_a_task_is_a_timeline_with_the_time_in_each_state_and_who_moved_it(manage):
    Task, site = manage(HISTORY, roles=ROLES, admin=FIELDS)
    Task.xq.clock.now = 1_000_000.0
    Task.put({"name": "one"})
    Task.xq.clock.tick(5)
    taken = Task.take()
    Task.xq.clock.tick(90)
    taken.bury()
    Task.xq.clock.tick(7200)
    client = site.client()
    page = page_of(site, client, taken)
    timeline = [("put", "ready", "5 s"), ("take", "taken", "90 s"), ("bury", "buried", "2 h until now")]
    assert [(event, state, lasted) for _, event, state, lasted, *_ in cells(page)] == timeline
    assert cells(page)[0][0] == "1970-01-12 13:46:40"
    press(site, client, taken, "dig", post="yes")
    assert cells(page_of(site, client, taken))[-1][1:5] == ["dig", "ready", "0 ms until now", "root"]
    site.model.objects.update(status="archived")
    assert cells(page_of(site, client, taken))[-1][1:4] == ["write", "left the queue", ""]


def test_a_queue_that_is_not_installed_hides_neither_the_rows_nor_the_form(manage):
    Task, site = manage(admin=FIELDS | {"change_form_template": "shop_of_tests/form.html"})
    task = Task.put({"name": "one"})
    client = site.client()
    page = client.get(f"{site.list}{task.pk}/change/").content.decode()
    assert ("from the application" in page, "ready" in text(page)) == (True, True)
    Task.xq.uninstall()
    listed, page = client.get(site.list), client.get(f"{site.list}{task.pk}/change/").content.decode()
    (told,) = messages_of(listed)
    assert "is not installed" in told
    assert "ready" in listed.content.decode().partition("field-xq_state")[2]
    assert site.act(client, "kill", [task], post="yes") == [
        "1 task was not killed: one (the queue is not installed).",
        told,
    ]
    assert ("is not installed" in text(page), 'name="name"' in page) == (True, True)


# buttons


def test_a_task_has_buttons_for_what_its_state_and_the_rights_of_the_user_allow(manage):
    def has_change_permission(self, request, obj=None):
        return request.user.username != "view" and (obj is None or obj.name != "not mine")

    Task, site = manage(roles=ROLES, admin=FIELDS | {"has_change_permission": has_change_permission})
    tasks = one_of_each(Task)
    tasks["draft"] = Task.objects.create(name="a draft", status="draft")
    tasks["not mine"] = Task.objects.create(name="not mine", status="B")
    client = site.client()
    offered = {letter: " ".join(buttons(page_of(site, client, task))) for letter, task in tasks.items()}
    own = {"B": "dig kill", "D": "restart kill", "T": "release cancel kill", "R": "cancel kill"}
    own |= {"W": "restart cancel kill"}
    assert offered == own | {"draft": "", "not mine": "kill"}
    refused = ["1 task was not dug: not mine (you may not)."]
    assert messages_of(press(site, client, tasks["not mine"], "dig", post="yes")) == refused
    assert site.act(client, "dig", [tasks["not mine"]], post="yes") == refused
    viewer = site.client("view")
    page = page_of(site, viewer, tasks["B"])
    assert ("buried" in page, "<form" in page) == (True, False)
    for action in ("dig", "kill"):
        assert press(site, viewer, tasks["B"], action, post="yes").status_code == 403
    assert press(site, Client(), tasks["B"], "dig").redirect_chain[0][0].startswith("/admin/login/")
    assert Task.xq.peek(tasks["B"].pk).status == "B"


def test_a_button_moves_the_task_and_reports_it_on_its_page(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    buried = one_of_each(Task)["B"]
    client, page = site.client(), f"{site.list}{buried.pk}/change/"
    response = press(site, client, buried, "dig", post="yes")
    assert (messages_of(response), response.redirect_chain) == (["1 task was dug."], [(page, 302)])
    assert Task.xq.peek(buried.pk).status == "R"
    assert messages_of(press(site, client, buried, "dig", post="yes")) == [
        "1 task was not dug: a task in B (it is ready)."
    ]


def test_kill_asks_before_it_deletes_a_task(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    task = Task.put({"name": "<b>one</b>"})
    client = site.client()
    page = press(site, client, task, "kill").content.decode()
    assert ("Kill 1 task?" in page, "&lt;b&gt;one" in page, "<b>one" in page) == (True, True, False)
    killed = press(site, client, task, "kill", post="yes")
    assert (killed.redirect_chain, messages_of(killed)) == ([(site.list, 302)], ["1 task was killed."]), "only now"
    assert not Task.objects.exists()
    assert "doesn’t exist" in messages_of(press(site, client, task, "kill", post="yes"))[-1]


def test_a_button_needs_the_token_against_forged_requests_and_a_known_action(manage):
    Task, site = manage(roles=ROLES, admin=FIELDS)
    buried = one_of_each(Task)["B"]
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(site.user())
    assert press(site, strict, buried, "dig").status_code == 403
    client = site.client("view", "change")
    assert [press(site, client, buried, action).status_code for action in ("delete_selected", "")] == [403, 403]
    assert client.get(f"{site.list}{buried.pk}/change/", {"xq_action": "dig"}).status_code == 200
    assert Task.xq.peek(buried.pk).status == "B"
    (token,) = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page_of(site, strict, buried))
    assert press(site, strict, buried, "dig", post="yes", csrfmiddlewaretoken=token).status_code == 200
    assert Task.xq.peek(buried.pk).status == "R"


def test_the_list_shows_the_first_line_of_errors(manage):
    Task, site = manage(roles=ROLES)
    errors = ["Timeout: 3 s\nTraceback", "<script>alert()</script>", "x" * 200]
    Task.xq.put_many({"name": f"task {n}"} for n, _ in enumerate(errors))
    Task.xq.bury_many(Task.xq.take_many(len(errors)), error=errors)
    page = site.client("view").get(site.list).content.decode()
    lines = [f"{'x' * 99}…", "&lt;script&gt;alert()&lt;/script&gt;", "Timeout: 3 s"]
    assert re.findall(r'field-xq_failure">(.*?)<', page) == lines


# above the list


def test_the_list_has_the_schedules_of_the_queue_and_pauses_and_resumes_them(manage):
    Task, site = manage(admin=FIELDS)
    client, reader = site.client(), site.client("view")
    assert "Schedules" not in text(client.get(site.list).content.decode())
    Task.xq.every(90, {"name": "a"}, name="<often>")
    Task.xq.every("0 3 * * *", {"name": "b"}, name="nightly", tz="Europe/Berlin")

    def schedules(client: Client) -> list[list[str]]:
        page = client.get(site.list).content.decode().partition("<summary>Schedules")[2]
        return [row[:2] + row[3:] for row in cells(page)]

    ((_, _, at, pause), other) = schedules(client)
    assert [row[:2] for row in schedules(reader)] == [["<often>", "every 90 s"], other[:2]]
    assert other[:2] == ["nightly", "0 3 * * * Europe/Berlin"]
    assert (pause, schedules(reader)[0][3]) == ("Pause", "")
    given = {"xq_schedule": "<often>", "xq_change": "pause"}
    assert reader.post(site.list, given).status_code == 403
    assert messages_of(client.post(site.list, given, follow=True)) == ["The schedule <often> was paused."]
    assert schedules(client)[0][2:] == ["paused by root", "Resume"]
    client.post(site.list, {**given, "xq_change": "resume"})
    assert schedules(client)[0][2:] == [at, "Pause"]
    assert client.post(site.list, {**given, "xq_change": "drop"}).status_code == 403
    Task.xq.unschedule("<often>")
    assert messages_of(client.post(site.list, given, follow=True)) == ["The schedule <often> is gone."]


def test_the_list_has_the_limits_of_the_queue_and_sets_and_removes_them(manage):
    _, site = manage({"rate": "9/m"}, admin=FIELDS)
    client, reader = site.client(), site.client("view")

    def limits(client: Client) -> list[list[str]]:
        return cells(client.get(site.list).content.decode().partition("<summary>Limits")[2])

    given = {"xq_limit": "rate", "xq_to": "5/m"}
    assert reader.post(site.list, given).status_code == 403
    assert messages_of(client.post(site.list, given, follow=True)) == ["The limit of rate was set."]
    assert limits(reader) == [["rate", "each without its own", "5/m", "9/m", "root"]]
    for wrong, told in ({"xq_value": "a"}, "give no value"), ({"xq_to": "5"}, 'a rate such as "100/m"'):
        assert told in messages_of(client.post(site.list, {**given, **wrong}, follow=True))[0]
    assert messages_of(client.post(site.list, {"xq_limit": "rate"}, follow=True)) == ["The limit of rate was removed."]
    assert limits(client) == [["rate", "each without its own", "9/m", "9/m", ""]]
