"""Queues and their history in Spark, through PySpark: what `xq.spark` offers."""

from xq.adapters.spark.report import Report, report
from xq.adapters.spark.session import register, session

__all__ = ["Report", "register", "report", "session"]
