"""Read and write queues and their history in Spark, through PySpark: the implementation of `xq.spark`."""

from xq.adapters.spark.archives import Archived, archive, history, restore, tasks
from xq.adapters.spark.consume import consume
from xq.adapters.spark.jdbc import Snapshot, jdbc, jdbc_options, snapshot
from xq.adapters.spark.live import stream, write_batch
from xq.adapters.spark.report import Report, report
from xq.adapters.spark.session import register, session
from xq.adapters.spark.source import options

__all__ = [
    "Archived",
    "Report",
    "Snapshot",
    "archive",
    "consume",
    "history",
    "jdbc",
    "jdbc_options",
    "options",
    "register",
    "report",
    "restore",
    "session",
    "snapshot",
    "stream",
    "tasks",
    "write_batch",
]
