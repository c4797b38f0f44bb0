"""Crawl four sites with eight threads, one request at a time to each host.

A page is a task, and its host is its utube. A busy host names the seconds until the next try: the page is delayed. A
broken link is buried. A page that is read stays, so no page is put twice. The sites run on this machine.
"""

import random
import re
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import ProxyHandler, build_opener

import peewee as pw

import xq

web = build_opener(ProxyHandler({}))  # the sites are on this machine
db = pw.SqliteDatabase(tempfile.mkdtemp(prefix="xq-crawler-") + "/app.db")


class Page(xq.Task):
    url = pw.TextField()
    host = pw.CharField()
    title = pw.TextField(null=True)

    class Meta:
        database = db


xq.upgrade(
    Page,
    fields={"utube": "host", "unique": "url"},
    features={"delayed": True, "buried": True, "keep": True, "ttr": 60, "utube": True, "unique": "RWTBD"},
)


def found(url: str) -> None:
    Page.put({"url": url, "host": urlsplit(url).netloc}, on_conflict="skip")


@Page.xq.worker(workers=8, max_attempts=5)
def crawl(page: Page) -> None:
    try:
        html = web.open(page.url).read().decode()
    except HTTPError as error:
        if error.code == 503:
            raise xq.Retry(delay=float(error.headers["Retry-After"])) from None
        raise xq.Bury(f"HTTP {error.code}") from None
    with db.atomic():  # the links, the title and the ack: all or none
        for link in re.findall('href="(.*?)"', html):
            found(urljoin(page.url, link))
        page.ack(update={"title": re.findall("<title>(.*?)</title>", html)[0]})


class Site(BaseHTTPRequestHandler):
    """A site of twelve pages. Page 3 has a broken link. One answer of ten is 503."""

    sites: list[str] = []
    lock = threading.Lock()
    now, most = Counter[str](), Counter[str]()  # simultaneous requests by host

    def do_GET(self) -> None:
        host, number = self.headers["Host"], int(self.path[1:])
        with self.lock:
            self.now[host] += 1
            self.most[host] = max(self.most[host], self.now[host])
        time.sleep(0.005)
        with self.lock:
            self.now[host] -= 1
        code = 404 if number == 404 else 503 if random.random() < 0.1 else 200
        self.send_response(code)
        self.send_header("Retry-After", "0.02")
        self.end_headers()
        links = [f"/{number + 1}"] * (number < 11) + ["/404"] * (number == 3)
        if code == 200:
            text = "".join(f'<a href="{link}">' for link in [*links, *(f"{site}/{number}" for site in self.sites)])
            self.wfile.write(f"<title>Page {number}</title>{text}".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Site) for _ in range(4)]
    Site.sites = [f"http://127.0.0.1:{server.server_port}" for server in servers]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    db.create_tables([Page])
    found(f"{Site.sites[0]}/0")
    workers = Page.xq.start()
    while (counts := Page.stats().counts)["R"] + counts["W"] + counts["T"]:
        time.sleep(0.05)
    workers.stop()
    workers.join()
    print("Buried:", ", ".join(sorted(urlsplit(page.url).path for page in Page.xq.by_state("buried"))))
    print(f"Read {counts['D']} pages; requests at a time to each host: {sorted(Site.most.values())}")
