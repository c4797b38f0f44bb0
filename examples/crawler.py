"""Crawl four web sites with eight workers, one request at a time to each host.

The sites run on this machine, each on its own port, and count their simultaneous requests. A page is a task in a tube
of the type utubettl, and its host is the utube. If a site is busy, the worker releases the page with a delay. If a link
is broken, it buries the page.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import ProxyHandler, build_opener

import peewee as pw

import xq
from xq.tubes import Task, Tube

HOSTS, PAGES, WORKERS = 4, 12, 8
LATER = 0.05  # seconds until the next try of a page, if its host names no time

web = build_opener(ProxyHandler({}))  # the sites are on this machine
db = pw.SqliteDatabase(None, timeout=30)


class Page(pw.Model):
    url = pw.TextField(primary_key=True)
    title = pw.TextField(null=True)

    class Meta:
        database = db


# the crawler


def crawl(path: str) -> None:
    """Crawl until no page is left. Each worker process runs this."""
    db.init(path)
    with closing(db):
        pages = xq.Tubes(db).tube["pages"]
        while task := next_of(pages):
            try:
                with web.open(task.data) as answer:
                    html = answer.read().decode()
            except HTTPError as error:
                with error:
                    if error.code == 503:
                        pages.release(task, delay=float(error.headers.get("Retry-After", LATER)))
                    else:
                        pages.bury(task)
                continue
            with db.atomic():  # one transaction: the page's title, its links and its ack
                title = re.findall("<title>(.*?)</title>", html)[0]
                Page.update(title=title).where(Page.url == task.data).execute()
                found(pages, [urljoin(task.data, link) for link in re.findall('href="(.*?)"', html)])
                pages.ack(task)


def next_of(pages: Tube) -> Task | None:
    """Take a page; None if no page is left. Taken and delayed pages may still come back or have new links."""
    while (task := pages.take(0.1)) is None:
        tasks = pages.statistics()["tasks"]
        if not tasks["ready"] + tasks["taken"] + tasks["delayed"]:
            break
    return task


def found(pages: Tube, urls: list[str]) -> None:
    """Put the pages that are not in the table yet."""
    for url in dict.fromkeys(urls):
        if Page.insert(url=url).on_conflict_ignore().as_rowcount().execute():
            pages.put(url, utube=urlsplit(url).netloc, ttl=3600)


# the sites


class Site(ThreadingHTTPServer):
    """A site whose pages link to each other and to the other sites. `most` is its maximum of simultaneous requests."""

    daemon_threads = True

    def __init__(self, sites: list[Site]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sites, self.lock, self.now, self.most, self.asked = sites, threading.Lock(), 0, 0, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @contextmanager
    def answering(self) -> Iterator[None]:
        with self.lock:
            self.now, self.asked = self.now + 1, self.asked + 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self.lock:
                self.now -= 1

    def links(self, page: int) -> list[str]:
        """Return the links to the next two pages and to the same page of the other sites. Page 3 has a broken link."""
        here = [f"/{n}" for n in (page + 1, page + 2) if n < PAGES]
        return [*here, *(f"{site.url}{page}" for site in self.sites), *(["/gone"] if page == 3 else [])]


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        name = self.path.strip("/")
        with self.server.answering():
            time.sleep(0.005)  # the time of an answer
            busy = self.server.asked % 10 == 0
        if busy:
            self.answer(503, "busy", {"Retry-After": "0.02"})
        elif name.isdigit():
            links = "".join(f'<a href="{link}">{link}</a>' for link in self.server.links(int(name)))
            self.answer(200, f"<title>Page {name} of {self.server.url}</title>{links}")
        else:
            self.answer(404, "there is no such page")

    def answer(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for header, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def online() -> Iterator[list[Site]]:
    """Run the sites in this block."""
    with ExitStack() as stack:
        sites: list[Site] = []
        for _ in range(HOSTS):
            site = stack.enter_context(Site(sites))
            stack.callback(site.shutdown)
            sites.append(site)
            threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
        yield sites


def main() -> None:
    path = str(Path(tempfile.mkdtemp(prefix="xq-crawler-")) / "crawl.db")
    db.init(path)
    with online() as sites, closing(db):
        db.create_tables([Page])
        pages = xq.Tubes(db).create_tube("pages", "utubettl", ttr=60)
        found(pages, [f"{sites[0].url}0"])
        spawn = multiprocessing.get_context("spawn")
        workers = [spawn.Process(target=crawl, args=(path,)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        read = Page.select().where(Page.title.is_null(False)).count()
        calls = pages.statistics()["calls"]
        print(f"{WORKERS} workers read {read} pages of {HOSTS} hosts; the hosts were busy {calls['release']} times.")
        print(f"Buried: {', '.join(sorted(urlsplit(task.data).path for task in pages.tasks_by_state('!')))}")
        for site in sites:
            print(f"{urlsplit(site.url).netloc} had {site.asked} requests, at most {site.most} at a time")


if __name__ == "__main__":
    main()
