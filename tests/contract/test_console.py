"""The console in the browser: what its pages show, who may see and change what, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from itertools import product
from typing import Any
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults

import peewee as pw
import pytest
from a2wsgi import ASGIMiddleware
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import xq
from tests.steps import eventually
from tests.support.console import HERE, SAME, consoles, visitor  # noqa: F401
from xq import serve

TOKEN = "a-token-of-the-tests-0123456789"
OTHER = "another-token-of-the-tests-0123"
FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "history": True}
ROLES = ("runat", "owner", "tube", "attempts", "error", "priority")
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def queue(make_shared):
    """A queue with tubes, errors and a history."""

    def made(features: dict[str, Any] | None = None, name: str = "task") -> Any:
        model = make_shared.model(error=pw.TextField(null=True), table_name=name)
        return make_shared({**FEATURES, **(features or {})}, roles=ROLES, model=model).xq

    return made


def buried(queue: Any, n: int, error: str = "TimeoutError: no answer") -> list[Any]:
    """Put and bury tasks; return their keys."""
    tasks = [queue.put({"name": f"task {i}", "tube": "mail"}) for i in range(n)]
    taken = queue.take_many(n)
    queue.bury_many(taken, error=error)
    return [task.id for task in tasks]


def texts(page: str) -> list[str]:
    """What a page shows, without its markup."""

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_data(self, data: str) -> None:
            if data.strip():
                self.found.append(" ".join(data.split()))

    reader = Reader()
    reader.feed(page)
    return reader.found


def cells(page: str) -> list[list[str]]:
    """The texts of each row of the page's tables."""
    return [texts(row) for row in re.findall(r"<tr data-row>(.*?)</tr>", page, re.DOTALL)]


def link(page: str, rel: str) -> str | None:
    found = re.search(rf'<a rel="{rel}" class="button" href="([^"]+)"', page)
    return found[1].replace("&amp;", "&") if found else None


# what the pages show


def shown(here: TestClient, path: str, **query: Any) -> str:
    """The source of a page that is there."""
    answer = here.get(path, params=query or None)
    assert answer.status_code == 200, (path, answer.text)
    return str(answer.text)


def test_the_overview_has_the_exact_numbers_of_each_queue(queue):
    one, other = queue(), queue(name="other")
    buried(one, 3)
    one.put({"name": "ready"})
    other.pause()
    here = visitor(serve.app([one, other], colour="#b3261e"))
    page = shown(here, "/")
    first, second = cells(page)
    assert first[:6] == ["Task", "1", "0", "0", "3", "0"]
    assert second[:2] == ["Task", "paused"]
    assert "<title>Queues · xq</title>" in page
    assert '<svg class="spark"' in page, "a chart is drawn on the server"
    assert "--accent: #b3261e" in shown(here, "/static/theme.css"), "the colour of the environment"


def test_a_model_a_handle_and_a_tube_are_shown(make_shared):
    Task = make_shared(FEATURES, roles=ROLES, model=make_shared.model(error=pw.TextField(null=True)))
    tubes = xq.Tubes(make_shared.db)
    tube = tubes.create_tube('a/b "quoted" <i>', "fifottl")
    tube.put({"to": "ann"})
    here = visitor(serve.app([Task, Task.xq, tube]))
    page = here.get("/").text
    assert [row[0] for row in cells(page)] == ["Task", 'a/b "quoted" <i>']
    (slug,) = re.findall(r'href="/q/(a-b-[^"?]+)"', page)[:1]
    assert re.fullmatch(r"a-b-quoted-i-[0-9a-f]{8}", slug)
    assert "ann" in here.get(f"/q/{slug}").text


def test_tasks_are_filtered_and_paged_both_ways(queue):
    pages = queue()
    keys = buried(pages, 60)
    pages.put({"name": "another"})
    here = visitor(serve.app([pages]))
    first = shown(here, "/q/Task", filter="state:buried", n=25)
    second = shown(here, link(first, "next") or "")
    third = shown(here, link(second, "next") or "")
    assert [int(row[0]) for page in (first, second, third) for row in cells(page)] == keys
    assert (link(third, "next"), link(first, "prev")) == (None, None)
    assert cells(shown(here, link(second, "prev") or "")) == cells(first)
    assert len(cells(shown(here, "/q/Task", filter="name:another"))) == 1
    wrong = here.get("/q/Task", params={"filter": "state:nowhere"})
    assert (wrong.status_code, 'value="state:nowhere"' in wrong.text) == (400, True)


def test_a_filter_without_an_index_says_how_far_it_looked(queue):
    pages = queue({"history": False})
    for _ in range(11):
        pages.put_many([{"name": "x"}] * 1000)
    page = visitor(serve.app([pages])).get("/q/Task", params={"filter": "name:nothing"}).text
    assert "looked at 10,000 rows" in page
    assert "Go on" in page


