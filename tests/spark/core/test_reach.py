"""Workers on other machines: a file of SQLite is refused, and xq reaches them as a zip file."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from contextlib import closing

import peewee as pw
import pytest
from pyspark.errors import PySparkException

import xq
from tests.conftest import live
from xq.adapters.spark.session import _zipped

MASTER = "spark://head:7077"
WHY = f"in a file of SQLite, which the workers of {MASTER} do not see on other machines: use a session on this machine"
FEATURES = {"keep": True, "buried": True, "history": True}


@pytest.fixture
def elsewhere(spark):
    """A session that says of its workers that they are elsewhere."""
    session = spark.newSession()
    session.conf.set("spark.master", MASTER)
    return xq.spark.register(session)


@pytest.fixture
def page(tmp_path):
    """A queue in a file of SQLite."""
    with closing(pw.SqliteDatabase(tmp_path / "app.db")) as db:
        yield live(db)(FEATURES)


@pytest.mark.parametrize(
    "call",
    [
        lambda spark, page, out: xq.spark.consume(spark, page, lambda frame: frame),
        lambda spark, page, out: xq.spark.report(spark, page, out=out),
        lambda spark, page, out: xq.spark.archive(spark, page, out),
        lambda spark, page, out: xq.spark.restore(spark, page, out),
        lambda spark, page, out: xq.spark.tasks(spark, page, out),
        lambda spark, page, out: xq.spark.history(spark, page, out),
        lambda spark, page, out: xq.spark.stream(spark, page, "activity", f"{out}/checkpoint"),
        lambda spark, page, out: xq.spark.jdbc(spark, page),
    ],
    ids=["consume", "report", "archive", "restore", "tasks", "history", "stream", "jdbc"],
)
def test_a_file_of_sqlite_is_refused_where_workers_are_elsewhere(elsewhere, page, tmp_path, call):
    with pytest.raises(xq.ConfigurationError, match=WHY):
        call(elsewhere, page, str(tmp_path))


def test_a_file_of_sqlite_is_neither_read_nor_written_where_workers_are_elsewhere(elsewhere, page):
    tasks, history = xq.spark.options(page), xq.spark.options(page, "history")
    frame = elsewhere.range(1).selectExpr("'a' AS name")
    with pytest.raises(PySparkException, match=WHY):
        elsewhere.read.format("xq").options(**tasks).load()
    with pytest.raises(PySparkException, match=WHY):
        elsewhere.readStream.format("xq").options(**history).load()
    with pytest.raises(PySparkException, match=WHY):
        frame.write.format("xq").options(**tasks).mode("append").save()
    assert page.select().count() == 0


QUEUE = """
import peewee as pw, xq
class Page(pw.Model):
    status = pw.TextField()
    class Meta:
        database = pw.SqliteDatabase("app.db")
pages = xq.upgrade(Page, {"status": "status"}, {"history": True})
Page._meta.database.create_tables([Page])
pages.put()
print(xq.__file__, pages.take().ack())
"""


def test_xq_runs_from_the_zip_file_that_workers_get(tmp_path):
    with zipfile.ZipFile(_zipped()) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"xq"}
        assert not [name for name in archive.namelist() if "__pycache__" in name]
    environment = os.environ | {"PYTHONPATH": str(_zipped())}
    command = [sys.executable, "-c", QUEUE]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split()[0] == str(_zipped() / "xq" / "__init__.py")
