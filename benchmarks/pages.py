"""The pages of the console on a long table: a section of make bench."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from html import unescape

import peewee as pw
from starlette.testclient import TestClient

import xq
from benchmarks.contestants import PAYLOAD
from benchmarks.databases import Home
from benchmarks.measure import percentile
from benchmarks.report import Effort, Section, Table, milli
from xq import serve

TURNED = 100  # pages
HEADERS = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
PARTS = ("ready", "done", "buried")  # of the rows: each third


class Pages:
    """A console on one queue of so many tasks, of which a third is ready, done and buried."""

    def __init__(self, home: Home, tasks: int) -> None:
        db = home.new("console").peewee()

        class Page(xq.Task):
            url = pw.TextField()

            class Meta:
                database = db

        self.model, self.third = Page, max(2, tasks // len(PARTS))
        self.queue = xq.upgrade(Page, features={"delayed": True, "buried": True, "keep": True, "history": True})
        db.create_tables([Page])
        self.queue.put_many([{"url": PAYLOAD}] * 3 * self.third)
        self.queue.ack_many(self.queue.take_many(self.third))
        for i in range(10):
            share = self.queue.take_many((self.third + i) // 10)
            self.queue.bury_many(share, error=f"TimeoutError: host {i} did not answer in {i}.5 s")
        here = ("127.0.0.1", 50_000)
        self.browser = TestClient(serve.app([Page]), base_url="http://localhost", client=here, headers=HEADERS)

    def get(self, path: str) -> str:
        answer = self.browser.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:200]}")
        return answer.text

    def turned(self, path: str) -> str:
        """Return the address of a page that is many pages behind a first one."""
        for _ in range(TURNED):
            link = re.search(r'rel="next" class="button" href="([^"]+)"', self.get(path))
            if link is None:
                break
            path = unescape(link[1])
        return path

    def dig_all(self) -> float:
        """Return the seconds in which an operation digs all buried tasks."""
        form = {"verb": "dig", "scope": "all", "filter": "state:B"}
        preview = self.browser.post("/q/Page/preview", data=form).text
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
        begun = time.perf_counter()
        answer = self.browser.post("/q/Page/act", data={**hidden, "reason": "a benchmark"}, follow_redirects=False)
        if answer.status_code != 303:
            raise RuntimeError(answer.text[:200])
        while self.queue.count("B"):
            time.sleep(0.01)
        return time.perf_counter() - begun


def pages(effort: Effort, home: Home) -> Table:
    console = Pages(home, max(effort.backlogs))
    key = console.queue.find("state:B", 1).tasks[0].get_id()
    asked: Mapping[str, str] = {
        "the overview": "/",
        "tasks, the first page": "/q/Page?n=50",
        f"tasks, {TURNED} pages on": console.turned("/q/Page?n=50"),
        "a filter with an index": "/q/Page?n=50&filter=state:B",
        "a filter without one, which finds nothing": "/q/Page?n=50&filter=url:nothing",
        "failures in groups": "/q/Page/failures",
        "one task": f"/q/Page/task?key={key}",
    }
    rows = []
    for name, path in asked.items():
        times = sorted(_seconds(lambda path=path: console.get(path)) for _ in range(effort.samples // 3 or 1))  # type: ignore[misc]
        rows.append([name, milli(percentile(times, 0.5)), milli(percentile(times, 0.9))])
    seconds = console.dig_all()
    rows.append([f"dig of {console.third:,} tasks by an operation", milli(seconds), ""])
    console.model._meta.database.close()
    return Table(["", "p50, ms", "p90, ms"], rows)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


SECTIONS = [
    Section(
        "pages",
        "Pages of the console",
        "A queue with a history, of which a third of the tasks is ready, done and buried (200,000 in all). The console "
        "answers by ASGI in the process that asks, without a network. A filter without an index stops after 10,000 "
        "rows. The operation moves chunks of 500 tasks, each with its progress in one transaction.",
        pages,
    ),
]
