"""Fetch pages with four threads. A page that fails is tried again, then buried, and dug when the mistake is mended."""

import logging
import sys
import tempfile

import peewee as pw

import xq

db = pw.SqliteDatabase(tempfile.mkdtemp(prefix="xq-pages-") + "/app.db")
SITE = {"https://example.org/": "Welcome", "https://example.org/news": "News"}  # stands for the web


class Page(xq.Task):
    url = pw.TextField()
    title = pw.TextField(null=True)

    class Meta:
        database = db


xq.upgrade(Page, features={"delayed": True, "buried": True, "keep": True, "ttr": 60})


@Page.xq.worker(workers=4, max_attempts=2, backoff=[0.1])  # without backoff: 1, 2, 4, 8 seconds and so on
def fetch(page: Page) -> None:
    page.ack(update={"title": SITE[page.url]})


def main() -> None:
    db.create_tables([Page])
    Page.xq.put_many([{"url": url} for url in (*SITE, "https://example.org/nwes")])
    Page.xq.run(max_tasks=4)  # two pages, and two attempts of the third; without it, until SIGTERM
    print(Page.stats(pretty=True).counts)

    for page in Page.xq.by_state("buried"):
        print(f"Buried after {page.attempts} attempts: {page.url}, {(page.error or '').splitlines()[0]}")
        Page.update(url=page.url.replace("nwes", "news")).where(Page.id == page.id).execute()
        page.dig()
    Page.xq.run(until_empty=True)
    print(Page.stats(pretty=True).counts)
    print([page.title for page in Page.select().order_by(Page.id)])
    db.close()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")  # failures; level="INFO" has each task
    main()
