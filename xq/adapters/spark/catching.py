"""A function whose exceptions are values, for work that Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from xq.core.errors import BadType, shown


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
