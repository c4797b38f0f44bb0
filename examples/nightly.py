"""Put tasks at given times. One process fires each schedule, however many run."""

import tempfile

import peewee as pw

import xq

db = pw.SqliteDatabase(tempfile.mkdtemp(prefix="xq-nightly-") + "/app.db")


class Report(xq.Task):
    name = pw.TextField()

    class Meta:
        database = db


xq.upgrade(
    Report,
    features={"delayed": True, "buried": True, "keep": True, "ttr": 60},
    schedules={
        "nightly": ("0 3 * * *", {"name": "the day"}, {"tz": "Europe/Berlin"}),  # a cron text
        "often": (1, {"name": "the last second"}),  # seconds
    },
)


@Report.xq.worker(max_attempts=5)
def write(report: Report) -> None:
    print(f"a report on {report.name}")


if __name__ == "__main__":
    db.create_tables([Report])
    Report.xq.run(max_tasks=2)  # workers store the schedules when they start; without max_tasks, until SIGTERM
    for schedule in Report.xq.schedules():
        print(f"{schedule.name} ({schedule.spec}) comes next at {schedule.next:%H:%M:%S %Z}")
    db.close()
