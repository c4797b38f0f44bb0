"""The console in a real browser: what it does without being loaded again, its keys, and its policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import peewee as pw
import pytest
import uvicorn

from tests.browser import Browser, browser, window
from tests.steps import eventually
from xq import serve

__all__ = ["browser", "window"]  # fixtures

pytestmark = pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what the page decides

TOKEN = "a-token-of-the-tests-0123456789"
EVIL = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\">"


@pytest.fixture
def pages(make_live: Any) -> Any:
    """A queue of three buried and two ready tasks."""
    model = make_live.model(error=pw.TextField(null=True))
    features = {"delayed": True, "buried": True, "keep": True, "history": True}
    queue = make_live(features, roles=("runat", "owner", "tube", "attempts", "error"), model=model).xq
    queue.put_many([{"name": EVIL if i == 3 else f"task {i}"} for i in range(5)])
    queue.bury_many(queue.take_many(3), error="TimeoutError: no answer")
    return queue


@pytest.fixture
def served(browser: Browser, pages: Any) -> Iterator[Callable[..., str]]:
    """Serves the console of the queue, and returns its address."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> str:
        console = serve.app([pages], every=0.2, **options)
        server = uvicorn.Server(uvicorn.Config(console, port=0, log_level="error", timeout_graceful_shutdown=1))
        servers.append((server, threading.Thread(target=server.run, daemon=True)))
        servers[-1][1].start()
        eventually(lambda: server.started)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    browser.open("about:blank")  # else it says that the events have ended
    for server, thread in servers:
        server.should_exit = True
        thread.join()


def ready(page: Browser) -> str:
    """The number of ready tasks that the page shows."""
    return next(each.splitlines()[0] for each in page.texts(".figure") if each.splitlines()[1:] == ["ready"])


def test_numbers_follow_the_queue_until_something_is_selected(browser, served, pages):
    browser.open(served(name="staging", colour="#2e7d32") + "/q/Task")
    assert browser.driver.title == "Task · staging"
    browser.eventually(lambda: ready(browser) == "2")
    pages.put({"name": "new"})
    browser.eventually(lambda: ready(browser) == "3")

    browser.one("input[name=keys]").click()
    pages.put({"name": "newer"})
    browser.eventually(lambda: "held" in browser.one("#updates").get_attribute("class"))
    browser.eventually(lambda: ready(browser) == "3")
    browser.one("input[name=keys]").click()
    browser.eventually(lambda: ready(browser) == "4")


def test_an_operator_digs_selected_tasks_by_the_keyboard(browser, served, pages):
    browser.open(served() + "/q/Task?filter=state:buried")
    browser.one("body").send_keys("/")
    assert browser.driver.switch_to.active_element.get_attribute("name") == "filter"
    browser.open(browser.driver.current_url)
    (dig,) = [each for each in browser.all("button[name=verb]") if each.text == "Dig"]
    assert not dig.is_enabled(), "nothing is selected"
    browser.one("body").send_keys("jxjx")
    browser.eventually(lambda: browser.one("#selected").text == "2")
    browser.follow(dig)
    assert "Dig 2 tasks?" in browser.text()
    browser.fill("reason", "by hand")
    browser.follow(browser.one("button:not([type]):not(.quiet):not(.danger)"))
    assert "Dig: 2 moved" in browser.text()
    assert pages.stats().counts["B"] == 1
    assert {row.reason for row in pages.history() if row.event == "dig"} == {"by hand"}


def test_a_visitor_logs_in_and_hostile_data_runs_nothing(browser, served):
    address = served(token={"ann": TOKEN})
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


def test_a_phone_folds_the_chart_and_the_buttons_until_they_are_asked_for(browser, served, pages):
    address, phone = served(), {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    for look, opened in ((phone, [False, False]), ({**phone, "width": 1280}, [True, True])):
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", look)
        browser.open(address + "/q/Task")
        pages.put({"name": "new"})
        browser.eventually(lambda: int(ready(browser)) == pages.count("R"))  # new numbers fold as the old ones
        assert browser.driver.execute_script("return all('.fold').map((each) => each.open)") == opened
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
