"""A smoke test of an installed wheel, away from the checkout: `python tests/wheel.py` with its environment's Python."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import peewee as pw

import xq
from xq.tubes import Tubes

APP = """
import peewee as pw
import xq

class Page(xq.Task):
    class Meta:
        database = pw.SqliteDatabase("app.db")

xq.upgrade(Page)

@Page.xq.worker
def work(page):
    print("done", page.id)
"""


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
    use_the_command_line()
    print(f"xq {xq.__version__} of {Path(xq.__file__).parent} works on Python {sys.version.split()[0]}")


def use_the_command_line() -> None:
    """Run what `pip install '.[cli]'` promises, with no package of another extra."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(APP)
        code = "import app, importlib.util as has; assert not has.find_spec('django'); app.Page.create_table()"
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)

        def run(*arguments: str) -> str:
            program = Path(sys.executable).with_name("xq")
            return subprocess.check_output([program, *arguments], cwd=folder, text=True)

        assert run("put", "app:Page", "{}") == "1\n"
        assert run("worker", "app:work", "--until-empty") == "done 1\n"
        assert '"X-R": 1' in run("stats", "app:Page", "--json")


if __name__ == "__main__":
    main()
