"""Queues and their history in Spark, through PySpark: what `xq.spark` offers."""

from xq.adapters.spark.jdbc import Snapshot, jdbc, jdbc_options, snapshot
from xq.adapters.spark.session import register, session

__all__ = ["Snapshot", "jdbc", "jdbc_options", "register", "session", "snapshot"]
