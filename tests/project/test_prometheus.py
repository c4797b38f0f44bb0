"""Metrics as Prometheus takes them: of a program of workers, of a command, with the rules and the dashboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.steps import STUCK, eventually

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "docs" / "monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text()
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}

APP = """
import peewee as pw
import xq

db = pw.SqliteDatabase("app.db")

class Page(xq.Task):
    url = pw.TextField(default="")
    class Meta:
        database = db

features = {"keep": True, "buried": True, "delayed": True, "history": True, "ttr": 60}
xq.upgrade(Page, features=features, tube_stats=["news"])

@Page.xq.worker(max_attempts=1)
def work(page):
    if page.url == "bad":
        raise ValueError(page.url)
"""
PUT = "import app; app.Page.xq.put_many([{'url': 'a'}] * 20 + [{'url': 'b', 'tube': 'news'}, {'url': 'bad'}])"


def run(*command: str, cwd: Path = MONITORING, given: str | None = None, code: int = 0) -> str:
    """What a program prints, which must end with this code."""
    ran = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, input=given, capture_output=True, text=True)
    assert ran.returncode == code, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout + ran.stderr


def promtool(*arguments: str, given: str | None = None) -> str:
    program = shutil.which("promtool") or pytest.skip("promtool is not here: Debian: apt install prometheus")
    return run(program, *arguments, given=given)


def got(url: str) -> str:
    """The text of a page; none while no server answers, or with an error."""
    with suppress(URLError, ConnectionError), urlopen(url, timeout=STUCK) as answer:
        return str(answer.read().decode())
    return ""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with an application of one module, whose queue is installed."""
    (tmp_path / "app.py").write_text(APP)
    run(sys.executable, "-c", "import app; app.db.create_tables([app.Page]); app.Page.xq.install()", cwd=tmp_path)
    return tmp_path


@contextmanager
def worker(folder: Path, *options: str) -> Iterator[str]:
    """The address of the metrics of a program of workers, which ends by SIGTERM."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    command = [sys.executable, "-m", "xq", "worker", "app:work", "--metrics-port", str(port), *options]
    process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        eventually(lambda: got(url))
        yield url
        process.terminate()
        assert process.wait(STUCK) == 0
    finally:
        process.kill()
        process.wait(STUCK)


SERIES = {
    'xq_tasks{queue="Page",state="D",tube=""}': 20,
    'xq_tasks{queue="Page",state="D",tube="news"}': 1,
    'xq_tasks{queue="Page",state="B",tube=""}': 1,
    'xq_transitions_total{queue="Page",source="R",target="T",tube=""}': 21,
    'xq_take_seconds_count{queue="Page"}': 22,
    'xq_ack_seconds_count{queue="Page"}': 21,
    'xq_attempts_total{outcome="returned",queue="Page",task="",tube=""}': 20,
    'xq_attempts_total{outcome="returned",queue="Page",task="",tube="news"}': 1,
    'xq_attempts_total{outcome="failed",queue="Page",task="",tube=""}': 1,
    'xq_attempt_seconds_count{queue="Page",task="",tube=""}': 21,
    'xq_oldest_ready_seconds{queue="Page"}': 0,
    'xq_paused{queue="Page",tube=""}': 0,
}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_program_of_workers_serves_the_metrics_of_its_queues_and_of_all_its_processes(app, kind):
    def series(url: str) -> dict[str, float]:
        return {name: float(value) for name, value in re.findall(r"^(xq_.*) (\S+)$", got(url), re.MULTILINE)}

    with worker(app, "--kind", kind, "--workers", "2") as url:
        run(sys.executable, "-c", PUT, cwd=app)
        eventually(lambda: series(url).items() >= SERIES.items())
        eventually(lambda: min(series(url)[name] for name in ("xq_sweeps_total", "xq_wakeups_total")) > 0)
        assert series(url)['xq_sessions{queue="Page"}'] > 0
        promtool("check", "metrics", given=got(url))


def dashboard() -> list[str]:
    """The expressions of the dashboard, with what Grafana fills in."""
    panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    return [each.replace("$queue", ".*").replace("$__rate_interval", "1m") for each in expressions]


def test_promtool_accepts_the_rules_their_tests_and_each_expression_of_the_dashboard(tmp_path):
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(dashboard())]
    (tmp_path / "dashboard.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(tmp_path / "dashboard.yml"))


def test_the_document_the_rules_and_the_dashboard_name_the_metrics_that_exist(app):
    text, alerts = (ROOT / "docs" / "monitoring.md").read_text(), re.findall(r"alert: (\w+)", ALERTS)
    assert [alert for alert in alerts if f"### {alert}\n" not in text] == []
    assert re.findall(r"runbook: docs/monitoring.md#(\w+)", ALERTS) == [alert.lower() for alert in alerts]
    with worker(app) as url:
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", got(url), re.MULTILINE))
    assert [name for name in kinds if f"`{name.removesuffix('_created')}" not in text] == []
    parts = {f"{name}_{part}" for name in kinds for part in ("bucket", "sum", "count") if kinds[name] == "histogram"}
    assert set(re.findall(r"\bxq_\w+", " ".join([ALERTS, *dashboard()]))) <= {*kinds, *parts}


def test_xq_metrics_prints_what_promtool_accepts_and_a_database_that_is_gone_is_down(app):
    command = (sys.executable, "-m", "xq", "metrics", "app:Page")
    printed = run(*command, cwd=app)
    assert 'xq_up{queue="Page"} 1.0' in printed
    promtool("check", "metrics", given=printed)
    (app / "app.db").unlink()
    printed = run(*command, cwd=app, code=1)
    assert ('xq_up{queue="Page"} 0.0' in printed, "Traceback" in printed) == (True, False)


def test_without_prometheus_client_the_command_says_what_to_install(app):
    code = "import sys; sys.modules['prometheus_client'] = None; sys.modules['prometheus_client.core'] = None\n"
    code += "sys.argv = ['xq', 'metrics', 'app:Page']; import xq.cli; xq.cli.main()"
    printed = run(sys.executable, "-c", code, cwd=app, code=1)
    assert printed == "xq: prometheus_client is not installed: pip install '.[metrics]' in the checkout of xq\n"
