"""Each condition of a queue makes its alert fire, and no other: Prometheus' rules on what real scrapes have shown."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.factories import task
from tests.steps import STUCK
from tests.timing import in_sequence
from xq.metrics import Metrics

RULES = Path(__file__).resolve().parents[2] / "docs" / "monitoring" / "alerts.yml"
FEATURES = {"after": True, "delayed": True, "buried": True, "keep": True, "history": True}
BEFORE, AFTER = 5, 11  # minutes
FIRING = 'group by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))'  # at any time before


def kill_a_parent(Task: Any) -> None:
    parent = Task.put({"tube": "mail"})
    Task.put({"tube": "mail"}, after=parent)
    Task.kill(parent)


def reap(Task: Any, event: str) -> None:
    with Task.xq.session() as gone:
        Task.put({"tube": "mail"})
        Task.take(tube="mail")
        Task.xq.parts.maintenance.give_back([gone.uuid], event)


# what happens to a queue -> the alert
CONDITIONS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "nothing": (lambda Task: None, ""),
    "nothing fires schedules": (lambda Task: Task.xq.every(60, {"tube": "mail"}, name="b"), "XqScheduleOverdue"),
    "the clock is set back": (lambda Task: Task.xq.clock.tick(-3600), "XqScheduleOverdue"),
    "a parent is killed": (kill_a_parent, "XqDependantsHeld"),
    "no worker of a tube": (lambda Task: Task.put({"tube": "news"}), "XqTubeWithoutWorker"),
    "a process dies": (lambda Task: reap(Task, "died"), "XqReaped"),
    "the server is restarted": (lambda Task: reap(Task, "outage"), ""),
    "a task is buried": (lambda Task: (Task.put(task()), Task.take().bury()), "XqBuried"),
}


@in_sequence
def check(folder: Path, scrapes: list[str], alert: str) -> None:
    """Have promtool evaluate the rules: the alert alone fires after the last scrape, and none before the condition."""
    program = shutil.which("promtool") or pytest.skip("promtool is not here: Debian: apt install prometheus")
    series: dict[str, dict[int, float]] = {}
    for minute, body in enumerate(scrapes):
        for sample in (each for family in text_string_to_metric_families(body) for each in family.samples):
            labels = ",".join(f"{label}={json.dumps(value)}" for label, value in sample.labels.items())
            series.setdefault(f"{sample.name}{{{labels}}}", {})[minute] = sample.value
    given = [
        {"series": name, "values": " ".join(str(values.get(minute, "_")) for minute in range(len(scrapes)))}
        for name, values in series.items()
    ]
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    asked: dict[int, list[Any]] = {BEFORE - 1: [], len(scrapes) - 1: fires}
    asks = [{"expr": FIRING, "eval_time": f"{minute}m", "exp_samples": expected} for minute, expected in asked.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asks}
    path = folder / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    ran = subprocess.run([program, "test", "rules", str(path)], capture_output=True, text=True, timeout=STUCK)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_of_a_queue_makes_its_alert_fire_and_no_other(make, tmp_path, condition):
    Task = make(FEATURES, roles=("runat", "tube"), tube_stats=["mail", "news"])
    Task.xq.clock.now = 60.0  # as Prometheus' own time in a test begins at 1970
    Task.xq.every(60, {"tube": "mail"}, name="a")
    metrics, scrapes = Metrics([Task.xq], fresh_for=0), list[str]()
    happens, alert = CONDITIONS[condition]
    for minute in range(BEFORE + AFTER):
        if minute == BEFORE:
            happens(Task)
        if minute < BEFORE or condition != "nothing fires schedules":
            Task.xq.sweep()
        Task.put({"tube": "mail"})
        while (found := Task.take(tube="mail")) is not None:
            found.ack()
        scrapes.append(metrics.scrape()[0].decode())
        Task.xq.clock.tick(60)
    check(tmp_path, scrapes, alert)
