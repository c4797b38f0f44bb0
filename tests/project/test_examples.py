"""The programs in examples/, run as a reader runs them."""

from __future__ import annotations

import importlib.util
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

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
        "Missing after install(): []\nOrders by state: {'Ready': 2, 'Taken': 0, 'Buried': 0, 'Done': 1}\n",
        "lamp is packing\nclock is packing\nvase is packing\n",
        "After:\n  1 teapot: shipped\n  2 lamp: shipped\n  3 clock: failed\n  4 mirror: cancelled\n  5 chair: a draft\n"
        "  6 vase: shipped\n",
        "Orders by state: {'Ready': 0, 'Taken': 0, 'Buried': 1, 'Done': 3}",
        "Transitions: {'X-Ready': 1, 'Ready-Taken': 3, 'Taken-Buried': 1, 'Taken-Done': 2}",
        "In the end:\n  1 teapot: shipped\n  2 lamp: shipped\n  3 clock: shipped\n  4 mirror: cancelled\n"
        "  5 chair: shipped\n  6 vase: shipped\n",
        "Tables after uninstall(): ['order']",
    ),
    "mail": (
        "bob, attempt 1: failed, next attempt in 0.1 seconds",
        "bob gets a mailbox",
        "carol, attempt 3: failed, buried",
        "Buried: carol, because of NoSuchMailboxError",
        "carol, attempt 4: delivered",
        "Delivered: {'ann': 2, 'bob': 1, 'carol': 1}",
    ),
    "put_and_wait": (
        "391 = 17 x 23\n65537 = 65537\n1001 = 7 x 11 x 13\n",
        "many has no answer: invalid literal for int() with base 10: 'many'\n600851475143 = 71 x 839 x 1471 x 6857\n",
        "Waiters left: []",
        "'X-Ready': 5",
        "'Taken-Zombie': 4",
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
    "spark_cluster": (
        "Worked off: {'ack': 2000}\n",
        f"2000 numbers, 262 of them prime; the most factors: {' x '.join(['2'] * 11)}\n",
    ),
    "spark_report": (
        "mail: 86% of the ended tasks were done, 14% buried\nthumbnail: 100% of the ended tasks were done, 0% buried\n",
        "video: 100% of the ended tasks were done, 0% buried\nTasks of video take longest: half of them at least ",
        "Waiting at the end: 5\nThe report, with plots: ",
        "/report/index.html\n",
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

# Parts at any place: on a machine that pauses for a moment, the last retry is after the delayed mail.
PRINTED_ANYWHERE: Mapping[str, tuple[str, ...]] = {
    "mail": ("'See you on Monday' to ann, attempt 1: delivered",),
}


def start(name: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """An example as a process of its own, in a folder of its own, whose temporary files stay there."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def check_printed(name: str, out: str) -> None:
    place = 0
    for part in PRINTED[name]:
        assert part in out[place:], f"{part!r} is not printed, or not in its place:\n{out}"
        place = out.index(part, place) + len(part)
    for part in PRINTED_ANYWHERE.get(name, ()):
        assert part in out


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "demo"}  # make demo


@pytest.mark.parametrize("name", sorted(name for name in PRINTED if not name.startswith("spark_")))
def test_an_example_runs_and_prints_its_output(name, tmp_path):
    code, out, err = end(start(name, tmp_path))
    assert (code, err) == (0, "")
    check_printed(name, out)


@pytest.mark.parametrize("name", sorted(name for name in PRINTED if name.startswith("spark_")))
def test_an_example_of_spark_runs_and_prints_its_output(name, tmp_path):
    code, out, err = end(start(name, tmp_path))
    if re.search("xq.spark needs|Spark needs Java", err):
        pytest.skip(err.splitlines()[-1])
    assert code == 0, err  # Spark itself warns of this and that
    check_printed(name, out)


# exactly once, on servers as well


SCHEMES = {"postgres": "psycopg3", "mariadb": "mysql"}


@pytest.mark.parametrize("kind", SCHEMES)
def test_effects_happen_exactly_once_on_a_server(kind, tmp_path):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        code, out, err = end(start("exactly_once", tmp_path, SCHEMES[kind] + url[url.index("://") :]))
        assert (code, err) == (0, "")
        check_printed("exactly_once", out)


def test_an_effect_that_happened_twice_is_found(tmp_path):
    (tmp_path / "exactly_once.py").write_text(
        (EXAMPLES / "exactly_once.py").read_text().replace("Booking.create(payment=payment)", TWICE)
    )
    process = start(str(tmp_path / "exactly_once"), tmp_path)
    code, out, err = end(process)
    assert (code, err) == (1, "")
    assert "FAILS every payment has one booking\nholds every balance" in out


TWICE = "Booking.insert_many([{'payment': payment}] * (1 + (payment.id == 1))).execute()"


# the demo


def test_the_demo_does_not_overwrite_a_file(tmp_path):
    file = tmp_path / "letters.db"
    file.write_text("dear diary")
    process = start("demo", tmp_path, "--db", str(file))
    code, _, err = end(process)
    assert code == 2
    assert "letters.db is there already" in err
    assert [path.name for path in tmp_path.iterdir()] == ["letters.db"]
    assert file.read_text() == "dear diary"


@pytest.fixture
def demo() -> Iterator[Any]:
    """The demo as a module, with models and a database of its own."""
    spec = importlib.util.spec_from_file_location("demo_of_a_test", EXAMPLES / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if not module.db.deferred:
        module.db.close()


def worked_off(demo: Any, folder: Path, given_back: int = 0) -> Any:
    """A small database as the workers leave it: two packages, four files, one of them Buried."""
    sources = {"a/one.py": "def f(): 1", "a/two.py": "'''Two.'''", "b/three.py": "class C: 3", "b/four.py": "def f("}
    for name, source in sources.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(source)
    modules = demo.open_queue(str(folder / "small.db"), ["a"])
    demo.db.create_tables([demo.Module, demo.Receipt])
    demo.fill(modules, [(folder / name, name) for name in sources])
    with modules.session():  # which gives back what it has when it ends
        modules.take_many(given_back)
    demo.drain(modules)
    return modules


def test_the_demo_finds_that_all_holds_before_and_after_digging(demo, tmp_path):
    modules = worked_off(demo, tmp_path)
    assert all(demo.verify(modules, 4).values())
    rows = {Path(row.path).name: row for row in demo.Module.select()}
    assert (rows["one.py"].functions, rows["three.py"].classes, rows["two.py"].title) == (1, 1, "Two.")
    assert rows["four.py"].error.startswith("SyntaxError")
    modules.dig(n=None)
    demo.drain(modules)
    assert all(demo.verify(modules, 4, dug=1).values())


def test_the_demo_counts_what_came_back(demo, tmp_path):
    modules = worked_off(demo, tmp_path, given_back=1)
    assert all(demo.verify(modules, 4, killed=1).values())
    failed = [what for what, holds in demo.verify(modules, 4).items() if not holds]
    assert failed == ["every file was taken once"]


def test_the_demo_tells_the_second_time_what_differs_and_all_that_fails(demo, capsys):
    before = {"one": True, "two": True, "three": True, "four": False}
    assert not demo.show_checks({"one": True, "two": False, "three": True, "four": True, "five": True}, before)
    printed = ["  FAILS two", "  holds four", "  holds five", "  the same 2 checks hold again"]
    assert capsys.readouterr().out.split("\n") == [*printed, "", ""]


@pytest.mark.parametrize(
    ("interference", "found"),
    [
        ("INSERT INTO receipt (module_id, worker) SELECT module_id, 0 FROM receipt LIMIT 1", "acked exactly once"),
        ("DELETE FROM receipt WHERE id = 1", "acked exactly once"),
        ("UPDATE receipt SET module_id = (SELECT id FROM module WHERE status = 'B')", "acked exactly once"),
        ("UPDATE module SET status = 'D' WHERE status = 'B'", "acked exactly once"),
        ("DELETE FROM module_xq_history WHERE id = 1", "the history has every"),
        ("UPDATE module_xq_history SET target = 'B' WHERE target = 'D'", "the statistics equal a GROUP BY"),
        ("UPDATE module SET attempts = 2 WHERE id = 1", "taken once"),
        ("UPDATE module SET attempts = 2 * (id = 1) + (id > 2)", "taken once"),
        ("UPDATE module SET status = 'T' WHERE id = 1", "Done or Buried"),
        ("UPDATE module SET status = '?' WHERE id = 1", "Done or Buried"),
        ("UPDATE module SET path = 'the same'", "put once"),
        (
            "INSERT INTO module (path, name, package, size, status, priority, attempts) "
            "SELECT path, name, package, size, status, priority, attempts FROM module LIMIT 1",
            "put once",
        ),
        ("UPDATE module SET error = NULL", "has its error"),
        ("INSERT INTO module_xq_count VALUES ('', 'T', 'D', 1)", "the statistics equal a GROUP BY"),
        ("INSERT INTO module_xq_count VALUES ('a', 'T', 'D', 1)", "by package"),
        ("DROP TRIGGER module_xq_delete; DELETE FROM module WHERE id = 1", "nothing uncounted"),
    ],
)
def test_the_demo_finds_a_violation(demo, tmp_path, interference, found):
    modules = worked_off(demo, tmp_path)
    with closing(sqlite3.connect(tmp_path / "small.db")) as other:
        other.executescript(interference)
    failed = [what for what, holds in demo.verify(modules, 4).items() if not holds]
    assert any(found in what for what in failed), failed
