"""The shop in examples/django_shop, started as a reader starts it, and used in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.steps import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 120  # seconds: it is four processes that import Django


class Shop:
    """A shop that runs, what it has printed, and a browser in front of its page."""

    def __init__(self, folder: Path, browser: Any) -> None:
        self.browser = browser
        self.data, self.post, self.printed = folder / "data", folder / "the post office is open", folder / "printed"
        own = {"SHOP_DATA": str(self.data), "SHOP_POST": str(self.post), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "manage.py", "shop", "--port", "0"]
        folder, environment = ROOT / "examples/django_shop", os.environ | own
        with self.printed.open("wb") as out:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)

    def said(self, pattern: str, times: int = 1) -> str:
        """Wait until it has printed this so often; what then is in the brackets of the pattern."""

        def said() -> list[str]:
            assert self.process.poll() is None, self.printed.read_text()
            return re.findall(pattern, self.printed.read_text(errors="replace"))[times - 1 :]

        return str(eventually(said, PATIENCE)[0])

    def order(self, **wanted: str) -> None:
        """Order something, of which the form has these fields."""
        self.browser.open(self.said(r"The shop is open: (\S+)"))
        for name, value in wanted.items():
            self.browser.fill(name, value)
        self.browser.follow(self.browser.one("form > button"))

    def shows(self, *orders: str) -> None:
        """Wait until the page shows the orders in these states, from the first one on."""
        states = "return [...document.querySelectorAll('#orders li .status')].map(mark => mark.textContent)"
        self.browser.eventually(lambda: sorted(self.browser.driver.execute_script(states)) == sorted(orders))

    def end(self) -> None:
        """Whatever happened, nothing is left of it."""
        self.process.kill()
        self.process.wait()
        for worker in re.findall(r"Worker for \w+: process (\d+)", self.printed.read_text()):
            with suppress(OSError):  # it has ended; another process may have its number by now
                if str(self.data).encode() in Path(f"/proc/{worker}/environ").read_bytes():
                    os.kill(int(worker), signal.SIGKILL)


@pytest.fixture
def shop(browser: Any, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path, browser)
    yield opened
    opened.end()


def test_an_order_is_mailed_once_and_invoiced_though_its_worker_is_killed_in_the_middle_of_it(browser, shop):
    shop.order(pieces="3")
    shop.order(name="Bob", email="bob@example.org")
    shop.shows("packing", "new")  # the post office is closed: the mail of the first is under way
    os.kill(int(shop.said(r"Worker for mails: process (\d+)")), signal.SIGKILL)
    shop.said(r"Worker for mails: process (\d+)", times=2)
    shop.post.touch()
    shop.shows("mailed", "mailed")
    mails = "\n".join(file.read_text() for file in (shop.data / "mails").glob("*"))
    assert sorted(re.findall(r"^Subject: (.*)$", mails, re.MULTILINE)) == ["Your order 1", "Your order 2"]
    browser.follow(browser.eventually(lambda: browser.all("#orders li:last-child a"))[0])
    assert "103.50" in browser.text()  # the invoice

    shop.order(name="Nobody", email="nobody@nowhere.example")
    shop.shows("mailed", "mailed", "failed")
    assert "no mailbox nobody@nowhere.example" in browser.text()
    browser.one("#orders .cancel").click()
    shop.shows("mailed", "mailed", "cancelled")

    browser.open("about:blank")
    shop.process.send_signal(signal.SIGINT)
    assert shop.process.wait(PATIENCE) == 0, shop.printed.read_text()
