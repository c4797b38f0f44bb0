"""What PySpark's exceptions say: xq's error in them, their own words, and whose fault they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkAttributeError, PySparkPicklingError, PySparkTypeError
from pyspark.sql import SparkSession

import xq
from xq.core import errors

LOST_EXECUTOR = "ExecutorLostFailure"
LONGEST = 1_000  # characters of an exception's words
OF_PROGRAMS = (
    *(xq.Error, ImportError, Py4JNetworkError),
    *(AnalysisException, PySparkAttributeError, PySparkPicklingError, PySparkTypeError),
)
JAVA = re.compile(r"\n\s+at .*|\n\nJVM stacktrace:(.|\n)*")
CAUSE = re.compile(r"^(?:Caused by|.*\(TID \d+\) \([^)]*\)): (?:[\w.$]+: )?(.*)", re.MULTILINE)
# How a traceback shows an error: its class, its message, and the note that each xq.Error has behind it.
SHOWN = re.compile(r"xq\.core\.errors\.(\w+): ((?:(?!xq\.core\.errors\.).)*?)\n\W*Read docs/errors\.md#", re.DOTALL)


def error(exception: BaseException) -> errors.Error | None:
    """Return xq's error in an exception of PySpark's, with the class and message of Spark's worker; None without one.

    It has no other attributes.
    """
    if isinstance(exception, errors.Error):
        return exception
    for name, message in reversed(SHOWN.findall(str(exception))):
        kind = vars(errors).get(name, errors.Error)
        found: errors.Error = kind.__new__(kind)
        found.args = (message,)
        return found
    return None


@contextmanager
def raised_as_xq() -> Iterator[None]:
    """Raise xq's error, if there is one, in place of PySpark's."""
    try:
        yield
    except Exception as exception:
        if (found := error(exception)) in (None, exception):
            raise
        raise found from exception


def words_of(error: Exception) -> str:
    """Return an exception's own last lines: of the worker's traceback, without Java's."""
    text = JAVA.sub("", str(error)).strip()
    if not hasattr(error, "getCondition") and not hasattr(error, "java_exception"):
        text = ": ".join(filter(None, (type(error).__name__, text)))
    elif "\n  File " in text:
        _, _, last = text.rpartition("\n  File ")
        text = re.sub(r"^.*\n(\s.*\n)*", "", last, count=1)  # without the place, and its line of source
    elif causes := CAUSE.findall(text):
        text = causes[-1]
    return text.strip()[:LONGEST]


def may_be_of_a_row(error: Exception, spark: SparkSession) -> bool:
    """Return whether work may have failed because of a row: not by its program, by lost executors or a lost session."""
    if isinstance(error, OF_PROGRAMS) or any(cause in str(error) for cause in (LOST_EXECUTOR, "SPARK_JOB_CANCELLED")):
        return False
    if words_of(error).startswith(("ImportError", "ModuleNotFoundError")):
        return False
    try:
        return len(spark.range(1).collect()) == 1
    except Exception:  # the session has ended, which errors say in many ways
        return False
