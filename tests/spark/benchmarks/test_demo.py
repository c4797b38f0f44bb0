"""The report of a run of examples/demo.py, which `make demo` shows: its numbers are those of the history."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import peewee as pw

import xq
from tests.spark.reckoning import Reckoning
from tests.spark.test_report import EXAMPLES, Page, buried_of, check, history_of
from xq.adapters.spark.report import report


def test_a_report_of_the_run_of_the_demo_is_what_its_history_says(spark, tmp_path):
    file = tmp_path / "demo.db"
    subprocess.run([sys.executable, EXAMPLES / "demo.py", "--db", file], check=True, capture_output=True, timeout=300)
    db = pw.SqliteDatabase(file)
    model: Any = type(
        "Module",
        (pw.Model,),
        {
            **{name: pw.TextField(null=True) for name in ("package", "owner")},
            **{name: pw.IntegerField(default=0) for name in ("priority", "attempts")},
            "status": pw.CharField(default="R"),
            "runat": pw.DoubleField(null=True),
            "Meta": type("Meta", (), {"database": db}),
        },
    )
    roles = {role: role for role in ("status", "runat", "priority", "owner", "attempts")} | {"tube": "package"}
    modules: Any = xq.upgrade(model, roles, {"keep": True, "buried": True, "ttr": 60, "history": True})
    modules.install()  # without the statistics of some tubes that the demo has
    found = report(spark, modules, out=tmp_path / "report", archive=tmp_path)  # nothing was archived yet
    page, rows = Page(found.html), history_of("Module", modules)
    assert len(rows) > 3 * 500
    check(found, Reckoning(rows, [], *page.span, buried_of("Module", model)))
    (queue,) = page.data["queues"]
    done = sum(row[3] for row in queue["throughput"])
    assert done == model.select().where(model.status == "D").count()
    assert page.data["unit"] == "second"
    assert (queue["silent"], {error for _, error, *_ in queue["failures"]}) == ("error", {None})  # it is not mapped
    assert (page.data["compared"], queue["before"]) == (False, None)
    assert "died" in [row[2] for row in queue["transitions"]]
    db.close()
