"""Queues and their history in Spark, through PySpark: what `xq.spark` offers."""

from xq.adapters.spark.report import Report, report
from xq.adapters.spark.session import register, session
from xq.adapters.spark.source import options

__all__ = ["Report", "options", "register", "report", "session"]
