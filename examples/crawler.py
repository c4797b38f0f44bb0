"""A crawler of four web sites, with eight workers, that asks no host twice at a time.

The sites run on this machine, each on a port of its own, and count how many requests they answer at once. A page is a
task in a tube of the type utubettl, its host the utube. A site that is busy is asked again a little later; a link that
leads nowhere is buried.
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
LATER = 0.05  # seconds until a page is tried again, where its host does not say

web = build_opener(ProxyHandler({}))  # the sites are on this machine
db = pw.SqliteDatabase(None, timeout=30)


class Page(pw.Model):
    url = pw.TextField(primary_key=True)
    title = pw.TextField(null=True)

    class Meta:
        database = db


# the crawler


def crawl(path: str) -> None:
    """What a worker does, in a process of its own, until there is nothing left to crawl."""
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
            with db.atomic():  # what was found, and that the page is done: both or neither
                title = re.findall("<title>(.*?)</title>", html)[0]
                Page.update(title=title).where(Page.url == task.data).execute()
                found(pages, [urljoin(task.data, link) for link in re.findall('href="(.*?)"', html)])
                pages.ack(task)


def next_of(pages: Tube) -> Task | None:
    """Take a page. As long as others have some in hand, or there are some to be tried again, there may be more."""
    while (task := pages.take(0.1)) is None:
        tasks = pages.statistics()["tasks"]
        if not tasks["ready"] + tasks["taken"] + tasks["delayed"]:
            break
    return task


def found(pages: Tube, urls: list[str]) -> None:
    """Put those pages that nobody has seen so far."""
    for url in dict.fromkeys(urls):
        if Page.insert(url=url).on_conflict_ignore().as_rowcount().execute():
            pages.put(url, utube=urlsplit(url).netloc, ttl=3600)


# the sites


class Site(ThreadingHTTPServer):
    """Pages that link to each other and to the other sites; `most` requests were answered at once."""

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
        """To the next two pages, and to the same page of the other sites; one leads nowhere."""
        here = [f"/{n}" for n in (page + 1, page + 2) if n < PAGES]
        return [*here, *(f"{site.url}{page}" for site in self.sites), *(["/gone"] if page == 3 else [])]


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        name = self.path.strip("/")
        with self.server.answering():
            time.sleep(0.005)  # it has to think
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
        """Nothing is logged."""


@contextmanager
def online() -> Iterator[list[Site]]:
    """The sites, which end with the block."""
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
        print(f"{WORKERS} workers read {read} pages of {HOSTS} hosts; {calls['release']} times a host was busy.")
        print(f"Buried: {', '.join(sorted(urlsplit(task.data).path for task in pages.tasks_by_state('!')))}")
        for site in sites:
            print(f"{urlsplit(site.url).netloc} was asked {site.asked} times, at most {site.most} at a time")


if __name__ == "__main__":
    main()
