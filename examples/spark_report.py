"""Run three tubes, one with failures and one with slow tasks, and make a report of them.

The page of the report stays for you to open. The tables beside it are Parquet.
"""

import tempfile
import time
from pathlib import Path

import peewee as pw

import xq

folder = Path(tempfile.mkdtemp(prefix="xq-report-"))
db = pw.SqliteDatabase(str(folder / "app.db"))


class Job(pw.Model):
    id = pw.AutoField()
    kind = pw.TextField()
    status = pw.CharField(max_length=1, default="R")
    runat = pw.DoubleField(null=True)

    class Meta:
        database = db


roles = {"status": "status", "runat": "runat", "tube": "kind"}
jobs = xq.upgrade(Job, roles, {"keep": True, "buried": True, "delayed": True, "history": True})
db.create_tables([Job])

jobs.put_many({"kind": kind} for _ in range(40) for kind in ("mail", "thumbnail", "video"))
while job := jobs.take(timeout=0.2):
    if job.kind == "video":
        time.sleep(0.02)
    if job.kind == "mail" and job.id % 4 == 0:
        jobs.bury(job) if job.id % 8 == 0 else jobs.release(job, delay=3600)
    else:
        jobs.ack(job)
ended = time.time()

spark = xq.spark.session(driver_memory="1g")
spark.sparkContext.setLogLevel("ERROR")
report = xq.spark.report(spark, jobs, until=ended, out=folder / "report")

for share in report.tables["shares"].orderBy("tube").collect():
    print(f"{share.tube}: {share.done:.0%} of the ended tasks were done, {share.buried:.0%} buried")
slowest = max(report.tables["states"].where("state = 'Taken'").collect(), key=lambda row: row.p50)
print(f"Tasks of {slowest.tube} take longest: half of them at least {slowest.p50:.3f} seconds")
(waiting,) = report.tables["backlog"].groupBy("queue").agg({"arrived": "sum", "departed": "sum"}).collect()
print(f"Waiting at the end: {waiting['sum(arrived)'] - waiting['sum(departed)']}")
print(f"The report, with plots: {report.html}")
spark.stop()
db.close()
