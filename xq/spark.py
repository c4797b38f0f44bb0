"""Queues and their history in Spark, through PySpark: `xq.spark.session()`, `pip install '.[spark]'`."""

from xq.core.errors import ConfigurationError


class SparkMissing(ConfigurationError, AttributeError):
    """So `hasattr(xq, "spark")` is False."""


try:
    import pyarrow  # noqa: F401 (PySpark needs it as soon as rows come from Python, and says so late)

    from xq.adapters.spark.archive import Archived, archive, history, restore, tasks
    from xq.adapters.spark.catching import catching
    from xq.adapters.spark.consume import consume
    from xq.adapters.spark.errors import error
    from xq.adapters.spark.jdbc import jdbc, jdbc_options
    from xq.adapters.spark.live import stream
    from xq.adapters.spark.put import put
    from xq.adapters.spark.report import Report, report
    from xq.adapters.spark.source import options
    from xq.adapters.spark.spark_session import register, session
except ModuleNotFoundError as lacking:
    missing = (lacking.name or "").partition(".")[0]
    if missing not in ("pyspark", "py4j", "pyarrow"):
        raise
    raise SparkMissing(
        f"xq.spark needs {missing}, which is not installed: pip install '.[spark]' in the checkout of xq"
    ) from None

__all__ = [
    "Archived",
    "Report",
    "archive",
    "catching",
    "consume",
    "error",
    "history",
    "jdbc",
    "jdbc_options",
    "options",
    "put",
    "register",
    "report",
    "restore",
    "session",
    "stream",
    "tasks",
]
