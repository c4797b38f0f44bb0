"""Processes that do anything and are killed at any moment, and threads: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

import xq
from tests.steps import PATIENCE, another_process, eventually
from tests.support.processes import ROLES, do_anything, give_back, holds_what_was_logged, models, started, whole
from xq.sessions import session as sessions

STEPS = 500  # of all workers together
KILLS = 5


def ready(pipes: list[Any]) -> list[Any]:
    """Those that have something to tell."""
    found = wait(pipes, PATIENCE)
    assert found, "the other processes are stuck"
    return found


def worker(pipe: Connection, seed: int, database: Any, roles: tuple[str, ...]) -> None:
    """Does anything to any task, and tells after each step that it is alive, until it is told to end or is killed."""
    kind, name, params = database
    db = kind(name, **params)
    Task, Log = models(db, roles)
    rng = random.Random(seed)
    me = sessions.of(db).current().uuid
    mine: list[Any] = []

    pipe.send(me)
    while not pipe.poll():
        whole(Task, lambda held: do_anything(Task, Log, rng, me, held), mine)
        pipe.send(None)
    pipe.recv()
    whole(Task, lambda held: give_back(Log, me, held), mine)
    db.close()


@pytest.mark.parametrize("where", ROLES)
def test_killed_processes_lose_nothing_and_take_nothing_twice(shared_db, where):
    Task, Log = models(shared_db, ROLES[where], create=True)
    rng = random.Random(where)
    dead: set[str] = set()
    kills = sorted(rng.sample(range(STEPS // 8, STEPS), KILLS))
    shared_db.close()
    with started(shared_db, worker, ROLES[where]) as (*workers, start):
        alive = {pipe: process for process, pipe in workers}
        names: dict[Any, str] = {}
        for done in range(STEPS):
            for pipe in ready(list(alive)):
                told = pipe.recv()
                names.setdefault(pipe, told)
            if done in kills:
                pipe = rng.choice([pipe for pipe in alive if pipe in names])
                victim = alive.pop(pipe)
                os.kill(victim.pid, signal.SIGKILL)
                victim.join(PATIENCE)
                dead.add(names[pipe])
                eventually(lambda: not {session for _, session, _ in Task.xq.taken()} & dead)
                process, pipe = start(done)
                alive[pipe] = process
        for pipe in alive:
            pipe.send(None)
        for pipe, process in alive.items():
            with suppress(EOFError):
                while ready([pipe]):
                    pipe.recv()
            process.join(PATIENCE)
            assert process.exitcode == 0
    holds_what_was_logged(Task, Log, dead)


# fork


def test_a_fork_after_use_has_a_session_of_its_own(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{}, {}])
    ours = Task.take()
    me = sessions.of(shared_db).current().uuid

    def child() -> Any:
        theirs = Task.take()
        holders = {key: session for key, session, _ in Task.xq.taken()}
        refused = []
        for named in (ours, ours.id):
            try:
                Task.ack(named)
            except xq.NotOwner:
                refused.append(True)
        yield holders[ours.id] == me, holders[theirs.id] == me, refused

    with another_process(shared_db, child) as other:
        assert next(other) == (True, False, [True, True])
    assert Task.xq.peek(ours.id).status == "T"
    assert ours.ack().id == ours.id
