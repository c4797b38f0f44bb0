"""What needs no job of Spark: the settings of sessions, options that are read, where databases and workers are."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import traceback
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pyspark.errors import PySparkException

import xq
from tests.conftest import live
from tests.factories import task
from tests.steps import eventually, row
from xq.adapters.spark.jdbc import reached
from xq.adapters.spark.leases import leases_of
from xq.adapters.spark.source import Xq
from xq.adapters.spark.spark_session import _zipped


def test_a_session_has_the_settings_that_it_was_asked_for_and_is_otherwise_in_utc(spark):
    names = ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
    assert [spark.conf.get(name) for name in names] == ["local[2]", "2", "UTC"], "as the fixture asked"


def test_a_setting_that_spark_does_not_define_is_named_at_warning_unless_it_is_written_with_dots(spark, caplog):
    given = {"sql_shuffle_partitions": 2, "driver_memroy": "1g", "spark.of.mine": 1}
    assert xq.spark.session(**given) is spark
    assert [words for words in caplog.messages if "define" in words] == [
        "Spark does not define spark.driver.memroy: is driver_memroy= mistyped? If not, name it with dots"
    ]


def test_only_what_ttr_times_is_touched(make_live, monkeypatch):
    monkeypatch.setattr("xq.runtime.lease.HEARTBEATS", 600)
    Task = make_live({"ttr": True}, roles=("runat", "ttr"))
    Task.xq.put(task())  # no default: this one may take for ever
    Task.xq.put(task(), ttr=60)
    with leases_of(Task.xq) as leases:
        first = leases.take(2, 0)[2]["runat"]
        eventually(lambda: row(Task, 2).runat > first)
        assert row(Task, 1).runat is None


# options


class Trap:
    """What runs code as it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_an_option_that_another_has_written_or_that_was_signed_as_another_is_not_unpickled(spark, make_live, tmp_path):
    options, file = xq.spark.options(make_live()), tmp_path / "made"
    trap = base64.b64encode(pickle.dumps(Trap(file))).decode()
    signature = options["extract"].partition(":")[0]
    assert Xq.signed("local[*]")(options).sent("extract").what == "tasks"
    for name, other in (("extract", "bulk"), ("bulk", "extract")):
        for text in (trap, f":{trap}", f"{signature}:{trap}", f"ü:{trap}", options[other]):
            with pytest.raises(xq.ConfigurationError, match=f"the option '{name}' was not made by the process"):
                Xq.signed("local[*]")({**options, name: text}).sent(name)
    with pytest.raises(PySparkException, match=r"'extract' was not made by the process that registered"):
        spark.read.format("xq").options(**{**options, "extract": f"{signature}:{trap}"}).load()
    with pytest.raises(PySparkException):  # it is JSON
        spark.read.format("xq").options(**options, secrets=trap).load().collect()
    with pytest.raises(xq.ConfigurationError, match="was not made by the process"):
        Xq(options).sent("extract")  # of a class that has no key, as anybody may register it
    assert not file.exists()


def test_processes_with_one_key_read_what_the_others_have_made(spark, make_live, monkeypatch):
    options = xq.spark.options(make_live({"history": True}), "history")
    monkeypatch.setenv("XQ_SPARK_KEY", "of both")
    theirs = xq.spark.register(spark.newSession())
    with pytest.raises(PySparkException, match="XQ_SPARK_KEY"):
        theirs.read.format("xq").options(**options).load()
    theirs.read.format("xq").options(**xq.spark.options(make_live())).load().collect()


def test_the_error_of_xq_is_found_in_the_text_of_another():
    full = xq.Full("Page", 3)
    try:
        try:
            raise xq.BadValue("first")
        except xq.Error as first:
            raise xq.UnknownTube("two\nlines", ["a"]) from first
    except xq.Error:
        java = f"[PYTHON] failed:\n{traceback.format_exc()} SQLSTATE: 38000\n\tat org.apache.Java\n"
    found = xq.spark.error(RuntimeError(java))
    assert (type(found), str(found)) == (xq.UnknownTube, r"there is no tube 'two\nlines': there are 'a'")
    of_lines = "xq.core.errors.Error: one\ntwo\nRead docs/errors.md#error in the documentation of xq.\n"
    assert str(xq.spark.error(RuntimeError(of_lines))) == "one\ntwo"
    assert xq.spark.error(full) is full
    assert xq.spark.error(RuntimeError("xq.core.errors.Full")) is None


# where a database is


def place(database: pw.Database) -> dict[str, str]:
    return reached(xq.upgrade(live(database).model(), fields={"status": "status"}).parts.store.address())


@pytest.mark.parametrize(
    ("database", "url"),
    [
        (pw.SqliteDatabase("/srv/my app?.db"), "jdbc:sqlite:file:/srv/my%20app%3F.db?mode=rw"),
        (
            pw.PostgresqlDatabase("a/b", host="::1", port=6000, sslmode="require", prefer_psycopg3=True),
            "jdbc:postgresql://[::1]:6000/a%2Fb?sslmode=require",
        ),
        (
            pw.PostgresqlDatabase("postgresql://me@one,two/app?options=-csearch_path%3Dx", prefer_psycopg3=True),
            "jdbc:postgresql://one:5432,two:5432/app?options=-csearch_path%3Dx",
        ),
        (pw.MySQLDatabase("app", host="db", port=3307), "jdbc:mariadb://db:3307/app"),
    ],
)
def test_a_database_has_an_address_for_java(database, url):
    assert place(database)["url"] == url


# workers on other machines


MASTER = "spark://head:7077"
WHY = f"in a file of SQLite, which the workers of {MASTER} do not see on other machines: use a session on this machine"


def write(spark: Any, page: Any, out: str) -> None:
    frame = spark.range(1).selectExpr("'a' AS name")
    frame.write.format("xq").options(**xq.spark.options(page)).mode("append").save()


CALLS: dict[str, Any] = {
    "consume": lambda spark, page, out: xq.spark.consume(spark, page, lambda frame: frame),
    "report": lambda spark, page, out: xq.spark.report(spark, page, out=out),
    "archive": lambda spark, page, out: xq.spark.archive(spark, page, out),
    "restore": lambda spark, page, out: xq.spark.restore(spark, page, out),
    "tasks": lambda spark, page, out: xq.spark.tasks(spark, page, out),
    "history": lambda spark, page, out: xq.spark.history(spark, page, out),
    "stream": lambda spark, page, out: xq.spark.stream(spark, page, "activity", f"{out}/checkpoint"),
    "jdbc": lambda spark, page, out: xq.spark.jdbc(spark, page),
    "read": lambda spark, page, out: spark.read.format("xq").options(**xq.spark.options(page)).load(),
    "write": write,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_file_of_sqlite_is_refused_where_workers_are_elsewhere(spark, tmp_path, call):
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.master", MASTER)
    with closing(pw.SqliteDatabase(tmp_path / "app.db")) as db:
        page = live(db)({"keep": True, "buried": True, "history": True})
        with pytest.raises((xq.ConfigurationError, PySparkException), match=WHY):
            call(xq.spark.register(elsewhere), page, str(tmp_path))
        assert page.select().count() == 0


def test_xq_runs_from_the_zip_file_that_workers_get(tmp_path):
    with zipfile.ZipFile(_zipped()) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"xq"}
        assert not [name for name in archive.namelist() if "__pycache__" in name]
    environment = os.environ | {"PYTHONPATH": str(_zipped())}
    command = [sys.executable, "-c", "import xq; print(xq.__file__)"]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(_zipped() / "xq" / "__init__.py")
