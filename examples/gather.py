"""Work off a hundred tasks in one event loop, fifty at a time. Then put a request, and wait for its reply."""

import asyncio
import tempfile
import time

import peewee as pw

import xq

db = pw.SqliteDatabase(tempfile.mkdtemp(prefix="xq-gather-") + "/app.db")


class Page(xq.Task):
    url = pw.TextField()
    title = pw.TextField(null=True)

    class Meta:
        database = db


xq.upgrade(Page, features={"delayed": True, "buried": True, "keep": True, "ttr": 60})


@Page.xq.worker(workers=50, max_attempts=5)  # coroutines
async def fetch(page: Page) -> None:
    await asyncio.sleep(0.2)  # stands for a request
    await Page.xq.aio.ack(page, update={"title": page.url.upper()})


async def produce() -> None:
    await asyncio.gather(*(Page.xq.aio.put({"url": f"https://example.org/{n}"}) for n in range(100)))


async def main() -> None:
    begun = time.monotonic()
    await produce()
    await Page.xq.aio.run(until_empty=True)
    print(f"{await Page.xq.aio.count('done')} pages of 0.2 seconds each")
    print(f"took {time.monotonic() - begun:.1f} seconds")

    running = asyncio.create_task(Page.xq.aio.run())  # beside the rest of the program
    page, done = await Page.xq.aio.put({"url": "https://example.org/reply"}, wait=10)
    print("The reply:", page.title if done else page.error)
    running.cancel()  # its functions finish
    await asyncio.wait([running])


if __name__ == "__main__":
    db.create_tables([Page])
    asyncio.run(main())
    db.close()
