"""Queues in Django's admin, as somebody sees them who looks after the queues of a site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.django.sites import EVERYTHING, one_of_each

on_one_database = pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # what the page decides


class Pages:
    """The admin of one queue, in a browser."""

    def __init__(self, browser: Any, address: str, site: Any) -> None:
        self.browser = browser
        self.address = address + site.list

    def log_in(self, name: str) -> None:
        self.browser.open(self.address)
        self.browser.fill("username", name)
        self.browser.fill("password", "secret")
        self.browser.follow(self.browser.one("[type=submit]"))

    def states(self) -> dict[str, str]:
        """What the list says of each task, by name."""
        return dict(zip(self.browser.texts("th.field-name"), self.browser.texts("td.field-xq_state")))

    def counts(self) -> dict[str, int]:
        links = self.browser.texts("#changelist-filter li a")
        return {name: int(n) for name, n in (link.rsplit(maxsplit=1) for link in links)}

    def filter(self, state: str) -> None:
        links = self.browser.all("#changelist-filter li a")
        self.browser.follow(next(link for link in links if link.text.startswith(state)))

    def act(self, action: str, *names: str) -> str:
        """Run an action on tasks of these names, or on all of the page, and return what the page says then."""
        rows = self.browser.all("#result_list tbody tr")
        for row in rows:
            if not names or any(name in row.text for name in names):
                row.find_element("css selector", "input.action-select").click()
        self.choose(action)
        return self.told()

    def choose(self, action: str) -> None:
        self.browser.one(f"select[name=action] option[value={action}]").click()
        self.browser.follow(self.browser.one("button[name=index]"))

    def told(self) -> str:
        return "\n".join(self.browser.texts("ul.messagelist li"))


@pytest.fixture
def pages(browser, served, manage):
    """The pages of a queue with a task in each state, for somebody who may do everything."""

    def made(may: tuple[str, ...] = ()) -> tuple[Any, Pages]:
        Task, site = manage()
        site.user(*may)
        shown = Pages(browser, served, site)
        return Task, shown

    return made


def test_an_operator_sees_the_states_filters_by_them_and_moves_tasks(pages):
    Task, admin = pages()
    one_of_each(Task)
    admin.log_in("root")
    names = {"R": "ready", "T": "taken", "W": "waiting", "B": "buried", "D": "done"}
    assert admin.states() == {f"a task in {letter}": word for letter, word in names.items()}
    assert admin.counts() == {"All": 5} | dict.fromkeys(names.values(), 1)

    told = admin.act("dig")
    assert told.splitlines()[0] == "1 task was dug out."
    assert told.splitlines()[1].startswith("4 tasks were not dug out: a task in D (it is done), ")
    assert admin.states()["a task in B"] == "ready"
    assert admin.counts() == {"All": 5, "ready": 2, "taken": 1, "waiting": 1, "buried": 0, "done": 1}

    admin.filter("done")
    assert admin.states() == {"a task in D": "done"}
    assert admin.act("restart") == "1 task was restarted."
    assert admin.states() == {}
    assert admin.counts()["done"] == 0
    assert Task.xq.stats().transition["D-R"] == 1


@on_one_database
def test_the_words_of_the_states_can_be_read_in_a_light_page_and_a_dark_one(pages, browser):
    Task, admin = pages(may=("view",))
    one_of_each(Task)
    admin.log_in("view")
    for theme in ("light", "dark"):
        browser.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        looks = [
            [word.value_of_css_property(name) for name in ("color", "background-color")] for word in words(browser)
        ]
        assert len(set(map(tuple, looks))) == 5  # each state has its own
        assert all(contrast(*look) >= 4.5 for look in looks)  # what WCAG 2 asks for text
    assert browser.all("select[name=action]") == []


def words(browser: Any) -> Any:
    return browser.all("#result_list .xq-state")


def contrast(one: str, other: str) -> float:
    """How different two colours are, as WCAG 2 counts it: from 1 to 21."""

    def brightness(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted([brightness(one), brightness(other)])
    return (lighter + 0.05) / (darker + 0.05)


@on_one_database
def test_an_operator_reads_why_a_task_failed_and_digs_it_from_its_page(browser, served, manage, tmp_path):
    features = EVERYTHING | {"history": True}
    Task, site = manage(features, roles=("runat", "owner", "attempts", "error"), admin={"fields": ["name", "size"]})
    site.user()
    Task.put({"name": "a lamp"})
    for error in ("ConnectionError: refused", "TimeoutError: smtp.example.org\nTraceback"):
        Task.xq.clock.tick(90)
        taken = Task.take()
        Task.xq.clock.tick(21)
        buried = Task.xq.bury_many([taken], error=[error])[0]
        if "refused" in error:
            buried.dig()
    Task.put({"name": "a chair"})
    Task.xq.clock.tick(7265)
    admin = Pages(browser, served, site)
    admin.log_in("root")
    assert browser.texts("td.field-xq_error") == ["-", "TimeoutError: smtp.example.org"]
    browser.open(f"{admin.address}{buried.pk}/change/")
    for theme in ("light", "dark"):
        browser.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        shot(browser, tmp_path, f"task-{theme}")
    assert browser.texts(".xq-now") == ["buried"]
    assert browser.texts(".xq-history tbody .xq-state") == [*["ready", "taken", "buried"] * 2]
    browser.follow(browser.one(".xq-buttons .xq-dig"))
    assert admin.told() == "The task “a lamp” was dug out."
    assert browser.texts(".xq-now") == ["ready"]

    browser.follow(browser.one(".xq-buttons .xq-kill"))
    assert "Kill a lamp?" in browser.text()
    browser.follow(browser.one("input[type=submit]"))
    assert admin.told() == "The task “a lamp” was killed."
    assert list(admin.states()) == ["a chair"]

    browser.open(f"{served}/admin/")
    browser.follow(next(link for link in browser.all("a") if link.text == "Overview of all queues"))
    shot(browser, tmp_path, "overview")
    assert browser.texts(".xq-queues td.xq-number")[:5] == ["1", "0", "0", "0", "0"]


def shot(browser: Any, folder: Path, name: str) -> None:
    """Take a picture of the page, for whoever looks after a failed test."""
    assert browser.driver.save_screenshot(str(folder / f"{name}.png"))
