"""Queues and their history in Spark, through PySpark: what `xq.spark` offers."""

from xq.adapters.spark.archives import Archived, archive, history, restore, tasks
from xq.adapters.spark.session import register, session
from xq.adapters.spark.source import options

__all__ = ["Archived", "archive", "history", "options", "register", "restore", "session", "tasks"]
