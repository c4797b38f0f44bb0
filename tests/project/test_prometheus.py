"""Metrics with a real Prometheus: it scrapes a program of workers, and knows the rules and the dashboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.steps import STUCK, eventually

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "docs" / "monitoring"
NEEDED = "Debian: apt install prometheus"

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

CONFIGURATION = """
global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: xq
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine: {NEEDED}")
    return found


def run(*command: str | Path, cwd: Path = MONITORING, given: str | None = None) -> str:
    """What a program prints, which must end with 0."""
    ran = subprocess.run(command, cwd=cwd, env=environment(), input=given, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout + ran.stderr


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def got(url: str) -> bytes | None:
    """The body of a page; None while no server answers."""
    try:
        with urlopen(url, timeout=STUCK) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        if error.code == 503:  # it starts
            return None
        raise AssertionError(f"{url}: {error.read()!r}") from error
    except (URLError, ConnectionError):
        return None


@contextmanager
def started(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(STUCK)


def installed(folder: Path) -> Path:
    """A folder with an application of one module, whose queue is installed."""
    (folder / "app.py").write_text(APP)
    run(sys.executable, "-c", "import app; app.db.create_tables([app.Page]); app.Page.xq.install()", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The application whose workers Prometheus scrapes."""
    return installed(tmp_path_factory.mktemp("app"))


@contextmanager
def worker(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A program of workers, and the address of its metrics."""
    port = free_port()
    command = (sys.executable, "-m", "xq", "worker", "app:work", "--metrics-port", str(port), *options)
    with started(folder, *command) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        eventually(lambda: got(url))
        yield process, url


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, expression: str) -> list[Any]:
        """The series that an expression gives now. Fails if the expression is none."""
        body = got(f"{self.url}/api/v1/query?{urlencode({'query': expression})}")
        return [] if body is None else list(json.loads(body)["data"]["result"])

    def has(self, expression: str, value: float) -> bool:
        return self.value(expression) == value

    def value(self, expression: str) -> float | None:
        found = self.ask(expression)
        return float(found[0]["value"][1]) if found else None


@pytest.fixture(scope="module")
def prometheus(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a program of workers, which has begun with an empty queue."""
    serves, folder, port = program("prometheus"), tmp_path_factory.mktemp("prometheus"), free_port()
    with worker(app) as (_, url):
        scraped = int(url.removesuffix("/metrics").rpartition(":")[2])
        (folder / "prometheus.yml").write_text(
            CONFIGURATION.format(port=scraped, rules=json.dumps(str(MONITORING / "alerts.yml")))
        )
        listen = f"--web.listen-address=127.0.0.1:{port}"
        with started(folder, serves, "--config.file=prometheus.yml", listen, "--storage.tsdb.path=data"):
            running = Prometheus(f"http://127.0.0.1:{port}")
            eventually(lambda: running.value("xq_up") == 1)
            puts = "import app; app.Page.put_many([{'url': 'a'}, {'url': 'b', 'tube': 'news'}, {'url': 'bad'}])"
            run(sys.executable, "-c", puts.replace("app.Page.put_many", "app.Page.xq.put_many"), cwd=app)
            yield running


def test_prometheus_has_the_series_of_a_program_of_workers(prometheus):
    for expression, value in {
        'sum(xq_tasks{queue="Page",state="D"})': 2,
        'xq_tasks{queue="Page",state="D",tube="news"}': 1,
        'sum(xq_tasks{queue="Page",state="B"})': 1,
        'sum(xq_transitions_total{source="R",target="T"})': 3,
        "xq_take_seconds_count": 3,
        "xq_ack_seconds_count": 2,
        'xq_attempts_total{outcome="returned"}': 2,
        'xq_attempts_total{outcome="failed"}': 1,
        "xq_attempt_seconds_count": 3,
        "xq_sessions": 1,
        "xq_oldest_ready_seconds": 0,
        'xq_paused{tube=""}': 0,
        "xq_sweeps_total > bool 0": 1,
        "xq_wakeups_total > bool 0": 1,
    }.items():
        eventually(partial(prometheus.has, expression, value))


def test_prometheus_loads_the_rules_and_a_buried_task_is_pending(prometheus):
    body = got(f"{prometheus.url}/api/v1/rules")
    assert body is not None
    (group,) = json.loads(body)["data"]["groups"]
    assert {rule["name"] for rule in group["rules"]} >= {"XqBuried", "XqOldestReady", "XqReaped", "XqNoProcessTakes"}
    eventually(lambda: prometheus.ask('ALERTS{alertname="XqBuried",alertstate="pending",queue="Page"}'))


def dashboard() -> list[tuple[str, str]]:
    """(title of the panel, expression) of the dashboard, with what Grafana fills in."""
    panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    filled = {"$queue": ".*", "$__rate_interval": "1m"}
    found = []
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in filled.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found.append((panel["title"], expression))
    return found


def metrics_of(url: str) -> set[str]:
    """The names of the series that a program of workers shows, from their types."""
    body = got(url)
    assert body is not None
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", body.decode(), re.MULTILINE):
        found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return found


def test_each_expression_of_the_dashboard_is_one_and_gives_series(prometheus):
    for _, expression in dashboard():
        eventually(partial(prometheus.ask, expression))


def test_the_dashboard_and_the_rules_name_metrics_that_exist(app):
    rules = (MONITORING / "alerts.yml").read_text()
    named = {name for _, expression in dashboard() for name in re.findall(r"xq_\w+", expression)}
    named |= set(re.findall(r"\bxq_\w+", rules))
    with worker(app) as (_, url):
        assert named <= metrics_of(url)


def test_the_document_explains_each_metric_and_each_alert(app):
    text = (ROOT / "docs" / "monitoring.md").read_text()
    alerts = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    anchors = re.findall(r"runbook: docs/monitoring.md#(\w+)", (MONITORING / "alerts.yml").read_text())
    assert [f"### {alert}" for alert in alerts if f"### {alert}\n" not in text] == []
    assert anchors == [alert.lower() for alert in alerts]
    with worker(app) as (_, url):
        body = got(url)
    assert body is not None
    names = re.findall(r"^# TYPE (\S+) ", body.decode(), re.MULTILINE)
    assert [name for name in names if f"`{name}" not in text] == []


def test_promtool_accepts_the_rules_and_their_tests_pass():
    assert "SUCCESS" in run(program("promtool"), "check", "rules", "alerts.yml")
    assert "SUCCESS" in run(program("promtool"), "test", "rules", "alerts_test.yml")


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_promtool_accepts_the_metrics_of_workers(app, kind):
    check = program("promtool")
    with worker(app, "--kind", kind) as (process, url):
        body = got(url)
        assert body is not None
        run(check, "check", "metrics", given=body.decode())
        process.send_signal(signal.SIGTERM)
        assert process.wait(STUCK) == 0
    eventually(lambda: got(url) is None)


def test_the_counts_of_worker_processes_add_up(tmp_path):
    app = installed(tmp_path)

    def counted(url: str) -> float:
        body = got(url) or b""
        return sum(float(n) for n in re.findall(rb"^xq_attempts_total\{.*\} (\S+)$", body, re.MULTILINE))

    with worker(app, "--kind", "process", "--workers", "2") as (_, url):
        run(sys.executable, "-c", "import app; app.Page.xq.put_many([{'url': 'a'}] * 20)", cwd=app)
        eventually(lambda: counted(url) == 20)


def test_xq_metrics_prints_what_promtool_accepts(app):
    printed = run(sys.executable, "-m", "xq", "metrics", "app:Page", cwd=app)
    assert 'xq_up{queue="Page"} 1.0' in printed
    run(program("promtool"), "check", "metrics", given=printed)


def test_only_metrics_are_served(app):
    with worker(app) as (_, url):
        with pytest.raises(AssertionError, match="404"):
            got(url.replace("/metrics", "/"))


def test_a_port_in_use_is_refused_in_one_line(app):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = str(bound.getsockname()[1])
        command = (sys.executable, "-m", "xq", "worker", "app:work", "--metrics-port", port)
        ran = subprocess.run(command, cwd=app, env=environment(), capture_output=True, text=True, timeout=5 * STUCK)
    assert ran.returncode == 1
    assert "the metrics cannot be served on 127.0.0.1" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


def test_without_prometheus_client_the_command_says_what_to_install(app):
    code = "import sys; sys.modules['prometheus_client'] = None; sys.modules['prometheus_client.core'] = None\n"
    code += "sys.argv = ['xq', 'metrics', 'app:Page']; import xq.cli; xq.cli.main()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=app, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "xq: metrics need prometheus_client: pip install 'xq-tables[metrics]'\n"


def test_a_database_that_is_gone_is_down_without_a_traceback(app, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    command = (sys.executable, "-m", "xq", "metrics", "app:Page")
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 1
    assert 'xq_up{queue="Page"} 0.0' in ran.stdout
    assert "Traceback" not in ran.stderr