def test_failures_are_grouped_and_lead_to_their_tasks(queue):
    pages = queue()
    buried(pages, 3, "TimeoutError: no answer within 30 s")
    buried(pages, 2, "KeyError: 'a'")
    here = visitor(serve.app([pages]))
    page = here.get("/q/Task/failures").text
    assert [row[0] for row in cells(page)] == ["TimeoutError", "KeyError"]
    to = re.search(r'href="(/q/Task\?filter=[^"]+)">TimeoutError', page)
    assert to
    assert len(cells(here.get(to[1].replace("&amp;", "&")).text)) == 3


def test_a_task_shows_its_fields_its_history_and_why_it_is_not_running(queue):
    pages = queue()
    (key,) = buried(pages, 1)
    with pages.acting("ann", reason="the mail server is back"):
        pages.dig(key)
    pages.pause()
    page = visitor(serve.app([pages])).get("/q/Task/task", params={"key": key}).text
    shown = texts(page)
    assert "task 0" in shown
    assert "the queue is paused: resume() ends that" in shown
    timeline = re.findall(r"<div><b>(\w+)</b>", page)
    assert timeline == ["put", "take", "bury", "dig"]
    assert any("the mail server is back" in text for text in shown)
    assert '<svg class="bar"' in page


def test_a_taken_task_shows_the_process_and_the_session_that_have_it(queue):
    pages = queue()
    pages.put({"name": "held"})
    task = pages.take()
    session, _ = pages.sessions()[0]
    here = visitor(serve.app([pages]))
    page, workers = here.get("/q/Task/task", params={"key": task.id}).text, here.get("/q/Task/workers").text
    (held,) = pages.processes()
    assert held.name.startswith(f"pid {os.getpid()} on host ")
    assert session in page
    assert session in workers
    assert f"Held by {held.name}, for " in page
    assert workers.count(held.name) == 2, "of its session, and of the task"
    assert '<td class="n" data-label="taken here">1</td>' in workers
    assert len(cells(here.get("/q/Task", params={"filter": f"session:{session}"}).text)) == 1


def test_schedules_pauses_and_what_is_wrong_have_pages(queue):
    pages = queue()
    here = visitor(serve.app([pages]))
    assert "Nothing is wrong." in shown(here, "/q/Task/doctor")
    pages.every("*/5 * * * *", {"name": "digest"}, name="every five minutes")
    pages.pause("mail", actor="ann", reason="maintenance")
    assert "every five minutes" in texts(shown(here, "/q/Task/schedules"))
    assert {"mail", "ann", "maintenance"} <= set(texts(shown(here, "/q/Task/pauses")))
    buried(pages, 2)
    assert (wrong := pages.doctor())
    assert {text for each in wrong for text in each} <= set(texts(shown(here, "/q/Task/doctor")))
    assert 'href="/q/Task/doctor"' in shown(here, "/q/Task")


def test_a_missing_task_and_a_missing_page_are_404(queue):
    here = visitor(serve.app([queue()]))
    for path in ("/q/Task/task?key=7", "/q/Task/task?key=x", "/q/none", "/nowhere", "/q/Task/operations/7"):
        assert here.get(path).status_code == 404, path


SECRET = {"password": "hunter2"}
HIDDEN = {
    "a field": ("name", {"name": "hunter2"}),
    "a number, which is in links": ("priority", {"priority": 4711}),
    "a key of JSON": ("password", {"job": json.dumps({"user": SECRET, "n": 1})}),
    "long JSON": ("password", {"job": json.dumps({**SECRET, "more": "x" * 60_000})}),
    "JSON behind a blank": ("password", {"job": " " + json.dumps(SECRET)}),
    "JSON in JSON": ("password", {"job": json.dumps({"body": json.dumps(SECRET)})}),
    "JSON encoded twice": ("password", {"job": json.dumps(json.dumps(SECRET))}),
    "an error": ("error", {"error": "LoginError: hunter2 is wrong"}),
}


