"""The console in the browser: what its pages show, who may see and change what, and what it refuses."""

from __future__ import annotations

import html
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import peewee as pw
import pytest
from a2wsgi import ASGIMiddleware, WSGIMiddleware
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playhouse import pool
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import xq
from tests.conftest import Maker
from tests.servers import Postgres
from tests.steps import PATIENCE, eventually
from tests.support.console import SAME, visitor
from xq import serve

TOKEN = "a-token-of-the-tests-0123456789"
OTHER = "another-token-of-the-tests-0123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
FEATURES: xq.Features = {"delayed": True, "buried": "any", "keep": True, "ttr": 60, "history": True, "priority": True}
ROLES = ("runat", "owner", "tube", "attempts", "error", "priority")
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def pages(make_shared):
    """A queue with tubes, errors and a history."""
    return make_shared(FEATURES, roles=ROLES, model=make_shared.model(error=pw.TextField(null=True))).xq


def browse(queue: Any, **options: Any) -> TestClient:
    """A browser on this machine, of a console of one queue."""
    return visitor(serve.app([queue], **options))


def shown(here: TestClient, path: str, **query: Any) -> str:
    """The source of a page that is there."""
    answer = here.get(path, params=query or None)
    assert answer.status_code == 200, (path, answer.text)
    return str(answer.text)


def post(here: TestClient, page: str, **form: Any) -> Any:
    """The answer to a form on a page of the queue."""
    return here.post(f"/q/Task/{page}", data=form, headers=SAME)


@contextmanager
def full_room(here: TestClient) -> Iterator[None]:
    """Have no operation of the console begin in the block, and each have ended after it."""
    (look,) = vars(here.app)["look"].values()
    with look.operations, look.operations:
        yield
    for begun in vars(here.app)["operations"].values():
        begun.ended.exception(PATIENCE)


def buried(queue: Any, n: int, error: str = "TimeoutError: no answer") -> list[Any]:
    """Put and bury tasks; return their keys."""
    tasks = [queue.put({"name": f"task {i}", "tube": "mail"}) for i in range(n)]
    queue.bury_many(queue.take_many(n), error=error)
    return [task.id for task in tasks]


def texts(page: str) -> list[str]:
    """What a page shows, without its markup."""
    return [" ".join(html.unescape(text).split()) for text in re.split(r"<[^>]*>", page) if text.strip()]


def cells(page: str) -> list[list[str]]:
    """The texts of each row of the page's tables."""
    return [texts(row) for row in re.findall(r"<tr data-row>(.*?)</tr>", page, re.DOTALL)]


def links(page: str, text: str) -> set[str]:
    """The filters of the links that have a text."""
    found = re.findall(rf'href="([^"]+)"[^>]*>{re.escape(text)}<', page)
    return {parse_qs(urlparse(html.unescape(to)).query)["filter"][0] for to in found}


def link(page: str, rel: str) -> str | None:
    found = re.search(rf'<a rel="{rel}" class="button" href="([^"]+)"', page)
    return html.unescape(found[1]) if found else None


# what the pages show


def test_the_overview_has_the_exact_numbers_of_models_handles_and_tubes(pages, make_shared):
    other = make_shared(model=make_shared.model(table_name="other"))
    tube = xq.Tubes(make_shared.db).create_tube('a/b "quoted" <i>', "fifottl")
    buried(pages, 3)
    pages.put({"name": "ready"})
    other.xq.pause()
    tube.put({"to": "ann"})
    here = visitor(serve.app([pages, other, tube], colour="#b3261e"))
    page = shown(here, "/")
    first, second, third = cells(page)
    assert first[:6] == ["Task", "1", "0", "0", "3", "0"]
    assert (second[:2], third[:3]) == (["Task", "paused"], ['a/b "quoted" <i>', "tube", "1"])
    assert ("<title>Queues · xq</title>" in page, '<svg class="spark"' in page) == (True, True)
    assert "--accent: #b3261e" in shown(here, "/static/console.css"), "the colour of the environment"
    assert "ann" in shown(here, "/q/a-b-quoted-i")


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what no database decides
def test_the_overview_finds_queues_orders_them_and_folds_what_is_more_than_fifty(make_shared):
    tubes = xq.Tubes(make_shared.db)
    many = [tubes.create_tube(f"tube {place}", "fifo") for place in range(52)]
    many[51].put("work")
    here = visitor(serve.app(many))

    def names(**query: Any) -> list[str]:
        return [row[0] for row in cells(shown(here, "/", **query))]

    assert (len(names()), "50 of 52 queues" in " ".join(texts(shown(here, "/"))), len(names(all=1))) == (50, True, 52)
    assert names(by="ready")[:2] == ["tube 51", "tube 0"]
    assert names(find="TUBE 3") == ["tube 3", *(f"tube {place}" for place in range(30, 40))]
    (part,) = re.findall(r'data-from="([^"]+)"', shown(here, "/", find="tube 51"))
    assert [row[0] for row in cells(shown(here, html.unescape(part)))] == ["tube 51"]


def test_tasks_are_filtered_and_paged_with_a_way_back_to_the_first_page(pages):
    keys = buried(pages, 60)
    pages.put({"name": "another"})
    here = browse(pages)
    first = shown(here, "/q/Task", filter="state:buried", n=25)
    second = shown(here, link(first, "next") or "")
    third = shown(here, link(second, "next") or "")
    assert [int(row[0]) for page in (first, second, third) for row in cells(page)] == keys[::-1]
    assert (link(third, "next"), link(first, "first")) == (None, None)
    assert cells(shown(here, link(third, "first") or "")) == cells(first)
    assert len(cells(shown(here, "/q/Task", filter="name:another"))) == 1
    assert 'value="state:nowhere"' in here.get("/q/Task?filter=state:nowhere").text


