"""spark-submit runs a program on a cluster: the one of examples/, and one whose xq comes by --py-files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.conftest import SERVERS, database_on
from tests.spark.cluster import HOST, without_xq
from tests.spark.drivers import HOME
from xq.adapters.spark.session import _java_home, _zipped

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture(params=SERVERS)
def url(request):
    """The URL of a database on a server."""
    with database_on(SERVERS[request.param]) as (server, name):
        yield server.url(name)


@pytest.fixture
def submit(workers, url, tmp_path):
    """What the example prints that spark-submit runs on the cluster."""

    def submit(*options: str, driver: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"PYSPARK_DRIVER_PYTHON": driver, "PYSPARK_PYTHON": workers.python, "SPARK_LOCAL_IP": HOST}
        if home := _java_home():
            environment["JAVA_HOME"] = home
        command = [SUBMIT, "--master", workers.url, "--executor-memory", "512m", *options]
        program = [HOME / "examples" / "spark_cluster.py", url]
        ran = subprocess.run([*command, *program], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return submit


def test_the_example_runs_where_workers_have_no_xq(submit):
    assert "{'ack': 2000}\n2000 numbers, 262 of them prime" in submit(driver=sys.executable)


def test_xq_may_come_by_py_files_to_the_driver_and_its_workers(submit, tmp_path):
    driver = without_xq(tmp_path / "driver", "peewee", "apscheduler")
    assert "{'ack': 2000}\n2000 numbers, 262 of them prime" in submit("--py-files", str(_zipped()), driver=driver)