@pytest.mark.parametrize(("hide", "fields"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_hidden_is_shown_nowhere(queue, hide, fields):
    pages = queue()
    (key,) = buried(pages, 1)
    pages.model.update(**fields).where(pages.model.id == key).execute()
    asked = {"verb": "kill", "scope": "selected", "keys": str(key)}

    def found(here: TestClient) -> list[str]:
        answers = [shown(here, path) for path in ("/q/Task", f"/q/Task/task?key={key}", "/q/Task/failures")]
        return [*answers, here.post("/q/Task/preview", data=asked, headers=SAME).text]

    assert any("hunter2" in page or "4711" in page for page in found(visitor(serve.app([pages]))))
    hidden = found(visitor(serve.app([pages], hide=[hide])))
    assert [page for page in hidden if "hunter2" in page or "4711" in page] == []
    assert "hidden" in hidden[1]


def test_tubes_cannot_be_hidden(queue):
    with pytest.raises(xq.BadValue, match="hide= cannot hide 'tube' of Task: many pages name tubes and utubes"):
        serve.app([queue()], hide=["tube"])


def test_a_queue_whose_database_fails_does_not_hide_the_others(queue, tmp_path):
    pages = queue()
    gone = pw.SqliteDatabase(str(tmp_path / "none" / "gone.db"))
    Gone = type("Gone", (pw.Model,), {"status": pw.CharField(), "Meta": type("Meta", (), {"database": gone})})
    xq.upgrade(Gone, {"status": "status"}, {})
    here = visitor(serve.app([pages, Gone]))
    page = here.get("/")
    assert page.status_code == 200
    assert "unable to open database file" in page.text
    assert here.get("/q/Gone").status_code == 503


def test_a_database_that_fails_for_long_is_logged_once(queue, monkeypatch, caplog):
    caplog.set_level("INFO", "xq.serve")
    snapshots = serve.app([queue()]).snapshots
    numbers = snapshots._numbers

    def fails(entry: Any, sessions: set[str]) -> Any:
        raise OSError("the disk is gone")

    for look in (fails, fails, fails, numbers, numbers):
        monkeypatch.setattr(snapshots, "_numbers", look)
        snapshots._look()
    assert [record.getMessage() for record in caplog.records] == [
        "no numbers of Task: the disk is gone",
        "numbers of Task again",
    ]


def test_one_snapshot_serves_all_browsers_and_the_looks_end_with_the_application(queue):
    console = serve.app([queue()], every=30)
    with visitor(console) as here:
        for _ in range(20):
            assert here.get("/").status_code == 200
        thread = console.snapshots._thread
    assert console.snapshots.looks == 1
    assert thread
    thread.join(20)
    assert not thread.is_alive()


def test_a_database_that_hangs_does_not_hold_up_the_pages_of_others(queue, monkeypatch):
    pages = queue()
    console = serve.app([pages], every=0.01)
    here = visitor(console)
    assert here.get("/").status_code == 200
    (before,) = console.snapshots.current().queues
    hangs = threading.Event()
    monkeypatch.setattr(console.snapshots, "_numbers", lambda entry, sessions: hangs.wait(30) and before)
    eventually(lambda: not console.snapshots._fresh())
    began = time.monotonic()
    for path in ("/", "/q/Task", "/live"):
        assert re.search(r"Numbers of [0-9.]+ (ms|s|min) ago", here.get(path).text), path
    hangs.set()
    assert time.monotonic() - began < 20
    eventually(lambda: "Numbers of" not in here.get("/").text)


def test_one_look_opens_one_connection_of_a_database(queue, monkeypatch):
    entries = [queue(name=name) for name in ("task", "other", "third")]
    console = serve.app(entries)
    database = entries[0].model._meta.database
    opened: list[int] = []
    connect = database.connect

    def counted(*args: Any, **named: Any) -> Any:
        opened.append(1)
        return connect(*args, **named)

    monkeypatch.setattr(database, "connect", counted)

    def look() -> None:
        console.snapshots._look()
        assert database.is_closed()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert len(opened) == 1


def test_the_oldest_ready_task_is_as_old_as_its_last_transition(queue):
    pages = queue()
    key = pages.put({"name": "polls for ever"}).id
    pages.clock.tick(5)
    pages.release(pages.take())
    (now,) = serve.app([pages]).snapshots._look().queues
    (last,) = pages.timeline(key)[-1:]
    assert now.oldest is not None
    assert last.seconds is not None
    assert 0 <= now.oldest <= last.seconds
    inspection = pages.adapter.inspection
    assert [inspection.time_in(state, key) for state in "TB"] == [None, None]
    assert inspection.time_in("R", key + 1) is None


def test_the_oldest_ready_task_may_come_after_one_that_is_retried(queue):
    pages = queue()
    pages.put_many([{"name": "first"}, {"name": "second"}])
    snapshots = serve.app([pages]).snapshots
    (entry,) = snapshots.entries
    snapshots._oldest(entry, pages.stats(), 1_000.0)
    pages.release(pages.take())  # which comes first again, and is ready since now
    assert snapshots._oldest(entry, pages.stats(), 5_000.0) == pytest.approx(4_000, abs=1)


FOLLOW = {  # a request for the events of a queue
    "type": "http",
    "method": "GET",
    "path": "/events",
    "query_string": b"queue=Task",
    "root_path": "",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 1),
    "scheme": "http",
    "server": ("localhost", 80),
}


def followed(console: Any, until: str, first: Callable[[], None] = lambda: None) -> list[str]:
    """The events until one has this text; after the first one, a function is called."""
    received: list[str] = []

    async def follow() -> None:
        done, called = asyncio.Event(), False

        async def send(message: Any) -> None:
            nonlocal called
            received.append(message.get("body", b"").decode())
            if until in received[-1]:
                done.set()
            elif "event: snapshot" in received[-1] and not called:
                called = True
                await asyncio.to_thread(first)

        async def receive() -> Any:
            await asyncio.Event().wait()

        following = asyncio.ensure_future(console(FOLLOW, receive, send))
        await asyncio.wait_for(done.wait(), 30)
        assert console.following == 1
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    asyncio.run(follow())
    assert console.following == 0
    return received


def test_events_bring_new_numbers(queue):
    pages = queue()

    def put() -> None:
        with pages.adapter.store.briefly_connected():
            pages.put({"name": "new"})

    received = followed(serve.app([pages], every=0.05), "<b>1</b>", put)
    assert received[0] == ""
    assert json.loads(received[-1].partition("data: ")[2])


def test_events_say_how_old_the_numbers_are_while_a_database_hangs(queue, monkeypatch):
    monkeypatch.setattr("xq.serve.console.QUIET", 0.05)
    console = serve.app([queue()], every=0.01)
    (before,) = console.snapshots.current().queues
    hangs = threading.Event()
    monkeypatch.setattr(console.snapshots, "_numbers", lambda entry, sessions: hangs.wait(30) and before)
    received = followed(console, "Numbers of")
    hangs.set()
    assert received[-1].startswith("event: snapshot")


def test_where_events_cannot_be_sent_a_page_is_asked_for(queue):
    pages = queue()
    here = visitor(serve.app([pages], live="poll"))
    assert 'data-live="poll"' in here.get("/").text
    assert "ready" in texts(here.get("/live").text)
    assert "ready" in texts(here.get("/live?queue=Task").text)


def test_all_assets_are_small_and_of_this_server(queue):
    here = visitor(serve.app([queue()]))
    page = here.get("/").text
    assets = re.findall(r'(?:src|href)="([^"]*static[^"]*)"', page)
    assert len(assets) == 4
    assert sum(len(here.get(path).content) for path in assets) < 100_000
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|https?://", page.replace("http://www.w3.org", ""))


# what an operator does


def hidden(page: str) -> dict[str, str]:
    """The fields of a preview that its button sends."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def run(here: TestClient, verb: str, **form: Any) -> Any:
    """Preview an operation on all that a filter shows, begin it, and return its page when it is over."""
    preview = here.post("/q/Task/preview", data={"verb": verb, "scope": "all", **form}, headers=SAME)
    assert preview.status_code == 200, preview.text
    sure = {"sure": form["sure"]} if "sure" in form else {}
    told = {**hidden(preview.text), "reason": form.get("reason", "why"), **sure}
    begun = here.post("/q/Task/act", data=told, headers=SAME)
    assert begun.status_code == 303, begun.text
    until = time.monotonic() + 60
    while "<progress" in (page := here.get(begun.headers["location"])).text or "running" in texts(page.text):
        assert time.monotonic() < until
    return page


def test_all_that_a_filter_shows_are_dug_with_a_reason(queue):
    pages = queue()
    keys = buried(pages, 7)
    buried(pages, 2, "KeyError: 'x'")
    here = visitor(serve.app([pages]))
    page = run(here, "dig", filter="error:Timeout", reason="it answers again")
    assert "Dig: done" in page.text
    assert pages.stats().counts["B"] == 2
    assert pages.peek(keys[0]).status == "R"
    last = pages.history(keys[0])[-1]
    assert (last.event, last.actor, last.reason) == ("dig", "console", "it answers again")
    assert [row[0] for row in cells(here.get("/q/Task/operations").text)] == ["dig"]


def test_a_second_click_begins_no_second_operation(queue):
    """Otherwise it restarts tasks that workers have done since the first one, so these are done twice."""
    pages = queue()
    buried(pages, 3)
    here = visitor(serve.app([pages]))

    def preview() -> dict[str, str]:
        return hidden(here.post("/q/Task/preview", data={"verb": "dig", "scope": "all"}, headers=SAME).text)

    form = preview()
    places = [here.post("/q/Task/act", data=form, headers=SAME).headers["location"] for _ in range(2)]
    assert places[0] == places[1]
    assert len(pages.operations()) == 1
    assert here.post("/q/Task/act", data=preview(), headers=SAME).headers["location"] not in places


def test_selected_tasks_are_moved_in_one_step_and_others_are_named(queue):
    pages = queue()
    keys = buried(pages, 3)
    pages.dig(keys[2])
    here = visitor(serve.app([pages], token={"ann": TOKEN}))
    here.headers["Authorization"] = f"Bearer {TOKEN}"
    form = {"verb": "dig", "scope": "selected", "keys": keys}
    assert "Dig 3 tasks?" in here.post("/q/Task/preview", data=form, headers=SAME).text
    page = here.post("/q/Task/act", data=form | {"reason": "again"}, headers=SAME).text
    assert "Dig: 2 moved, 1 skipped" in page
    assert pages.history(keys[0])[-1].actor == "ann"
    taken = pages.take()
    form = {"verb": "release", "scope": "selected", "keys": [taken.id]}
    assert "1 moved" in here.post("/q/Task/act", data=form, headers=SAME).text, "also from its owner"
    assert pages.peek(taken.id).status == "R"


def test_a_kill_of_all_asks_for_the_name_of_the_queue(queue):
    pages = queue()
    buried(pages, 3)
    here = visitor(serve.app([pages]))
    form = {"verb": "kill", "scope": "all", "filter": "state:buried"}
    assert "Type <b>Task</b>" in here.post("/q/Task/preview", data=form, headers=SAME).text
    assert here.post("/q/Task/act", data=form, headers=SAME).status_code == 400
    assert pages.count() == 3
    assert "Kill: done" in run(here, "kill", filter="state:buried", sure="Task").text
    assert pages.count() == 0


def test_an_operation_that_another_process_left_is_resumed_or_cancelled(queue):
    pages = queue()
    buried(pages, 5)
    left, other = pages.act("dig", "state:buried", chunk=2), pages.act("dig", "state:buried", chunk=2)
    left.step()
    here = visitor(serve.app([pages]))
    page = here.get(f"/q/Task/operations/{left.id}").text
    assert "Dig: stopped" in page
    assert here.post(f"/q/Task/operations/{other.id}/cancel", data={"verb": "dig"}, headers=SAME).status_code == 303
    assert "Dig: cancelled" in here.get(f"/q/Task/operations/{other.id}").text
    assert here.post(f"/q/Task/operations/{left.id}/resume", data={"verb": "dig"}, headers=SAME).status_code == 303
    until = time.monotonic() + 60
    while pages.operation(left.id).state == "running":
        assert time.monotonic() < until
    assert pages.stats().counts["B"] == 0


def test_a_queue_and_a_tube_are_paused_and_resumed(queue):
    pages = queue()
    here = visitor(serve.app([pages]))
    for form, tube in (({"scope": "all"}, None), ({"scope": "tube", "tube": "mail"}, "mail")):
        assert here.post("/q/Task/pause", data=form | {"reason": "stop"}, headers=SAME).status_code == 303
        assert pages.paused() == [tube]
        assert [(each.actor, each.reason) for each in pages.pauses()] == [("console", "stop")]
        assert here.post("/q/Task/resume", data=form, headers=SAME).status_code == 303
        assert pages.paused() == []


# who may do what

ACTIONS = [verb for verb in serve.VERBS if verb != "view"]


def sent(here: TestClient, verb: str) -> Any:
    """Use a verb, by each page that has it; return the answers."""
    if verb == "view":
        return [here.get(path) for path in ("/", "/q/Task", "/q/Task/failures", "/live", "/static/console.js")]
    if verb in ("pause", "resume"):
        return [here.post(f"/q/Task/{verb}", data={"scope": "all"}, headers=SAME)]
    form = {"verb": verb, "scope": "selected", "keys": ["1"]}
    return [here.post(f"/q/Task/{page}", data=form, headers=SAME) for page in ("preview", "act")]


@pytest.mark.parametrize("role", serve.ROLES)
def test_each_role_may_use_its_verbs_and_no_other(queue, role):
    pages = queue({"buried": "any"})
    buried(pages, 1)
    here = visitor(serve.app([pages], token=TOKEN, rights=role))
    here.headers["Authorization"] = f"Bearer {TOKEN}"
    for verb in serve.VERBS:
        before, may = (pages.stats(), pages.paused()), verb in serve.ROLES[role]
        codes = [answer.status_code for answer in sent(here, verb)]
        assert [code != 403 for code in codes] == [may] * len(codes), verb
        assert max(codes) < 500, verb
        assert may or (pages.stats(), pages.paused()) == before, verb


def test_a_read_only_console_changes_nothing(queue):
    pages = queue({"buried": "any"})
    buried(pages, 1)
    before = pages.stats()
    here = visitor(serve.app([pages], read_only=True))
    found = {verb: {answer.status_code for answer in sent(here, verb)} for verb in ACTIONS}
    assert found == {verb: {403} for verb in ACTIONS}
    assert pages.stats() == before
    page = shown(here, "/q/Task")
    assert "read-only" in page
    assert 'name="verb"' not in page


def test_the_verb_of_an_operation_is_its_own_not_the_one_that_a_form_names(queue):
    pages = queue()
    buried(pages, 1)
    operation = pages.act("kill", "state:buried")
    here = visitor(serve.app([pages], rights=["dig"]))
    for page in ("cancel", "resume"):
        answer = here.post(f"/q/Task/operations/{operation.id}/{page}", data={"verb": "dig"}, headers=SAME)
        assert answer.status_code == 403
    assert pages.operation(operation.id).state == "running"


def test_a_database_that_only_reads_refuses_by_itself(tmp_path):
    path = tmp_path / "app.db"
    db = pw.SqliteDatabase(str(path))

    def model(database: pw.Database) -> Any:
        fields = {"status": pw.CharField(), "error": pw.TextField(null=True)}
        Task = type("Task", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": database})})
        xq.upgrade(Task, {"status": "status"}, {"buried": True})
        return Task

    with db:
        Task = model(db)
        db.create_tables([Task])
        Task.put({})
    db.close()
    replica = pw.SqliteDatabase(f"file:{path}?mode=ro", uri=True)
    here = visitor(serve.app([model(replica)]))
    assert here.get("/").status_code == 200
    assert here.get("/q/Task").status_code == 200
    for verb in ("kill", "pause"):
        for answer in sent(here, verb):
            assert answer.status_code == 503
            assert "only reads" in answer.text
            assert "retry-after" in answer.headers


# who is let in


def test_without_a_token_only_this_machine_is_answered(queue):
    console = serve.app([queue()])
    assert visitor(console).get("/").status_code == 200
    assert visitor(console, host="[::1]:8000", address="::1").get("/").status_code == 200
    assert visitor(console, address="10.0.0.7").get("/").status_code == 401
    assert visitor(console, host="10.0.0.1", address="10.0.0.7").get("/").status_code == 400


def test_every_page_is_behind_the_token_but_the_one_to_log_in(queue):
    pages = queue()
    console = serve.app([pages], token=TOKEN, metrics="token")
    here = visitor(console)
    opened = set()
    for route in console.routes:
        path = route.path.format(queue="Task", number="1")
        answer = here.request(route.method, path, headers=SAME)
        if answer.status_code != 401:
            opened.add((route.method, route.path))
    opened.discard(("POST", "/login"))
    assert opened == {("GET", "/login"), ("GET", "/static/console.css"), ("GET", "/static/theme.css")}
    for path in ("/nowhere", "/static/../console.py", "/q/none", "/static/none.css"):
        assert here.get(path).status_code == 401, path
    assert "Task" not in here.get("/login").text


def test_a_wrong_token_is_refused(queue):
    here = visitor(serve.app([queue()], token=TOKEN))
    for wrong in ("Bearer wrong-token-of-this-length-00", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xff"):
        header: Any = {"Authorization": wrong.encode("latin-1")}
        assert here.get("/", headers=header).status_code == 401, wrong
    assert here.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert here.get(f"/?token={TOKEN}").status_code == 401


def test_logging_in_sets_a_cookie_that_is_not_the_token(queue):
    here = visitor(serve.app([queue()], token={"ann": TOKEN, "bob": OTHER}))
    asked = here.get("/q/Task?filter=state:B")
    assert asked.status_code == 401
    assert 'value="/q/Task?filter=state:B"' in asked.text
    assert here.post("/login", data={"token": "wrong"}, headers=SAME).status_code == 401
    answer = here.post("/login", data={"token": TOKEN, "next": "/q/Task?filter=state:B"}, headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/q/Task?filter=state:B")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    page = here.get("/")
    assert page.status_code == 200
    assert "ann" in texts(page.text)
    name, _, value = cookie.partition(";")[0].partition("=")
    for forged in (value[:-1], value.replace(b"ann".hex(), b"bob".hex()), f"{b'ann'.hex()}.9999999999.", "", "a.b.c"):
        other = visitor(here.app)
        other.cookies.set(name, forged)
        assert other.get("/").status_code == 401, forged
    assert here.post("/logout", headers=SAME).status_code == 303
    assert here.get("/").status_code == 401


def test_a_cookie_ends(queue, monkeypatch):
    here = visitor(serve.app([queue()], token=TOKEN))
    here.post("/login", data={"token": TOKEN}, headers=SAME)
    assert here.get("/").status_code == 200
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 13 * 3600)
    assert here.get("/").status_code == 401


def test_a_login_leads_to_this_console_only(queue):
    here = visitor(serve.app([queue()], token=TOKEN))
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\r\nX: 1"):
        answer = here.post("/login", data={"token": TOKEN, "next": wanted}, headers=SAME)
        assert answer.headers["location"] == "/", wanted


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


def test_a_change_is_accepted_from_this_site_only(queue):
    pages = queue()
    here = visitor(serve.app([pages]))
    for headers, is_done in ORIGINS:
        answer = here.post("/q/Task/pause", data={"scope": "all"}, headers=headers)
        assert (answer.status_code, pages.paused()) == ((303, [None]) if is_done else (403, [])), headers
        pages.resume()


def test_a_program_with_a_bearer_token_needs_no_origin(queue):
    here = visitor(serve.app([queue()], token=TOKEN))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert here.post("/q/Task/pause", data={"scope": "all"}, headers=bearer).status_code == 303
    wrong = SAME | {"Authorization": "Bearer wrong"}
    assert here.post("/q/Task/pause", data={"scope": "all"}, headers=wrong).status_code == 401


HOSTS: list[tuple[list[str] | None, str, int]] = [
    (None, "localhost", 200),
    (None, "127.0.0.1:8000", 200),
    (None, "10.1.2.3", 200),
    (None, "evil.example", 400),
    (["queues.example.org"], "queues.example.org:443", 200),
    (["queues.example.org"], "QUEUES.example.org.", 200),
    (["queues.example.org"], "queues.example.org.evil.example", 400),
    ([".example.org"], "a.example.org", 200),
    ([".example.org"], "aexample.org", 400),
    (["*"], "anything.example", 200),
]


def test_the_host_of_a_request_is_checked(queue):
    pages, bearer = queue(), {"Authorization": f"Bearer {TOKEN}"}
    for hosts, host, code in HOSTS:
        here = visitor(serve.app([pages], token=TOKEN, hosts=hosts), host=host)
        assert here.get("/", headers=bearer).status_code == code, (hosts, host)


GUARD = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "private, no-store",
}


def test_every_answer_has_the_headers_of_the_guard(queue):
    here = visitor(serve.app([queue()], token=TOKEN))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    answers = [here.get(path, headers=bearer) for path in ("/", "/nowhere", "/static/console.js", "/live")]
    for answer in [*answers, here.get("/"), here.get("/login"), here.get("/", headers={"Host": "evil.example"})]:
        policy = answer.headers["content-security-policy"]
        assert ["default-src 'none'" in policy, "frame-ancestors 'none'" in policy] == [True, True], answer.url
        assert "unsafe" not in policy
        assert {name: answer.headers[name] for name in GUARD} == GUARD, answer.url


def test_a_proxy_names_its_user(queue):
    pages = queue()
    (key,) = buried(pages, 1)
    rights = {"ann": "operator", "*": "viewer"}
    console = serve.app([pages], user="X-Forwarded-User", proxies=["10.0.0.9"], rights=rights, hosts=["*"])
    here = visitor(console, address="10.0.0.9")
    assert visitor(console, address="10.0.0.8").get("/", headers={"X-Forwarded-User": "ann"}).status_code == 401
    form = {"verb": "dig", "scope": "selected", "keys": [str(key)]}
    assert here.get("/").status_code == 401
    assert here.post("/q/Task/act", data=form, headers=SAME | {"X-Forwarded-User": "eve"}).status_code == 403
    assert here.post("/q/Task/act", data=form, headers=SAME | {"X-Forwarded-User": "ann"}).status_code == 200
    assert pages.history(key)[-1].actor == "ann"


def test_metrics_have_a_switch_of_their_own(queue):
    pages = queue()
    assert visitor(serve.app([pages])).get("/metrics").status_code == 404
    assert visitor(serve.app([pages], token=TOKEN, metrics="token")).get("/metrics").status_code == 401
    answer = visitor(serve.app([pages], token=TOKEN, metrics="open")).get("/metrics")
    assert answer.status_code == 200
    assert "xq_tasks" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_console_is_mounted_below_a_path(queue):
    pages = queue()
    buried(pages, 1)
    here = visitor(Starlette(routes=[Mount("/ops/queues", app=serve.app([pages], token=TOKEN))]))
    answer = here.post("/ops/queues/login", data={"token": TOKEN, "next": "/q/Task"}, headers=SAME)
    assert answer.headers["location"] == "/ops/queues/q/Task"
    assert "Path=/ops/queues/" in answer.headers["set-cookie"]
    links = re.findall(r'(?:href|src|action|data-\w+)="(/[^"]*)"', shown(here, "/ops/queues/"))
    assert [path for path in links if not path.startswith("/ops/queues/")] == []
    assert here.get("/ops/queues/q/Task").status_code == 200


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"token": "short"}, "at least 16"),
    ({"token": {"ann": TOKEN, "bob": TOKEN}}, "same token"),
    ({"rights": "king"}, "viewer, operator, admin"),
    ({"rights": ["fly"]}, "a verb of the console"),
    ({"colour": "red; }"}, "#rrggbb"),
    ({"name": "a\nb"}, "the name of an environment"),
    ({"hosts": "example.org"}, "a list of names"),
    ({"live": "socket"}, "events"),
    ({"metrics": True}, "open"),
    ({"user": 7}, "a header"),
]


def test_wrong_settings_are_refused_by_name(queue):
    pages = queue()
    for options, told in WRONG:
        with pytest.raises(xq.Error, match=re.escape(told)):
            serve.app([pages], **options)
    with pytest.raises(xq.BadValue, match="at least one queue"):
        serve.app([])


# hostile data


def test_hostile_data_is_shown_as_text_everywhere(queue):
    pages = queue()
    pages.put_many([{"name": EVIL, "tube": EVIL} for _ in range(3)])
    pages.bury_many(pages.take_many(2), error=f"{EVIL}: {EVIL}")
    pages.every(60, {"name": EVIL}, name=EVIL[:200])
    pages.pause(EVIL, actor=EVIL, reason=EVIL)
    pages.act("dig", "state:buried", actor=EVIL, reason=EVIL).run()
    here = visitor(serve.app([pages], name=EVIL[:40], colour="#123456"))
    of_queue = ("", "/failures", "/task?key=1", "/workers", "/schedules", "/pauses", "/operations", "/operations/1")
    seen = 0
    for path in (
        *("/", "/live", "/static/favicon.svg", f"/q/Task?{urlencode({'filter': EVIL})}"),
        *(f"/q/Task{each}" for each in of_queue),
    ):
        page = here.get(path).text
        assert ("<script>alert" in page, "<img" in page) == (False, False), path
        seen += "&lt;script&gt;" in page
    assert seen >= 9
    form = {"verb": "kill", "scope": "all", "filter": EVIL, "reason": EVIL}
    assert "<script>alert" not in here.post("/q/Task/preview", data=form, headers=SAME).text


def test_large_and_strange_data_is_cut_and_shown(queue):
    pages = queue()
    deep, big = "[" * 200 + "]" * 200, json.dumps({"big": 2**80})
    strange = ("x" * 60_000, big, deep, "\x1b[31m\u202e", '{"a":"\\ud800"}', "[" * 30_000)
    keys = {name: pages.put({"name": name}).id for name in strange}
    here = visitor(serve.app([pages]))
    assert here.get("/q/Task").status_code == 200
    found = {name: shown(here, f"/q/Task/task?key={key}") for name, key in keys.items()}
    assert max(map(len, found.values())) < 100_000
    assert str(2**80) in found[big]


NAMES = (
    *("filter", "after", "back", "n", "key", "keys", "scope", "verb", "tube", "reason"),
    *("delay", "token", "next", "queue", "sure", "once", "span", "x"),
)
PARTS = {"queue": ["Task"], "number": ["1", "99999999999999999999"]}


def paths(here: TestClient, method: str) -> list[str]:
    """The paths of all pages of a console, but of the events, which have no end."""
    patterns = [route.path for route in here.app.routes if route.method == method and route.path != "/events"]  # type: ignore[attr-defined]
    names = [re.findall(r"{(\w+)}", pattern) for pattern in patterns]
    return [
        pattern.format(**dict(zip(named, parts)))
        for pattern, named in zip(patterns, names)
        for parts in product(*(PARTS[name] for name in named))
    ]


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
def fuzzed(tmp_path_factory) -> Iterator[Callable[[], TestClient]]:
    """A console of a queue with hostile tasks, for all examples."""
    db = pw.SqliteDatabase(str(tmp_path_factory.mktemp("fuzz") / "app.db"), timeout=20)

    class Task(xq.Task):
        name = pw.TextField(null=True)

        class Meta:
            database = db
            table_name = "task"

    xq.upgrade(Task, features=FEATURES)
    db.create_tables([Task])
    Task.xq.put_many([{"name": EVIL} for _ in range(5)])
    Task.xq.bury_many(Task.xq.take_many(2), error=EVIL)
    Task.xq.act("dig", "state:buried error:nothing")
    Task.xq.pipeline.rollup(EVIL).install()
    console = serve.app([Task], every=60, activity=EVIL, metrics="open")
    here = visitor(console, raise_server_exceptions=True)
    yield lambda: here
    console.close()
    db.close()


def _is_sound(answer: Any, sent_: str) -> None:
    assert answer.status_code < 500, (sent_, answer.text)
    assert "<script>" not in answer.text, sent_
    assert "<img" not in answer.text, sent_


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), parameters=PARAMETERS, raw=st.none() | st.binary(max_size=50))
def test_no_query_string_and_no_form_makes_a_page_fail(fuzzed, data, parameters, raw):
    method = data.draw(st.sampled_from(["GET", "POST"]))
    path = data.draw(st.sampled_from(paths(fuzzed(), method)))
    if method == "GET":
        _is_sound(fuzzed().get(f"{path}?{encoded(parameters).decode()}"), path)
    else:
        body = encoded(parameters) if raw is None else raw
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        _is_sound(fuzzed().post(path, content=body, headers=SAME | kind), repr(body))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.text(max_size=60),
    header=st.sampled_from(["accept", "cookie", "authorization", "origin", "host"]),
    value=st.binary(max_size=60),
)
def test_no_path_and_no_header_makes_the_console_fail(fuzzed, path, header, value):
    clean = value.replace(b"\r", b"").replace(b"\n", b"").strip()
    answer = fuzzed().get(f"/{urlencode({'': path})[1:]}", headers={header: clean})
    assert answer.status_code < 500


def test_what_is_too_long_is_refused(queue):
    here = visitor(serve.app([queue()]))
    assert here.get("/q/Task?filter=" + "a" * 3_000).status_code == 400
    assert here.get("/q/Task?x=" + "a" * 30_000).status_code == 414
    form = {"Content-Type": "application/x-www-form-urlencoded"} | SAME
    assert here.post("/q/Task/act", content="a=" + "b" * 600_000, headers=form).status_code == 413
    assert here.post("/q/Task/act", content="&".join(["keys=1"] * 600), headers=form).status_code == 400
    other = SAME | {"Content-Type": "application/json"}
    assert here.post("/q/Task/act", content="{}", headers=other).status_code in (400, 415)


def test_a_console_is_mounted_into_wsgi(queue):
    console: Any = serve.app([queue()], live="poll")
    wsgi: Any = ASGIMiddleware(console)
    environ: dict[str, Any] = {"HTTP_ACCEPT": "text/html", "HTTP_HOST": "localhost"}
    environ |= {"REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "50000"}
    setup_testing_defaults(environ)
    answered: list[str] = []

    def start_response(status: str, headers: Any, error: Any = None) -> Callable[[bytes], None]:
        answered.append(status)
        return lambda body: None

    body = b"".join(wsgi(environ, start_response))
    assert answered == ["200 OK"]
    assert b'data-live="poll"' in body