def test_a_list_shows_the_state_its_age_the_error_and_the_attempts_first_and_a_click_on_one_filters(pages):
    buried(pages, 2)
    page = shown(browse(pages), "/q/Task", filter="name:task")
    titles = re.findall(r'<th scope="col"( class="n")?>([^<]*)', page)
    assert [title for _, title in titles] == ["Task", "State", "Since", "error", "attempts", "tube", "name"]
    assert [title for is_right, title in titles if is_right] == ["attempts"]
    assert re.findall(r'title="[0-9: -]{19} UTC">[\d,]+ \w+ ago<', page)
    assert links(page, "buried") == {"name:task state:B"}
    assert links(page, "mail") == {"name:task tube:mail"}
    assert links(page, "TimeoutError") == {"name:task error:TimeoutError"}
    assert links(shown(browse(pages), "/q/Task", filter="tube:mail -state:R"), "buried") == {"tube:mail state:B"}


def test_states_counted_tubes_and_errors_of_the_page_are_suggested(make_shared):
    model = make_shared.model(error=pw.TextField(null=True))
    queue = make_shared(FEATURES, roles=ROLES, model=model, tube_stats=["mail", "a b"]).xq
    buried(queue, 3)
    page = shown(browse(queue), "/q/Task", filter="name:task")
    known = [html.unescape(each) for each in re.findall(r'<option value="([^"]*)">', page)]
    assert {"name:task state:buried", 'name:task tube:"a b"', "name:task error:TimeoutError"} <= set(known)
    assert re.search(r"\bmail 3 buried\b", " ".join(texts(page)))
    assert "TimeoutError" not in shown(browse(queue, hide=["error"]), "/q/Task")


def test_a_task_shows_its_fields_its_history_and_why_it_is_not_running(pages):
    (key,) = buried(pages, 1)
    with pages.acting("ann", reason="the mail server is back"):
        pages.dig(key)
    pages.pause()
    page = shown(browse(pages), "/q/Task/task", key=key)
    assert {"task 0", "the queue is paused: xq resume TARGET ends that"} <= set(texts(page))
    assert re.findall(r"<div><b>(\w+)</b>", page) == ["put", "take", "bury", "dig"]
    assert "the mail server is back" in page
    for word in ("archived", "R"):
        pages.model.update(status=word).execute()
    assert "left the queue" in texts(shown(browse(pages), "/q/Task/task", key=key))


def with_steps(make: Any) -> Any:
    """A queue with a task that waits for a signal after a step whose name and value are hostile."""
    Task = make({"delayed": True, "buried": True, "history": True, "steps": True})

    @Task.xq.worker
    def ship(task: Any) -> None:
        xq.step(EVIL, lambda: {"html": EVIL, "note": "x" * 300})
        xq.step("password", lambda: "hunter2")
        xq.wait_for("approved", timeout=60)

    Task.put({})
    Task.xq.run(until_empty=True)
    return Task.xq


def test_a_task_shows_its_steps_with_their_times_and_what_it_waits_for(make_shared):
    queue = with_steps(make_shared)
    queue.signal(1, "another", {"by": "ann"})
    here = browse(queue)
    page = shown(here, "/q/Task/task", key=1)
    waits = "it waits for the signal 'approved' until 2023-11-14 22:14:20 UTC, 2 steps done: "
    assert any(text.startswith(waits) for text in texts(page))
    at = "2023-11-14 22:13:20"
    (kind, name, value, _), *others, _, _, _ = map(texts, re.findall(r'<li class="s-.">(.*?)</li>', page, re.DOTALL))
    assert (kind, name, value[-3:], len(value)) == ("step", " ".join(EVIL.split()), "...", 103)
    assert others == [
        ["step", "password", '"hunter2"', at],
        ["wait", "approved", "until", "2023-11-14 22:14:20", at],
        ["signal", "another", '{"by": "ann"}', at],
    ]
    assert ("<script>alert" in page, "<img" in page) == (False, False)
    assert re.findall(r"<div><b>(\w+)</b>", page) == ["put", "take", "wait"]
    assert links(shown(here, "/q/Task"), "approved") == {"awaits:approved"}


@pytest.mark.parametrize("hide", ["password", "xq_steps"])
def test_a_hidden_step_is_shown_nowhere_and_no_role_sends_a_signal(make_shared, hide):
    here = browse(with_steps(make_shared), hide=[hide], rights="admin")
    pages = [shown(here, path, key=1) for path in ("/q/Task", "/q/Task/task", "/q/Task/task.json")]
    assert [page for page in pages if "hunter2" in page or (hide == "xq_steps" and "alert" in page)] == []
    assert [answer.status_code for answer in sent(here, "signal")] == [403, 403]


def test_a_task_is_there_as_json(pages):
    (key,) = buried(pages, 1)
    pages.model.update(job=json.dumps(SECRET)).execute()
    answer = browse(pages, hide=["password", "error"]).get(f"/q/Task/task.json?key={key}")
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert [found[name] for name in ("id", "name", "status", "error")] == [key, "task 0", "B", "hidden"]
    assert "hunter2" not in answer.text
    assert browse(pages).get("/q/Task/task.json?key=99").status_code == 404


def test_a_taken_task_shows_the_process_and_the_session_that_have_it(pages):
    pages.put({"name": "held"})
    task = pages.take()
    here, (held,) = browse(pages), pages.processes()
    page, workers = shown(here, "/q/Task/task", key=task.id), shown(here, "/q/Task/workers")
    assert "waited, p50; p99" in workers
    assert held.name.startswith(f"pid {os.getpid()} on host ")
    assert f": {held.name}" in page
    assert workers.count(held.name) == 2, "of its session, and of the task"
    assert (held.session in page, held.session in workers) == (True, True)
    assert len(cells(shown(here, "/q/Task", filter=f"session:{held.session}"))) == 1


