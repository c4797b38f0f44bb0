"""Queues and their history in Spark, through PySpark: `xq.spark.session()`, `pip install 'xq-tables[spark]'`."""

from xq.core.errors import ConfigurationError

try:
    import pyarrow  # noqa: F401 (PySpark needs it as soon as rows come from Python, and says so late)

    from xq.adapters.spark import *  # noqa: F403 (what is offered is listed there)
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("pyspark", "py4j", "pyarrow"):
        raise
    raise ConfigurationError(
        f"xq.spark needs {missing}, which is not installed: pip install 'xq-tables[spark]'"
    ) from None

from xq.adapters.spark import __all__ as __all__
