"""Who is woken for what becomes ready, how many tasks a program may still take, and until when a function may run."""

from __future__ import annotations

import logging
import resource
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from xq.cli import watch
from xq.core.errors import ConfigurationError
from xq.runtime.sleep import run_wait
from xq.runtime.waiters import WaitQueue
from xq.serve import charts
from xq.sql.waker import Waker
from xq.workers.attempt import Lines
from xq.workers.options import Options, WorkerKind
from xq.workers.program import KINDS


@pytest.mark.parametrize("looked", [False, True])
def test_a_waiter_that_leaves_before_it_has_looked_wakes_the_next_and_no_other(looked):
    queue = WaitQueue()
    with ExitStack() as leaves:
        first = leaves.enter_context(queue.enter())
        with queue.enter() as second:
            queue.wake("a")
            assert (first.woken, second.woken) == (True, False)
            if looked:
                assert run_wait(first.sleep(0))
            leaves.close()
            assert second.woken is not looked


def test_a_put_wakes_no_waiter_that_leaves_its_tube_to_others():
    queue = WaitQueue()
    with queue.enter(but=("mail",)) as others, queue.enter("mail") as mail:
        queue.wake("mail")
        assert (others.woken, mail.woken) == (False, True)


def test_of_many_tasks_within_a_second_only_the_first_have_lines(monkeypatch, caplog):
    now = 10.0
    monkeypatch.setattr("xq.core.time.monotonic", lambda: now)
    caplog.set_level(logging.INFO)
    lines = Lines(logging.getLogger("xq"))
    for level, ended in ((logging.INFO, "tasks are finished"), (logging.ERROR, "tasks are buried: ValueError")):
        ran = "shop.mail" if level == logging.ERROR else ""
        levels = [lines.level(ended, level, ran) for _ in range(23)]
        assert levels == [level] * 20 + [logging.DEBUG] * 3
    lines.level("tasks are buried: ValueError", logging.ERROR, "shop.pay")
    assert lines.level("tasks are buried: KeyError", logging.ERROR) == logging.ERROR
    now = 11.0
    assert lines.level("tasks are finished") == logging.INFO
    assert caplog.messages == [
        "3 more tasks are finished",
        "4 more tasks are buried: ValueError (3 shop.mail, 1 shop.pay)",
    ]
    lines.sum_up()
    assert len(caplog.messages) == 2


def test_a_chart_has_the_rates_of_the_last_hour_and_no_line_of_what_did_not_occur():
    past = charts.LastHour()
    for at, done in ((0.0, 0), (15.0, 0), (30.0, 30), (45.0, 30), (60.0, 30)):
        past.add(at, (60, done, 0))
    found = charts.chart(past, 1_800_000_000.0, 1)
    assert (found.most, charts.rates(past)) == (2.0, [0.0, 0.0, 0.0])
    assert found.lines == {"finished": "3555,34.0 3570,4.0 3585,34.0 3600,34.0"}
    assert charts.chart([*past][1:], 0.0, 1).lines == {"finished": "3570,4.0 3585,34.0 3600,34.0"}
    assert found.steps[1] == (3555, 15, "2027-01-15 07:59:30: put 0/s, finished 2/s, failed 0/s")
    assert found.title == "the last 60 s (of the time before nothing is known): up to 2/s"
    new = charts.chart([*past][:1], 0.0, 4)
    assert (new.lines, new.title, charts.rates([*past][:2])) == ({}, "how much has moved is not known yet", [None] * 3)
    begun, row = charts.LastHour(), SimpleNamespace(at_us=980_000_000, source="X", target="R")
    begun.begin(60.0, 1_000.0, {"X-R": 1}, [row])
    assert [*begun] == [(30.0, (0, 0, 0)), (45.0, (1, 0, 0))], "the bucket of the first transition"


def test_top_says_how_many_tasks_a_second_enter_and_leave_a_state():
    looks = watch.Looks([(0.0, {"0-R": 1})])
    assert watch._rates(looks, "R") == {}
    looks.append((2.0, {"0-R": 5, "R-T": 2}))
    assert watch._rates(looks, "R") == {"in/s": "2.0", "out/s": "1.0"}


def test_a_waker_for_which_no_descriptor_is_free_says_only_that():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Waker()  # an error in its __del__ would fail this test
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_type_checkers_know_each_kind_of_worker():
    assert get_args(WorkerKind) == tuple(KINDS)


def test_a_kind_of_worker_says_which_option_it_refuses():
    kind: Any = type("OneThread", (KINDS["thread"],), {"refuses": {"workers": "one at a time"}})
    kind.check(Options(workers=1))
    with pytest.raises(ConfigurationError, match="one at a time"):
        kind.check(Options(workers=2))