def test_failures_schedules_pauses_and_what_is_wrong_have_pages(pages):
    here = browse(pages)
    assert "Nothing is wrong." in shown(here, "/q/Task/doctor")
    pages.every("*/5 * * * *", {"name": "digest"}, name="every five minutes")
    pages.every("@daily", {"name": "digest"}, name="newer")
    pages.model._meta.database.execute_sql("UPDATE xq_schedule SET spec = '<b>' WHERE name = 'newer'")
    buried(pages, 3, "TimeoutError: no answer within 30 s")
    buried(pages, 2, "KeyError: 'a'")
    pages.pause("mail", actor="ann", reason="maintenance")
    failures = shown(here, "/q/Task/failures")
    assert [row[0] for row in cells(failures)] == ["TimeoutError", "KeyError"]
    (to,) = re.findall(r'href="(/q/Task\?filter=[^"]+)">TimeoutError', failures)
    assert len(cells(shown(here, html.unescape(to)))) == 3
    assert "every five minutes" in texts(shown(here, "/q/Task/schedules"))
    assert "this process cannot read it: &#39;&lt;b&gt;&#39; was" in shown(here, "/q/Task/schedules")
    assert {"mail", "ann", "maintenance"} <= set(texts(shown(here, "/q/Task/pauses")))
    assert (wrong := pages.doctor())
    assert {text for each in wrong for text in each} <= set(texts(shown(here, "/q/Task/doctor")))


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_failures_are_at_least_as_many_where_the_look_at_them_ended_early(pages):
    pages.put_many([{"name": "a"} for _ in range(10_001)])
    pages.model.update(error="KeyError: 7").execute()
    assert cells(shown(browse(pages), "/q/Task/failures"))[0][3:5] == ["10,000+", "10,000+ ready"]


def test_a_queue_without_errors_has_no_page_of_failures(pages, make_shared):
    other = make_shared(model=make_shared.model(table_name="other"))
    here = visitor(serve.app({"with": pages, "without": other}))
    assert ["Failures" in texts(shown(here, f"/q/{name}")) for name in ("with", "without")] == [True, False]


SECRET = {"password": "hunter2"}
HIDDEN = {
    "a field": ("name", {"name": "hunter2"}),
    "a number, which is in links": ("priority", {"priority": 471147114}),  # so long that no uuid has it by chance
    "a key of JSON": ("password", {"job": json.dumps({"user": SECRET, "n": 1})}),
    "long JSON": ("password", {"job": json.dumps({**SECRET, "more": "x" * 60_000})}),
    "JSON behind a blank": ("password", {"job": " " + json.dumps(SECRET)}),
    "JSON in JSON": ("password", {"job": json.dumps({"body": json.dumps(SECRET)})}),
    "JSON with escapes": ("passwörd", {"job": json.dumps({"passwörd": "hunter2"})}),
    "JSON encoded twice": ("password", {"job": json.dumps(json.dumps(SECRET))}),
    "an error": ("error", {"error": "LoginError: hunter2 is wrong"}),
    "an error that is JSON": ("password", {"error": json.dumps(SECRET)}),
    "an error that quotes JSON": ("password", {"error": f"ValueError: {json.dumps(SECRET)}"}),
}


