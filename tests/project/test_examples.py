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
    "five_lines": (
        "Taken: https://example.org. Acked, and so deleted: https://example.org.",
        "0 pages are left. Transitions: {'X-Ready': 1, 'Ready-Taken': 1, 'Taken-X': 1}",
    ),
    "own_statuses": (
        "Before:\n  1 teapot: shipped\n  2 lamp: new\n  3 clock: new\n  4 mirror: cancelled\n  5 chair: a draft\n",
        "Missing:\n  the table xq_queue is missing\n",
        "lamp is packing\nclock is packing\nvase is packing\n",
        "Orders by state: {'Ready': 0, 'Taken': 0, 'Buried': 1, 'Done': 3}",
        "In the end:\n  1 teapot: shipped\n  2 lamp: shipped\n  3 clock: shipped\n  4 mirror: cancelled\n"
        "  5 chair: shipped\n  6 vase: shipped\n",
        "Tables after uninstall(): ['order']",
    ),
    "mail": (
        "bob, attempt 1: failed, next attempt in 0.1 seconds",
        "carol, attempt 3: failed, buried",
        "Buried: carol, because of NoSuchMailboxError",
        "Delivered: {'ann': 2, 'bob': 1, 'carol': 1}",
    ),
    "put_and_wait": (
        "391 = 17 x 23\n65537 = 65537\n1001 = 7 x 11 x 13\n",
        "many has no answer: invalid literal for int() with base 10: 'many'\n600851475143 = 71 x 839 x 1471 x 6857\n",
        "Waiters left: []",
    ),
    "exactly_once": (
        "6 workers were killed. 300 payments were taken; ",
        "holds every payment is done\nholds every payment has one booking\n"
        "holds every balance is the sum of its payments\n",
    ),
    "own_tubes": (
        "Read a love letter\nRead a bill\nKept: 2, calls: 2 acks\n",
        "From the desk: the last\nFrom the desk: the second\nFrom the desk: the first sheet\n",
        "Tubes: desk (stack), letters (letters)\nTubes in the end: []\n",
    ),
    "spark_consume": (
        "Processed: {'ack': 999, 'bury': 1}\nBuried: customer 1000, no price: a lot\n",
        "After the correction: {'ack': 1}\n",
        "Done: 1000 orders, 596189.40 in all\n",
    ),
    "spark_cluster": ("Worked off: {'ack': 2000}\n", "2000 numbers, 262 of them prime; the most factors: 2 x 2 x 2"),
    "spark_report": (
        "mail: 86% of the ended tasks were done, 14% buried\nthumbnail: 100% of the ended tasks were done, 0% buried\n",
        "Waiting at the end: 5\nThe report, with plots: ",
    ),
    "crawler": (
        "8 workers read 48 pages of 4 hosts; the hosts were busy ",
        " times.\nBuried: /gone, /gone, /gone, /gone\n",
        *[" requests, at most 1 at a time\n"] * 4,
    ),
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
    unexpected = [line for line in ran.stderr.splitlines() if " INFO xq" not in line]
    assert not unexpected or name.startswith("spark_"), "Spark itself warns of this and that"
    place = 0
    for part in PRINTED[name]:
        assert part in ran.stdout[place:], f"{part!r} is not printed, or not in its place:\n{ran.stdout}"
        place = ran.stdout.index(part, place) + len(part)


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "demo"}  # make demo


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_its_output(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.parametrize(("kind", "scheme"), [("postgres", "psycopg3"), ("mariadb", "mysql")])
def test_effects_happen_exactly_once_on_a_server(kind, scheme, tmp_path):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        check("exactly_once", tmp_path, scheme + url[url.index("://") :])


# the demo


def test_the_demo_does_not_overwrite_a_file(tmp_path):
    file = tmp_path / "letters.db"
    file.write_text("dear diary")
    ran = run("demo", tmp_path, "--db", str(file))
    assert (ran.returncode, "letters.db is there already" in ran.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.db"]
    assert file.read_text() == "dear diary"
