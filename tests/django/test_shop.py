"""The shop in examples/django_shop, started as a reader starts it, and used in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SERVERS
from tests.steps import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 120  # seconds: it is four processes that import Django


class Shop:
    """A shop that runs, and what it has printed."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.data = folder / "data"
        self.post = folder / "the post office is open"
        self.printed = folder / "printed"
        own = {"SHOP_DATA": str(self.data), "SHOP_POST": str(self.post), "PYTHONPATH": str(ROOT), "DATABASE_URL": url}
        environment = {name: value for name, value in (os.environ | own).items() if value is not None}
        command = [sys.executable, "manage.py", "shop", "--port", "0"]
        with self.printed.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT / "examples/django_shop", env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def said(self, pattern: str) -> list[str]:
        """What of the printed lines is in the brackets of a pattern."""
        return re.findall(pattern, self.printed.read_text(errors="replace"))

    def eventually_said(self, pattern: str, times: int = 1) -> str:
        def said() -> list[str]:
            assert self.process.poll() is None, self.printed.read_text()
            return self.said(pattern)[times - 1 :]

        return str(eventually(said, PATIENCE)[0])

    @property
    def address(self) -> str:
        return self.eventually_said(r"The shop is open: (\S+)")

    def worker(self, name: str, times: int = 1) -> int:
        """The number of the process that works on this; of the one that was started so often."""
        return int(self.eventually_said(rf"Worker for {name}: process (\d+)", times))

    def mails(self) -> list[str]:
        """The subjects of all mails."""
        texts = [file.read_text() for file in (self.data / "mails").glob("*")]
        return sorted(re.findall(r"^Subject: (.*)$", "\n".join(texts), re.MULTILINE))

    def close(self) -> None:
        """As by Ctrl-C."""
        self.post.touch()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.printed.read_text()

    def end(self) -> None:
        """Whatever happened, nothing is left of it."""
        self.process.kill()
        self.process.wait()
        for worker in self.said(r"Worker for \w+: process (\d+)"):
            with suppress(OSError):  # it has ended; another process may have its number by now
                if str(self.data).encode() in Path(f"/proc/{worker}/environ").read_bytes():
                    os.kill(int(worker), signal.SIGKILL)


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    shops: list[Shop] = []

    def opened(url: str | None = None) -> Shop:
        shops.append(Shop(tmp_path, url))
        return shops[-1]

    yield opened
    for shop in shops:
        shop.end()


class Customer:
    """Somebody in front of the shop's page."""

    def __init__(self, browser: Any, shop: Shop) -> None:
        self.browser = browser
        self.address = shop.address
        browser.open(self.address)

    def orders(self, **wanted: str) -> None:
        """Order something, of which the form has these fields."""
        for name, value in wanted.items():
            self.browser.fill(name, value)
        self.browser.follow(self.browser.one("form > button"))

    def sees(self, **orders: str) -> None:
        """Wait until the page shows the orders so: _1="mailed invoice"."""
        expected = {name.strip("_"): words.split() for name, words in orders.items()}
        self.browser.eventually(lambda: self._shown() == expected)

    def leaves(self) -> None:
        self.browser.open("about:blank")

    def _shown(self) -> dict[str, list[str]]:
        rows = self.browser.all("#orders li")
        marks = "arguments[0].querySelectorAll('.status, a')"
        words = f"return [...{marks}].map(mark => mark.textContent)"
        return {row.get_attribute("data-number"): self.browser.driver.execute_script(words, row) for row in rows}

    def counts(self) -> dict[str, int]:
        words = [re.findall(r"\d+|\D+", text) for text in self.browser.texts("#counts li")]
        return {status: int(n) for n, status in words}


def test_an_order_is_mailed_once_and_invoiced_though_its_worker_is_killed_in_the_middle_of_it(browser, open_shop):
    shop = open_shop()
    ada = Customer(browser, shop)
    ada.orders(pieces="3")
    ada.orders(name="Bob", email="bob@example.org")
    ada.sees(_1="packing invoice", _2="new invoice")  # the post office is closed: the mail of the first is under way

    os.kill(shop.worker("mails"), signal.SIGKILL)
    shop.worker("mails", times=2)
    shop.post.touch()
    ada.sees(_1="mailed invoice", _2="mailed invoice")
    assert shop.mails() == ["Your order 1", "Your order 2"]
    assert ada.counts() == {"new": 0, "packing": 0, "later": 0, "failed": 0, "mailed": 2}

    browser.follow(browser.one("#orders li:last-child a"))
    assert "Invoice 1" in browser.text()
    assert "103.50" in browser.text()

    browser.open(ada.address)
    ada.orders(name="Nobody", email="nobody@nowhere.example")
    ada.sees(_1="mailed invoice", _2="mailed invoice", _3="failed invoice")
    assert "no mailbox nobody@nowhere.example" in browser.text()

    browser.open(f"{ada.address}admin/shop/order/?xq_state=B")
    browser.fill("username", "admin")
    browser.fill("password", "admin")
    browser.follow(browser.one("[type=submit]"))
    browser.one("input.action-select").click()
    browser.one("select[name=action] option[value=dig]").click()
    browser.follow(browser.one("button[name=index]"))
    assert browser.texts("ul.messagelist li") == ["1 order was dug out."]

    browser.open(f"{ada.address}admin/xq_tasks/task/?q=invoice")
    assert browser.texts("th.field-task_path") == ["shop.work.invoice"] * 3
    assert browser.texts("td.field-xq_state") == ["SUCCESSFUL"] * 3
    browser.follow(browser.one("th.field-task_path a"))
    assert browser.one(".field-args .readonly").text == "3"
    assert browser.all("#content textarea, #content input:not([type=submit]):not([type=hidden])") == []

    browser.open(ada.address)
    ada.sees(_1="mailed invoice", _2="mailed invoice", _3="failed invoice")
    browser.one("#orders .cancel").click()
    ada.sees(_1="mailed invoice", _2="mailed invoice", _3="cancelled invoice")
    assert ada.counts() == {"new": 0, "packing": 0, "later": 0, "failed": 0, "mailed": 2}

    ada.leaves()
    shop.close()
    assert shop.said("The shop is (closed)") == ["closed"]


@pytest.mark.parametrize("django_db", SERVERS, indirect=True)
def test_the_shop_runs_on_the_database_that_it_is_told(browser, open_shop, django_db):
    shop = open_shop("{}://{USER}@{HOST}:{PORT}/{NAME}".format(django_db.kind, **django_db.settings))
    shop.post.touch()
    ada = Customer(browser, shop)
    ada.orders()
    ada.sees(_1="mailed invoice")
    ada.leaves()
    shop.close()
    assert not list(shop.data.glob("shop.sqlite3*"))
