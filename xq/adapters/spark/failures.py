"""Exceptions of work that Spark runs: whose fault they are, their own words, and how a function returns them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkAttributeError, PySparkPicklingError, PySparkTypeError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

import xq
from xq.core.errors import BadType, shown

LOST_EXECUTOR = "ExecutorLostFailure"
LONGEST = 1_000  # characters of an exception's words
OF_PROGRAMS = (
    *(xq.Error, ImportError, Py4JNetworkError),
    *(AnalysisException, PySparkAttributeError, PySparkPicklingError, PySparkTypeError),
)
JAVA = re.compile(r"\n\s+at .*|\n\nJVM stacktrace:(.|\n)*")
CAUSE = re.compile(r"^(?:Caused by|.*\(TID \d+\) \([^)]*\)): (?:[\w.$]+: )?(.*)", re.MULTILINE)


def catching(function: Callable[..., Any], returnType: DataType | str = "string") -> Callable[..., Column]:
    """Return a UDF of a Python function whose exceptions are values: a struct of `value` and `error`.

    It may be made before the session. `error` is NULL where the function has returned, else its exception as text,
    like "ValueError: no price": it is what `consume` expects in `xq_error`. `returnType` is the type of `value`, as in
    PySpark's `udf`; a struct is written "struct<a: int>". Raises BadType for what is no function, or already a UDF, and
    for what is no type.
    """
    if not callable(function) or hasattr(function, "returnType"):
        raise BadType(f"catching takes a Python function, which is no UDF yet, not {shown(function)}")
    if not isinstance(returnType, (DataType, str)):
        raise BadType(f"a type is one of PySpark's, or its name, like 'double', not {shown(returnType)}")

    def caught(*values: Any) -> tuple[Any, str | None]:  # needs nothing of xq in the worker
        try:
            return function(*values), None
        except Exception as error:
            return None, ": ".join(filter(None, (type(error).__name__, str(error))))

    caught.__annotations__ = {}  # which PySpark would take for those of pandas
    caught.__name__ = getattr(function, "__name__", caught.__name__)
    if isinstance(returnType, str):
        returns: DataType | str = f"struct<value: {returnType}, error: string>"
    else:
        returns = StructType([StructField("value", returnType), StructField("error", StringType())])
    return lambda *columns: F.udf(caught, returns)(*columns)  # made when it is used: PySpark needs a session for it


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
