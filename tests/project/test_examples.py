"""The programs in examples/, run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import SERVERS, database_on

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# example -> parts of its output, in this order; other output may be between them
PRINTED: Mapping[str, tuple[str, ...]] = {
    "pages": (
        "WARNING task 3 failed (attempt 1 of 2; next in 100 ms): KeyError",
        "ERROR task 3 is buried (attempt 2 of 2): KeyError",
        "'Buried': 1, 'Done': 2}\nBuried after 2 attempts: https://example.org/nwes, KeyError",
        "'Buried': 0, 'Done': 3}\n['Welcome', 'News', 'News']\n",
    ),
    "web": ("a mail to ", "a mail to ", "The server has ended, and the workers with it\n"),
    "gather": ("100 pages of 0.2 seconds each\n", "The reply: HTTPS://EXAMPLE.ORG/REPLY\n"),
    "nightly": (
        "a report on the last second\na report on the last second\n",
        "nightly (0 3 * * *) comes next at ",
        "often (1.0) comes next at ",
    ),
    "orders": (
        "teapot shipped \nlamp shipped \nclock failed no address\nchair draft \n",
        "{'Ready': 0, 'Taken': 0, 'Buried': 1, 'Done': 3}\n",
    ),
    "exactly_once": ("6 workers were killed. 300 payments are done; ", "Each payment has one booking.\n"),
    "evening": ("2,000 tasks are in evening.db: 200 of Image, 1,200 of Mail, 600 of Order\n",),
    "spark": (
        "Worked off: {'ack': 1999, 'bury': 1}\nBuried: 0 has no factors\nPrimes: 303\n",
        "The report, with plots: ",
    ),
    "crawler": ("Buried: /404, /404, /404, /404\n", "Read 48 pages; requests at a time to each host: [1, 1, 1, 1]\n"),
    "console_fastapi": (
        "Nobody: 401\nBob looks: 200\nBob digs: 403\nAnn digs: 200\n",
        "The history: dig by ann: it answers again\n",
    ),
    "console_django": (
        "Nobody: 302 /admin/login/?next=/queues/\nBob is not of the staff: 302\nAnn looks: 200\nAnn digs: 200\n",
        "The history: dig by ann: it answers again\n",
    ),
}


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder of its own, where its temporary files stay."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        timeout=300,
        encoding="utf-8",
    )


def check(name: str, folder: Path, *arguments: str) -> None:
    """Run an example, and compare what it prints."""
    ran = run(name, folder, *arguments)
    if re.search("xq.spark needs|Spark needs Java", ran.stderr):
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    unexpected = [line for line in ran.stderr.splitlines() if not re.search(r"INFO[ :]xq|task \d+ is buried", line)]
    assert not unexpected or name == "spark", "Spark itself warns of this and that"
    place = 0
    for part in PRINTED[name]:
        assert part in ran.stdout[place:], f"{part!r} is not printed, or not in its place:\n{ran.stdout}"
        place = ran.stdout.index(part, place) + len(part)


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "demo"}  # make demo


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_its_output(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.parametrize(("kind", "scheme"), [("postgres", "psycopg3"), ("mariadb", "mysql"), ("mysql", "mysql")])
def test_effects_happen_exactly_once_on_a_server(kind, scheme, tmp_path):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        check("exactly_once", tmp_path, scheme + url[url.index("://") :])


def test_the_tests_of_the_shop_on_fastapi_pass():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "fastapi_sqlalchemy"]
    ran = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_demo_does_not_overwrite_a_file(tmp_path):
    file = tmp_path / "letters.db"
    file.write_text("dear diary")
    ran = run("demo", tmp_path, "--db", str(file))
    assert (ran.returncode, "letters.db is there already" in ran.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.db"]
    assert file.read_text() == "dear diary"
