"""The console in a real browser: what it does without being loaded again, its keys, and its policy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import peewee as pw
import pytest
import uvicorn

from tests.browser import Browser, browser, window
from xq import serve

__all__ = ["browser", "window"]  # fixtures

TOKEN = "a-token-of-the-tests-0123456789"
EVIL = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\">"

on_one_database = pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what the page decides


@pytest.fixture
def served(browser: Browser) -> Iterator[Callable[..., str]]:
    """Serves a console, and returns its address."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(queues: Any, **options: Any) -> str:
        console = serve.app(queues, every=0.2, **options)
        server = uvicorn.Server(uvicorn.Config(console, port=0, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        until = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < until
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    browser.open("about:blank")  # else it says that the events have ended
    for server, thread in servers:
        server.should_exit = True
        thread.join()


@pytest.fixture
def pages(make_live: Any) -> Any:
    """A queue of some buried and some ready tasks."""
    model = make_live.model(error=pw.TextField(null=True))
    features = {"delayed": True, "buried": True, "keep": True, "history": True}
    queue = make_live(features, roles=("runat", "owner", "tube", "attempts", "error"), model=model).xq
    queue.put_many([{"name": EVIL if i == 3 else f"task {i}"} for i in range(5)])
    queue.bury_many(queue.take_many(3), error="TimeoutError: no answer")
    return queue


def figure(page: Browser, name: str) -> str:
    """The number above a word."""
    return next(each.splitlines()[0] for each in page.texts(".figure") if each.splitlines()[1:] == [name])


@on_one_database
def test_numbers_follow_the_queue_until_something_is_selected(browser, served, pages):
    browser.open(served([pages], name="staging", colour="#2e7d32") + "/q/Task")
    assert browser.driver.title == "Task · staging"
    browser.eventually(lambda: figure(browser, "ready") == "2")
    pages.put({"name": "new"})
    browser.eventually(lambda: figure(browser, "ready") == "3")

    browser.one("input[name=keys]").click()
    pages.put({"name": "newer"})
    browser.eventually(lambda: "held" in browser.one("#updates").get_attribute("class"))
    browser.eventually(lambda: figure(browser, "ready") == "3")
    browser.one("input[name=keys]").click()
    browser.eventually(lambda: figure(browser, "ready") == "4")


@on_one_database
def test_an_operator_digs_selected_tasks_by_the_keyboard(browser, served, pages):
    browser.open(served([pages]) + "/q/Task?filter=state:buried")
    body = browser.one("body")
    body.send_keys("jxjx")
    browser.eventually(lambda: browser.one("#selected").text == "2")
    assert len(browser.all("tr.at")) == 1
    browser.follow(next(each for each in browser.all("button[name=verb]") if each.text == "Dig"))
    assert "Dig 2 tasks?" in browser.text()
    browser.fill("reason", "by hand")
    browser.follow(browser.one("button:not([type]):not(.quiet):not(.danger)"))
    assert "Dig: 2 moved" in browser.text()
    assert pages.stats().counts["B"] == 1
    assert {row.reason for row in pages.history() if row.event == "dig"} == {"by hand"}

    browser.open(browser.driver.current_url.rpartition("/q/")[0] + "/q/Task")
    body = browser.one("body")
    body.send_keys("?")
    browser.eventually(lambda: browser.one("#help").is_displayed())
    browser.one("#help button").click()
    browser.one("body").send_keys("/")
    assert browser.driver.switch_to.active_element.get_attribute("name") == "filter"


@on_one_database
def test_all_failures_of_a_group_are_killed_with_progress(browser, served, pages):
    browser.open(served([pages]) + "/q/Task/failures")
    browser.follow(next(each for each in browser.all("button[name=verb]") if each.text == "Kill"))
    assert "Kill 3 tasks?" in browser.text() or "Kill at least 3 tasks?" in browser.text()
    browser.fill("sure", "Task")
    browser.follow(browser.one(".sheet button.danger"))
    browser.eventually(lambda: "Kill: done" in browser.text())
    assert pages.stats().counts["B"] == 0


@on_one_database
def test_a_visitor_logs_in_and_hostile_data_runs_nothing(browser, served, pages):
    address = served([pages], token={"ann": TOKEN})
    browser.open(address + "/q/Task?filter=state:R")
    browser.complaints()  # of the 401
    browser.fill("token", TOKEN)
    browser.follow(browser.one("form.sheet button"))
    assert browser.driver.current_url == address + "/q/Task?filter=state:R"
    assert "document.title" in browser.text()
    for path in ("/", "/q/Task", "/q/Task/task?key=4", "/q/Task/failures", "/q/Task/workers", "/q/Task/pauses"):
        browser.open(address + path)
        assert "broken" not in browser.driver.title
    assert browser.driver.execute_script("return document.cookie") == ""
    browser.follow(browser.one(".top form button"))
    browser.open(address + "/")
    assert browser.one("input[name=token]")
    browser.complaints()


@on_one_database
@pytest.mark.parametrize("size", [(360, 740), (1280, 900)])
def test_no_page_is_wider_than_the_window_and_its_footer_comes_last(browser, served, pages, size):
    address = served([pages])
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        tabs = ("", "/task?key=1", "/failures", "/workers", "/schedules", "/pauses", "/operations", "/doctor")
        for path in ("/", *(f"/q/Task{tab}" for tab in tabs)):
            browser.open(address + path)
            wide, window_ = browser.driver.execute_script(
                "return [document.documentElement.scrollWidth, window.innerWidth]"
            )
            assert wide <= window_, path
            assert browser.driver.execute_script(
                "const top = document.querySelector('footer').getBoundingClientRect().top;"
                "const inside = [...document.querySelectorAll('main *')];"
                "return inside.every((each) => each.getBoundingClientRect().bottom <= top + 1)"
            ), path
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
