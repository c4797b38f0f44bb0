"""The smallest queue: a table of an application, and the five lines that make it a queue and use it."""

import peewee as pw

import xq

db = pw.SqliteDatabase(":memory:")


class Page(pw.Model):
    url = pw.TextField()
    status = pw.CharField(max_length=1, default="R")

    class Meta:
        database = db


pages = xq.upgrade(Page, fields={"status": "status"})
db.create_tables([Page])
pages.put({"url": "https://example.org"})
while page := pages.take():
    print(f"Taken: {page.url}. Acked, and so deleted: {pages.ack(page).url}.")

print(f"{Page.select().count()} pages are left. Transitions: {pages.stats(pretty=True).transition}")
db.close()
