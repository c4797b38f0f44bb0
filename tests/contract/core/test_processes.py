"""Processes that do anything and are killed at any moment, and threads: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from typing import Any

import pytest

import xq
from tests.steps import PATIENCE, another_process, in_threads
from tests.support.processes import ROLES, do_anything, holds_what_was_logged, models, started, whole

# sweeps


def sweeper(pipe: Connection, number: int, database: Any, roles: tuple[str, ...]) -> None:
    kind, name, params = database
    db = kind(name, **params)
    Task, _ = models(db, roles)
    Task.xq.count()
    pipe.send(None)
    pipe.recv()
    pipe.send(Task.xq.sweep())
    db.close()


def test_processes_that_sweep_at_once_move_each_due_row_once(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(3_500)], delay=0)
    shared_db.close()
    with started(shared_db, sweeper, ROLES["side table"]) as (*workers, _):
        for _, pipe in workers:
            assert pipe.poll(PATIENCE)
            pipe.recv()
        for _, pipe in workers:
            pipe.send(None)
        moves = []
        for process, pipe in workers:
            assert pipe.poll(PATIENCE)
            moves.append(pipe.recv())
            process.join(PATIENCE)
            assert process.exitcode == 0
    assert sum(moves) == 3_500
    assert Task.xq.stats().transition == {"X-W": 3_500, "W-R": 3_500}
    assert Task.xq.check() == []


# threads


def test_threads_that_do_anything_at_once_lose_nothing_and_take_nothing_twice(shared_db):
    Task, Log = models(shared_db, ROLES["role"], create=True)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Any] = []
        for _ in range(80):
            whole(Task, lambda held: do_anything(Task, Log, rng, str(seed), held), mine)

    shared_db.close()
    in_threads(shared_db, *(lambda seed=seed: work(seed) for seed in range(6)))
    holds_what_was_logged(Task, Log)


def test_threads_that_take_without_a_transaction_never_share_a_task(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(300)])
    shared_db.close()

    def work() -> list[int]:
        found = []
        while (task := Task.take()) is not None:
            found.append(task.id)
            task.ack()
        return found

    taken = in_threads(shared_db, *[work] * 6)
    assert sorted(key for keys in taken for key in keys) == list(range(1, 301))
    assert Task.xq.stats().transition == {"X-R": 300, "R-T": 300, "T-X": 300}


def test_threads_that_sweep_at_once_move_each_due_row_once(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(2_500)], delay=0)
    shared_db.close()
    assert sum(in_threads(shared_db, *[Task.xq.sweep] * 6)) == 2_500
    assert Task.xq.stats().transition == {"X-W": 2_500, "W-R": 2_500}


def test_takes_of_two_processes_in_one_session_are_told_apart(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.put({})
    with Task.xq.session() as session:
        first = Task.take()
        first.release()

        def child() -> Any:
            with Task.xq.session(session.uuid):
                yield Task.take().id
                yield None

        with another_process(shared_db, child) as other:
            assert next(other) == first.id
            with pytest.raises(xq.NotOwner):
                first.ack()
            assert Task.ack(first.id).id == first.id  # the session holds it, and a key is checked by session
            next(other)
