"""Metrics from the history of a server: transactions that commit after others with greater ids."""

from __future__ import annotations

import threading

import pytest

from xq.metrics.transitions import Transitions


def rows_of(Task):
    return Transitions(Task.xq.adapter.inspection, past=False)


@pytest.mark.parametrize("db", ["postgres", "mariadb"], indirect=True)
def test_a_transaction_that_commits_late_is_counted_once(make):
    Task = make({"keep": True, "history": True})
    followed = rows_of(Task)
    put, commit = threading.Event(), threading.Event()

    def late() -> None:
        with make.db.connection_context(), make.db.atomic():
            Task.put({"name": "late"})
            put.set()
            commit.wait(60)

    thread = threading.Thread(target=late)
    thread.start()
    try:
        assert put.wait(60)
        Task.put({"name": "early"})
        Task.take().ack()
        followed.follow()
        assert (followed.events["put"], followed.takes.count, followed.acks.count) == (1, 1, 1)
    finally:
        commit.set()
        thread.join()
    followed.follow()
    followed.follow()
    assert followed.events["put"] == 2
    assert followed.oldest_ready() == Task.xq.clock.now
    Task.take().ack()
    followed.follow()
    assert (followed.events["put"], followed.takes.count, followed.acks.count) == (2, 2, 2)


def test_more_transitions_than_one_query_reads_are_counted_once(make, monkeypatch):
    monkeypatch.setattr("xq.metrics.transitions.AT_ONCE", 7)
    Task = make({"keep": True, "history": True})
    followed = rows_of(Task)
    Task.xq.put_many([{}] * 30)
    Task.xq.take_many(30)
    followed.follow()
    assert (followed.events["put"], followed.takes.count) == (30, 30)
    followed.follow()
    assert (followed.events["put"], followed.takes.count) == (30, 30)
    assert followed.oldest_ready() is None