@pytest.mark.parametrize(("hide", "fields"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_hidden_is_shown_nowhere(pages, hide, fields):
    (key,) = buried(pages, 1)
    pages.model.update(**fields).execute()

    def found(here: TestClient) -> list[str]:
        answers = [shown(here, path) for path in ("/q/Task", f"/q/Task/task?key={key}", "/q/Task/failures")]
        return [*answers, post(here, "preview", verb="kill", scope="selected", keys=str(key)).text]

    assert any("hunter2" in page or "471147114" in page for page in found(browse(pages)))
    hidden = found(browse(pages, hide=[hide]))
    assert [page for page in hidden if "hunter2" in page or "471147114" in page] == []
    assert "hidden" in hidden[1]


def test_a_queue_whose_database_fails_does_not_hide_the_others(pages, tmp_path):
    gone = pw.SqliteDatabase(str(tmp_path / "none" / "gone.db"))
    Gone = type("Gone", (pw.Model,), {"status": pw.CharField(), "Meta": type("Meta", (), {"database": gone})})
    xq.upgrade(Gone, {"status": "status"}, {})
    here = visitor(serve.app([pages, Gone]))
    assert "unable to open database file" in shown(here, "/")
    assert here.get("/q/Gone").status_code == 503


def test_a_pool_without_a_connection_that_is_free_is_503_with_the_reason(tmp_path):
    db = pool.PooledSqliteDatabase(str(tmp_path / "pool.db"), max_connections=1)
    here = visitor(serve.app([Maker(db)()]))
    with db.connection_context():
        answer = here.get("/q/Task")
        assert post(here, "cancel", filter="", verb="dig").status_code == 404, "which needs no database"
    assert (answer.status_code, "Task gives no connection: Exceeded maximum connections." in answer.text) == (503, True)


def test_for_how_long_tasks_wait_is_read_from_the_history_every_fifteen_seconds(make_shared, monkeypatch):
    queue = make_shared({"history": True}).xq
    here = browse(queue, every=0)
    queue.put({"name": "a"})
    assert cells(shown(here, "/"))[0][1] == "1"
    queue.clock.tick(120)
    queue.put({"name": "b"})
    eventually(lambda: cells(shown(here, "/"))[0][1] == "2")
    assert "2 min" not in cells(shown(here, "/"))[0]
    now = time.monotonic
    monkeypatch.setattr("xq.core.time.monotonic", lambda: now() + 16)
    eventually(lambda: "2 min" in cells(shown(here, "/"))[0])


class Slow(pw.SqliteDatabase):
    """A database that does not answer while its gate is shut."""

    gate = threading.Event()

    def _connect(self) -> Any:
        return self.gate.wait(60) and super()._connect()  # type: ignore[misc]


def test_older_numbers_of_a_slow_database_are_shown_with_their_age(pages, tmp_path):
    Slow.gate.set()
    task = Maker(Slow(str(tmp_path / "slow.db")))()
    here = visitor(serve.app({"quick": pages, "slow": task}, every=0.01))
    assert [row[:2] for row in cells(shown(here, "/"))] == [["quick", "0"], ["slow", "0"]]
    Slow.gate.clear()
    pages.put({"name": "new"})
    eventually(lambda: "ago: a new look is under way" in (page := shown(here, "/")) and cells(page)[0][1] == "1")
    Slow.gate.set()


def test_a_database_that_hangs_takes_the_pages_of_its_queues_and_no_others(pages):
    if reason := Postgres.missing():
        pytest.skip(reason)
    with Postgres() as server, ThreadPoolExecutor(9) as browsers:
        server.create("stuck")
        with closing(server.peewee("stuck")) as db:
            here = visitor(serve.app({"quick": pages, "stuck": Maker(db)()}, every=0.01))
        shown(here, "/q/stuck")
        pages.put({"name": "new"})
        with server.hanging():
            loads = [browsers.submit(here.get, "/q/stuck") for _ in range(9)]
            assert "new" in cells(shown(here, "/q/quick"))[0]
            eventually(lambda: cells(shown(here, "/"))[0][:2] == ["quick", "1"])
            answers = [load.result() for load in loads]
            assert {(each.status_code, each.headers["retry-after"]) for each in answers} == {(503, "5")}
            assert "The database of stuck has not answered for 1" in here.get("/q/stuck").text
            assert "ago: its database does not answer" in shown(here, "/")
            assert "its database does not answer" in shown(here, "/q/stuck/part")
            # Four of pages, and one look; a look at the other database ends.
            eventually(lambda: sum(thread.name == "xq call" for thread in threading.enumerate()) == 5)
        eventually(lambda: here.get("/q/stuck").status_code == 200)


def test_a_console_within_wsgi_has_pages_that_ask_for_new_numbers(pages):
    console: Any = serve.app([pages], every=7)
    here = visitor(WSGIMiddleware(ASGIMiddleware(console)))
    asks = 'data-every="7.0" data-from="/q/Task/part"'
    assert (asks in shown(here, "/q/Task"), "ready" in texts(shown(here, "/q/Task/part"))) == (True, True)


def test_what_holds_a_queue_up_is_said_beside_its_name(make_shared):
    pages = make_shared({"limit": 1, "history": True}, roles=("tube",)).xq
    pages.put({"name": "a"})
    pages.clock.tick(120)
    here, limited = browse(pages, every=0), {"full", "none was taken for 2 min"}
    eventually(lambda: limited <= set(cells(shown(here, "/"))[0]))
    assert {f"{mark.capitalize()}." for mark in limited} <= set(texts(shown(here, "/q/Task/part")))
    pages.pause("mail")
    eventually(lambda: "paused: mail" in cells(shown(here, "/"))[0])


# what an operator does


def hidden(page: str) -> dict[str, str]:
    """The fields of a preview that its button sends."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def begin(here: TestClient, verb: str, **form: Any) -> None:
    """Preview an operation on all that a filter shows, and begin it."""
    preview = post(here, "preview", verb=verb, scope="all", **form)
    assert preview.status_code == 200, preview.text
    begun = post(here, "act", **{**form, **hidden(preview.text)})
    assert begun.status_code == 303, begun.text
    assert operations(here)


def operations(here: TestClient) -> list[tuple[str, str]]:
    """What the pages of the queue say of its operations: what each does, and its state. The newest comes first."""
    found = re.findall(r'<form class="notice operation".*?</form>', shown(here, "/q/Task/part"), re.DOTALL)
    return [(each[0], " ".join(each).partition(": ")[2].partition(",")[0]) for each in map(texts, found)]


def run(here: TestClient, verb: str, **form: Any) -> str:
    """Begin an operation, and return its state when it is over."""
    begin(here, verb, **form)
    eventually(lambda: operations(here)[0][1] not in ("running", "waits for others"))
    return operations(here)[0][1]


def test_all_that_a_filter_shows_are_moved_with_a_reason_and_what_is_risky_asks_for_the_name_of_the_queue(pages):
    keys = buried(pages, 7)
    buried(pages, 2, "KeyError: 'x'")
    here = browse(pages)
    assert run(here, "dig", filter="error:Timeout", reason="it answers again") == "done"
    assert pages.stats().counts["B"] == 2
    last = pages.history(keys[0])[-1]
    assert (last.event, last.actor, last.reason) == ("dig", "console", "it answers again")
    assert operations(here) == [("Dig", "done")]
    form = {"verb": "kill", "scope": "all", "filter": "state:buried"}
    asked = post(here, "preview", **form).text
    assert ("Type Task to go on" in asked, "It deletes the rows of the table task" in asked) == (True, True)
    for verb in ("kill", "cancel", "release", "restart"):
        assert post(here, "act", **form | {"verb": verb}).status_code == 400
    assert pages.count("B") == 2
    assert run(here, "kill", filter="state:buried", sure="Task") == "done"
    assert (pages.count("B"), pages.count()) == (0, 7)


def test_a_second_click_begins_no_second_operation(pages):
    """Otherwise it restarts tasks that workers have done since the first one, so these are done twice."""
    buried(pages, 3)
    here = browse(pages)

    with full_room(here):
        for filter in ("", "", "tube:mail"):
            begin(here, "dig", filter=filter)
        assert operations(here) == [("Dig", "waits for others")] * 2


def test_selected_tasks_are_moved_in_one_step_and_others_are_named(pages):
    keys = buried(pages, 3)
    pages.dig(keys[2])
    here = browse(pages, token={"ann": TOKEN})
    here.headers.update(BEARER)
    form = {"verb": "dig", "scope": "selected", "keys": keys}
    assert "Dig 3 tasks?" in post(here, "preview", **form).text
    assert "Dig: 2 moved, 1 skipped" in post(here, "act", **form, reason="again").text
    assert pages.history(keys[0])[-1].actor == "ann"
    taken = pages.take()
    assert "1 moved" in post(here, "act", verb="release", scope="selected", keys=[taken.id]).text
    assert pages.peek(taken.id).status == "R", "also from its owner"


def test_the_page_that_asks_has_a_field_for_a_priority(pages):
    first, *_ = pages.put_many([{}] * 3)
    here = browse(pages)
    form = {"verb": "reprioritise", "scope": "selected", "keys": [first.id]}
    assert 'name="priority"' in post(here, "preview", **form).text
    for wrong in ("", "high"):
        assert post(here, "act", **form, priority=wrong).status_code == 400
    assert "1 moved" in post(here, "act", **form, priority="-2").text
    assert run(here, "reprioritise", filter="", priority="7") == "done"
    assert {each.priority for each in pages.by_state("R")} == {7}


def test_an_operation_is_cancelled_and_the_same_filter_moves_what_it_left(pages):
    buried(pages, 5)
    here = browse(pages)
    with full_room(here):
        begin(here, "dig", filter="state:buried")
        assert post(here, "cancel", filter="state:buried", verb="dig").status_code == 303
    assert operations(here) == [("Dig", "cancelled")]
    assert 'href="/q/Task?filter=state%3Aburied"' in shown(here, "/q/Task/part")
    assert (run(here, "dig", filter="state:buried"), pages.count("R")) == ("done", 5)
    assert post(here, "cancel", filter="state:ready", verb="dig").status_code == 404


def test_an_operation_that_fails_says_why(pages):
    here = browse(pages)
    with full_room(here):
        begin(here, "dig", filter="")
        pages.uninstall(keep_columns=True)
    pages.install()
    assert operations(here)[0][1].startswith("failed: ")
    assert "The queue Task is not installed" in shown(here, "/q/Task/part")


def test_the_title_of_a_refusal_says_what_is_wrong(pages):
    assert "<h2>console has no right to fly." in post(browse(pages), "act", verb="fly").text


def test_a_queue_and_a_tube_are_paused_and_resumed(pages):
    here = browse(pages)
    for form, tube in (({}, None), ({"tube": "mail"}, "mail")):
        assert post(here, "pause", **form, reason="stop").status_code == 303
        assert pages.paused() == [tube]
        assert "stop" in shown(here, "/q/Task/pauses")
        assert [(each.actor, each.reason) for each in pages.pauses()] == [("console", "stop")]
        assert post(here, "resume", **form).status_code == 303
        assert pages.paused() == []


def test_a_limit_is_set_and_removed(make_shared):
    queue = make_shared({"utube": 1, "rate": "9/m"}, roles=("utube",)).xq
    here = browse(queue)
    assert post(here, "limit", feature="utube", value="acme", limit="10", reason="they pay").status_code == 303
    assert post(here, "limit", feature="rate", value="acme", limit="10/m").status_code == 400
    shows = shown(here, "/q/Task/pauses").partition("Limit of")[2]
    assert [row[:3] for row in cells(shows)] == [
        ["rate", "each without its own", "9/m"],
        ["utube", "each without its own", "1"],
        ["utube", "acme", "10"],
    ]
    assert [(each.actor, each.reason) for each in queue.limits()][-1] == ("console", "they pay")
    assert post(here, "limit", feature="utube", value="acme").status_code == 303
    assert len(queue.limits()) == 2
    assert post(browse(queue, read_only=True), "limit", feature="utube", limit="10").status_code == 403


def test_a_group_is_paused_and_resumed(make_shared):
    queue = make_shared({"groups": True}).xq
    with queue.group("import 7") as group:
        group.put({"name": "member"})
    here = browse(queue)
    assert post(here, "pause", group="import 7").status_code == 303
    assert (group.paused, "group import 7" in shown(here, "/q/Task/pauses")) == (True, True)
    assert "Group import 7 is paused" in shown(here, "/q/Task/group", name="import 7")
    eventually(lambda: "paused: group import 7" in cells(shown(here, "/"))[0])
    assert post(here, "resume", group="import 7").status_code == 303
    assert not group.paused


def test_a_schedule_is_run_paused_and_resumed(pages):
    pages.every("@daily", {"name": "digest"}, name="daily")
    here = browse(pages)
    for verb, shows in (("run", "Run Pause"), ("pause", "paused Run Resume"), ("resume", "Run Pause")):
        assert post(here, "schedule", verb=verb, schedule="daily").status_code == 303
        (row,) = cells(shown(here, "/q/Task/schedules"))
        assert [word for word in row if word in ("paused", "Run", "Pause", "Resume")] == shows.split()
    assert [pages.count(), *row[3:4]] == [1, f"{pages.schedules()[0].last:%Y-%m-%d %H:%M:%S}"]
    assert post(here, "schedule", verb="run", schedule="none").status_code == 404
    pages.clock.tick(86_400 + 61)
    assert "overdue" in cells(shown(here, "/q/Task/schedules"))[0]


# who may do what


def sent(here: TestClient, verb: str) -> Any:
    """Use a verb, by each page that has it; return the answers."""
    if verb == "view":
        return [here.get(path) for path in ("/", "/q/Task", "/q/Task/failures", "/static/console.js")]
    if verb == "run":
        return [post(here, "schedule", verb="run", schedule="x")]
    if verb in ("pause", "resume"):
        return [post(here, verb)]
    return [post(here, page, verb=verb, scope="selected", keys=["1"]) for page in ("preview", "act")]


@pytest.mark.parametrize("role", [*serve.ROLES, "read-only"])
def test_each_role_may_use_its_verbs_and_no_other_and_a_read_only_console_changes_nothing(pages, role):
    buried(pages, 1)
    rights: dict[str, Any] = {"read_only": True} if role == "read-only" else {"rights": role}
    here = browse(pages, token=TOKEN, **rights)
    here.headers.update(BEARER)
    for verb in serve.VERBS:
        before, may = (pages.stats(), pages.paused()), verb in serve.ROLES.get(role, ["view"])
        codes = [answer.status_code for answer in sent(here, verb)]
        assert [code != 403 for code in codes] == [may] * len(codes), verb
        assert max(codes) < 500, verb
        assert may or (pages.stats(), pages.paused()) == before, verb


def test_the_verb_of_an_operation_is_its_own_not_the_one_that_a_form_names(pages):
    rights = {"ann": "admin", "*": ["dig"]}
    here = browse(pages, user=lambda scope: dict(scope["headers"])[b"by"].decode(), rights=rights)
    here.headers["by"] = "ann"
    with full_room(here):
        begin(here, "kill", filter="state:buried", sure="Task")
        here.headers["by"] = "ben"
        for verb, status in (("dig", 404), ("kill", 403)):
            assert post(here, "cancel", filter="state:buried", verb=verb).status_code == status
        assert operations(here) == [("Kill", "waits for others")]


# who is let in


def test_every_page_is_behind_the_token_but_the_one_to_log_in(pages):
    console = serve.app([pages], token=TOKEN, metrics="token")
    here = visitor(console)
    opened = set()
    for route in console.pages:
        path = route.path.format(queue="Task")
        if here.request(route.method, path, headers=SAME).status_code != 401:
            opened.add((route.method, route.path))
    opened.discard(("POST", "/login"))
    assert opened == {("GET", "/login"), ("GET", "/static/console.css")}
    for path in ("/nowhere", "/static/../console.py", "/q/none", "/static/none.css"):
        assert here.get(path).status_code == 401, path
    assert "Task" not in here.get("/login").text


def test_a_wrong_token_is_refused_and_a_program_with_the_right_one_needs_no_origin(pages):
    here = browse(pages, token=TOKEN)
    for wrong in ("Bearer wrong-token-of-this-length-00", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xff"):
        header: Any = {"Authorization": wrong.encode("latin-1")}
        assert here.get("/", headers=header).status_code == 401, wrong
        assert here.post("/q/Task/pause", data={}, headers=SAME | header).status_code == 401, wrong
    assert here.get(f"/?token={TOKEN}").status_code == 401
    assert here.get("/", headers=BEARER).status_code == 200
    assert here.post("/q/Task/pause", data={}, headers=BEARER).status_code == 303


def log_in(here: TestClient, token: str = TOKEN, to: str = "/") -> Any:
    return here.post("/login", data={"token": token, "next": to}, headers=SAME)


def test_logging_in_sets_a_cookie_that_is_not_the_token(pages):
    here = browse(pages, token={"ann": TOKEN, "bob": OTHER})
    asked = here.get("/q/Task?filter=state:B")
    assert asked.status_code == 401
    assert 'value="/q/Task?filter=state:B"' in asked.text
    assert log_in(here, "wrong").status_code == 401
    answer = log_in(here, to="/q/Task?filter=state:B")
    assert (answer.status_code, answer.headers["location"]) == (303, "/q/Task?filter=state:B")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert "ann" in texts(shown(here, "/"))
    name, _, value = cookie.partition(";")[0].partition("=")
    for forged in (value[:-1], f"9{value}", "9" * 5_000 + ".", "9999999999.", "", "a.b.c"):
        other = visitor(here.app)
        other.cookies.set(name, forged)
        assert other.get("/").status_code == 401, forged
    assert here.post("/logout", headers=SAME).status_code == 303
    assert here.get("/").status_code == 401


def test_a_login_leads_to_this_console_only_and_ends(pages, monkeypatch):
    here = browse(pages, token=TOKEN)
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\r\nX: 1"):
        assert log_in(here, to=wanted).headers["location"] == "/", wanted
    assert here.get("/").status_code == 200
    now = time.time()
    monkeypatch.setattr("xq.core.time.time", lambda: now + 13 * 3600)
    assert here.get("/").status_code == 401


def test_after_ten_refused_tokens_within_a_minute_an_address_has_to_wait_and_all_logins_are_logged(
    pages, monkeypatch, caplog
):
    caplog.set_level("INFO", "xq.serve")
    console = serve.app([pages], token={"ann": TOKEN}, proxies=["10.0.0.9"])
    here, other = (visitor(console, address=address) for address in ("10.0.0.7", "10.0.0.8"))
    proxied = visitor(console, address="10.0.0.9")
    proxied.headers["X-Forwarded-For"] = "10.0.0.1, 10.0.0.7, 10.0.0.9"
    assert log_in(here).status_code == 303
    for n in range(10):
        answer = log_in(here, "wrong") if n % 2 else proxied.get("/", headers={"Authorization": f"Bearer wrong {n}"})
        assert answer.status_code == 401
    for refused in (log_in(here), log_in(proxied), here.get("/", headers=BEARER)):
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert (here.get("/").status_code, log_in(other).status_code) == (200, 303), "by its cookie, and another address"
    assert caplog.messages == [
        "ann logged in from 10.0.0.7",
        *["a token from 10.0.0.7 was refused"] * 10,
        "ann logged in from 10.0.0.8",
    ]
    now = time.monotonic
    monkeypatch.setattr("xq.core.time.monotonic", lambda: now() + 61)
    assert log_in(here).status_code == 303


def test_an_address_counts_once_in_whatever_form_a_proxy_writes_it_and_no_header_renames_the_console(pages, caplog):
    here = visitor(serve.app([pages], token=TOKEN, proxies=["10.0.0.0/8", "fd00::5"]), address="10.1.2.3")
    forms = {
        "198.51.100.7": ["198.51.100.7", "198.51.100.7:50123", "garbage, 198.51.100.7", "198.51.100.7, [fd00:0::5]:80"],
        "2001:db8::/64": ["2001:db8::1", "[2001:0db8::2]:443", "2001:db8::3:1"],
        "10.1.2.3": ["garbage\nline", "", "198.51.100.7, garbage"],
    }
    for address, texts_of_it in forms.items():
        for n in range(10):
            headers = {"X-Forwarded-For": texts_of_it[n % len(texts_of_it)], "Authorization": "Bearer wrong"}
            assert here.get("/", headers=headers).status_code == 401, headers
        assert here.get("/", headers=BEARER | {"X-Forwarded-For": texts_of_it[0]}).status_code == 429
        assert caplog.messages[-1] == f"a token from {address} was refused"
    evil = visitor(serve.app([pages]), host="evil.example")
    assert evil.get("/", headers={"X-Forwarded-Host": "localhost"}).status_code == 400


ORIGINS: list[tuple[dict[str, str], bool]] = [
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "none"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, False),
    ({"Origin": "http://localhost"}, True),
    ({"Origin": "http://localhost:8080"}, False),
    ({"Origin": "http://evil.example"}, False),
    ({"Origin": "http://localhost.evil.example"}, False),
    ({"Origin": "null"}, False),
    ({}, False),
]


def test_a_change_is_accepted_from_this_site_only(pages):
    here = browse(pages)
    for headers, is_done in ORIGINS:
        answer = here.post("/q/Task/pause", data={}, headers=headers)
        assert (answer.status_code, pages.paused()) == ((303, [None]) if is_done else (403, [])), headers
        pages.resume()


# the option hosts, the host and the address of a request -> the status, with a token and without one
HOSTS: list[tuple[list[str], str, str, int, int]] = [
    ([], "localhost", "127.0.0.1", 200, 200),
    ([], "127.0.0.1:8000", "127.0.0.1", 200, 200),
    ([], "[::1]:8000", "::1", 200, 200),
    ([], "localhost", "10.0.0.7", 200, 401),
    ([], "10.1.2.3", "10.0.0.7", 200, 400),
    ([], "evil.example", "127.0.0.1", 400, 400),
    (["queues.example.org"], "queues.example.org:443", "127.0.0.1", 200, 200),
    (["queues.example.org"], "QUEUES.example.org.", "127.0.0.1", 200, 200),
    (["queues.example.org"], "queues.example.org.evil.example", "127.0.0.1", 400, 400),
    ([".example.org"], "a.example.org", "127.0.0.1", 200, 200),
    ([".example.org"], "aexample.org", "127.0.0.1", 400, 400),
    (["*"], "anything.example", "127.0.0.1", 200, 200),
]


def test_the_host_of_a_request_is_checked_and_without_a_token_only_this_machine_is_answered(pages):
    for hosts, host, address, *codes in HOSTS:
        for token, code in zip((TOKEN, None), codes):
            here = visitor(serve.app([pages], token=token, hosts=hosts), host=host, address=address)
            headers = BEARER if token else {}
            assert here.get("/", headers=headers).status_code == code, (hosts, host, token)
    assert browse(pages).get("/", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 401, "a proxy passed it on"


GUARD = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "private, no-store",
}


def test_every_answer_has_the_headers_of_the_guard(pages):
    here = browse(pages, token=TOKEN)
    answers = [here.get(path, headers=BEARER) for path in ("/", "/nowhere", "/static/console.js", "/q/Task")]
    for answer in [*answers, here.get("/"), here.get("/login"), here.get("/", headers={"Host": "evil.example"})]:
        policy = answer.headers["content-security-policy"]
        assert ["default-src 'none'" in policy, "frame-ancestors 'none'" in policy] == [True, True], answer.url
        assert "unsafe" not in policy
        assert {name: answer.headers[name] for name in GUARD} == GUARD, answer.url


def test_a_proxy_names_its_user(pages):
    (key,) = buried(pages, 1)
    rights = {"ann": "operator", "*": "viewer"}
    console = serve.app([pages], user="X-Forwarded-User", proxies=["10.0.0.9"], rights=rights, hosts=["*"])
    here = visitor(console, address="10.0.0.9")
    assert visitor(console, address="10.0.0.8").get("/", headers={"X-Forwarded-User": "ann"}).status_code == 401
    assert here.get("/").status_code == 401
    for user, code in (("eve", 403), ("ann", 200)):
        here.headers["X-Forwarded-User"] = user
        assert post(here, "act", verb="dig", scope="selected", keys=[str(key)]).status_code == code
    assert pages.history(key)[-1].actor == "ann"


def test_metrics_have_a_switch_of_their_own(pages):
    assert browse(pages).get("/metrics").status_code == 404
    assert browse(pages, token=TOKEN, metrics="token").get("/metrics").status_code == 401
    answer = browse(pages, token=TOKEN, metrics="open").get("/metrics")
    assert (answer.status_code, "xq_tasks" in answer.text) == (200, True)
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_console_is_mounted_below_a_path(pages):
    here = visitor(Starlette(routes=[Mount("/ops/queues", app=serve.app([pages], token=TOKEN))]))
    answer = here.post("/ops/queues/login", data={"token": TOKEN, "next": "/q/Task"}, headers=SAME)
    assert answer.headers["location"] == "/ops/queues/q/Task"
    assert "Path=/ops/queues/" in answer.headers["set-cookie"]
    links = re.findall(r'(?:href|src|action|data-\w+)="(/[^"]*)"', shown(here, "/ops/queues/"))
    assert [path for path in links if not path.startswith("/ops/queues/")] == []
    assert here.get("/ops/queues/q/Task").status_code == 200


def test_a_proxy_has_the_console_below_a_path_and_says_how_it_was_reached(pages):
    console = serve.app([pages], token=TOKEN, root_path="/ops/", hosts=["queues.example.org"])
    here, far = (visitor(console, address=address) for address in ("127.0.0.1", "10.0.0.7"))
    proxied = {"X-Forwarded-Proto": "https", "Host": "queues.example.org:8443"}
    origin = {"Origin": "https://queues.example.org:8443"}
    for path in ("/login", "/ops/login"):
        answer = here.post(path, data={"token": TOKEN, "next": "/q/Task"}, headers=proxied | origin)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ops/q/Task"), path
        assert {"Secure", "Path=/ops/"} <= {part.strip() for part in answer.headers["set-cookie"].split(";")}
        far_away = far.post(path, data={"token": TOKEN}, headers=proxied | origin)
        assert "Secure" not in far_away.headers["set-cookie"], "no proxy sent it"
    for path in ("/ops/", "/", "/q/Task", "/ops/q/Task"):
        assert here.get(path, headers=BEARER).status_code == 200, path
    assert here.get("/opsq/Task", headers=BEARER).status_code == 404


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"token": "short"}, "at least 16"),
    ({"token": {"ann": TOKEN, "bob": TOKEN}}, "no two the same"),
    ({"rights": "king"}, "viewer, operator, admin"),
    ({"rights": ["fly"]}, "a list of verbs"),
    ({"colour": "red; }"}, "#rrggbb"),
    ({"name": "a\nb"}, "name= is text of 1 to 60 characters"),
    ({"hosts": "example.org"}, "a list of names"),
    ({"metrics": True}, "open"),
    ({"proxies": ["proxy.internal"]}, "addresses or networks"),
    ({"user": 7}, "the name of a header"),
    ({"root_path": "/a b"}, "root_path= is the path"),
    ({"hide": ["tube"]}, "hide= cannot hide 'tube' of Task: pages name keys and tubes"),
]


def test_wrong_settings_are_refused_by_name(pages):
    for options, told in WRONG:
        with pytest.raises(xq.Error, match=re.escape(told)) as refused:
            serve.app([pages], **options)
        assert TOKEN not in f"{refused.value} {refused.value.__context__}", "it shows no token"
    with pytest.raises(xq.BadValue, match="at least one queue"):
        serve.app([])


# hostile data


def test_hostile_data_is_shown_as_text_everywhere(pages):
    pages.put_many([{"name": EVIL, "tube": EVIL} for _ in range(3)])
    pages.bury_many(pages.take_many(2), error=f"{EVIL}: {EVIL}")
    pages.every(60, {"name": EVIL}, name=EVIL[:200])
    pages.pause(EVIL, actor=EVIL, reason=EVIL)
    here = browse(pages, name=EVIL[:40], colour="#123456")
    post(here, "act", verb="dig", scope="all", filter="state:buried", reason=EVIL)
    of_queue = ("", "/failures", "/task?key=1", "/workers", "/schedules", "/pauses", "/part")
    seen, filtered = 0, f"/q/Task?{urlencode({'filter': EVIL})}"
    for path in ("/", "/static/favicon.svg", filtered, *(f"/q/Task{each}" for each in of_queue)):
        page = here.get(path).text
        assert ("<script>alert" in page, "<img" in page) == (False, False), path
        seen += "&lt;script&gt;" in page
    assert seen >= 9
    form = {"verb": "kill", "scope": "all", "filter": EVIL, "reason": EVIL}
    assert "<script>alert" not in post(here, "preview", **form).text


def test_large_and_strange_data_is_cut_and_shown(pages):
    deep, big = "[" * 200 + "]" * 200, json.dumps({"big": 2**80})
    strange = ("x" * 60_000, big, deep, "\x1b[31m\u202e", '{"a":"\\ud800"}', "[" * 30_000)
    keys = {name: pages.put({"name": name}).id for name in strange}
    here = browse(pages)
    assert here.get("/q/Task").status_code == 200
    found = {name: shown(here, f"/q/Task/task?key={key}") for name, key in keys.items()}
    assert max(map(len, found.values())) < 100_000
    assert str(2**80) in found[big]


NAMES = (
    *("filter", "after", "n", "key", "keys", "scope", "verb", "tube", "reason"),
    *("delay", "token", "next", "queue", "sure", "once"),
)


def paths(console: Any, method: str) -> list[str]:
    """The paths of all pages of a console."""
    return [route.path.format(queue="Task") for route in console.pages if route.method == method]


TRIED = (
    'state:B|state:|-|"|key:1|key:[|age>1h|age>9e999|priority>1e400|a,b|all|selected|dig|kill|release|bury|1|0|-1|1e9|'
    "nan|\0|\ud800|%00|../..|AAAA|eyJ9|\N{ARABIC-INDIC DIGIT FOUR}|\u202e|'; DROP TABLE task; --"
)
WORDS = st.sampled_from([*TRIED.split("|"), "99999999999999999999", "9" * 4000, EVIL, "name:" + EVIL])
VALUES = st.one_of(WORDS, st.text(max_size=60), st.lists(WORDS, max_size=3).map(" ".join))
PARAMETERS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4)


def encoded(pairs: list[tuple[str, str]]) -> bytes:
    return urlencode([(name, value.encode("utf-8", "surrogatepass")) for name, value in pairs]).encode()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory) -> Iterator[TestClient]:
    """A console of a queue with hostile tasks, for all examples."""
    db = pw.SqliteDatabase(str(tmp_path_factory.mktemp("fuzz") / "app.db"), timeout=20)
    Task = Maker(db)(FEATURES, roles=ROLES, attributes={"error": pw.TextField(null=True)})
    Task.xq.put_many([{"name": EVIL} for _ in range(5)])
    Task.xq.bury_many(Task.xq.take_many(2), error=EVIL)
    Task.xq.act("dig", "state:buried error:nothing")
    console = serve.app([Task], every=60, metrics="open")
    yield visitor(console)
    db.close()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), parameters=PARAMETERS, raw=st.none() | st.binary(max_size=50))
def test_no_query_string_and_no_form_makes_a_page_fail(fuzzed, data, parameters, raw):
    method = data.draw(st.sampled_from(["GET", "POST"]))
    path = data.draw(st.sampled_from(paths(fuzzed.app, method)))
    if method == "GET":
        answer = fuzzed.get(f"{path}?{encoded(parameters).decode()}")
    else:
        headers = SAME | {"Content-Type": "application/x-www-form-urlencoded"}
        answer = fuzzed.post(path, content=encoded(parameters) if raw is None else raw, headers=headers)
    assert answer.status_code < 500, answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    if not answer.headers.get("content-type", "").startswith("text/plain"):  # such as the metrics of a paused tube
        assert ("<script>" in answer.text, "<img" in answer.text) == (False, False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.text(max_size=60),
    header=st.sampled_from(["accept", "cookie", "authorization", "origin", "host"]),
    value=st.binary(max_size=60),
)
def test_no_path_and_no_header_makes_the_console_fail(fuzzed, path, header, value):
    clean = value.replace(b"\r", b"").replace(b"\n", b"").strip()
    assert fuzzed.get(f"/{urlencode({'': path})[1:]}", headers={header: clean}).status_code < 500


REFUSED = {
    "/nowhere": 404,
    "/q/none": 404,
    "/q/Task/task?key=7": 404,
    "/q/Task/task?key=x": 404,
    "/q/Task?filter=state:nowhere": 400,
    f"/q/Task?filter={'a' * 17_000}": 400,
    f"/q/Task?x={'a' * 30_000}": 414,
}
FORMS = {"a=" + "b" * 600_000: 413, "&".join(["keys=1"] * 600): 400, "{}": 403}


def test_what_is_not_there_and_what_is_too_long_is_refused(pages):
    here = browse(pages)
    assert {path: here.get(path).status_code for path in REFUSED} == REFUSED
    assert post(here, "pause%0A").status_code == 404
    for body, code in FORMS.items():
        assert here.post("/q/Task/act", content=body, headers=SAME).status_code == code, code
