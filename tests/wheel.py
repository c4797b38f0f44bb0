"""A smoke test of an installed wheel, away from the checkout: `python tests/wheel.py` with its environment's Python."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

import peewee as pw

import xq
from xq.tubes import Tubes


def main() -> None:
    assert "site-packages" in str(xq.__file__), f"{xq.__file__} is not the wheel's"
    with tempfile.TemporaryDirectory() as folder, closing(pw.SqliteDatabase(f"{folder}/app.db")) as db:

        class Page(pw.Model):
            url = pw.TextField()
            status = pw.CharField(max_length=1, default="R")
            runat = pw.DoubleField(null=True)

            class Meta:
                database = db

        pages = xq.upgrade(
            Page, {"status": "status", "runat": "runat"}, {"delayed": True, "buried": True, "keep": True}
        )
        db.create_tables([Page])
        pages.put({"url": "https://example.org"})
        page = pages.take()
        assert page is not None
        assert pages.ack(page).status == "D"
        assert pages.stats().transition == {"X-R": 1, "R-T": 1, "T-D": 1}
        tube = Tubes(db).create_tube("mail", "fifottl")
        tube.put({"to": "a"})
        assert tube.take(0) == (1, "t", {"to": "a"})
        print(f"xq {xq.__version__} of {Path(xq.__file__).parent} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
