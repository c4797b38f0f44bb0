"""Threads and processes that pass each other at the worst moment, which is brought about on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import Work, another_process, eventually, is_exact, isolate, state, until_one_waits_for_a_lock
from xq.adapters.peewee.connections import database_of
from xq.database.sessions import Session, Sessions


def test_a_task_taken_by_a_session_that_ends_meanwhile_is_given_back(make, monkeypatch):
    token = Sessions.token

    def makes_it_and_ends(self: Sessions, session: Session, *of: Any) -> str:
        made = token(self, session, *of)
        monkeypatch.undo()
        session.close()
        return made

    Task = make()
    put = Task.put(task())
    monkeypatch.setattr(Sessions, "token", makes_it_and_ends)
    with Task.xq.session(), pytest.raises(xq.UnknownSession):
        Task.take()
    assert state(Task, put) == "R"
    assert Task.take().ack()


def test_the_first_take_of_a_process_finds_what_a_dead_one_held(make_live):
    Task = make_live()
    put = Task.put(task())

    def child() -> Any:
        yield Task.take().id
        yield database_of(make_live.db).sessions.own().uuid

    with another_process(make_live.db, child) as other:
        assert next(other) == put.id
        proof = database_of(make_live.db).find_liveness()
        assert proof is not None
        eventually(proof.renew)  # beside a new lock file nobody is taken for dead
        name = next(other)
        other.kill()
        eventually(lambda: proof.gone([name]))  # a server hears of it a little later
    assert Task.take().id == put.id


ON_SERVERS = pytest.mark.parametrize("shared_db", SERVERS, indirect=True)  # where writers are side by side


@ON_SERVERS
@pytest.mark.parametrize("finish", ["ack", "release", "ack_many"])
def test_who_waits_for_a_task_that_the_application_changes_and_leaves_taken_finishes_it(make_live, finish):
    Task = make_live()
    Task.xq.put_many(tasks(2))
    mine = Task.xq.take_many(2)
    with make_live.db.atomic():
        make_live.db.execute_sql("UPDATE task SET name = 'theirs'")
        late = Work(make_live.db, lambda: getattr(Task.xq, finish)(mine[:1] if finish == "ack_many" else mine[0]))
        until_one_waits_for_a_lock(make_live.db)
    late.result()
    assert Task.select().count() == (2 if finish == "release" else 1)
    assert is_exact(Task)


@ON_SERVERS
def test_a_run_until_empty_waits_for_a_transaction_that_fires_what_is_due(make_shared):
    Task = make_shared({"keep": True}, worker=lambda task: None)
    Task.xq.every(60, task())
    Task.xq.clock.tick(60)
    with make_shared.db.atomic():
        assert Task.xq.sweep() == 1
        late = Work(make_shared.db, lambda: Task.xq.run(until_empty=True))
        until_one_waits_for_a_lock(make_shared.db)
    late.result()
    assert Task.xq.count("D") == 1


@ON_SERVERS
@pytest.mark.parametrize(
    ("level", "finish"),
    [
        ("READ COMMITTED", "ack"),
        ("READ COMMITTED", "release"),
        ("REPEATABLE READ", "ack"),
        ("SERIALIZABLE", "release"),
    ],
)
def test_who_waits_for_a_task_that_is_taken_away_and_again_does_not_finish_it(make_live, level, finish):
    isolate(make_live.db, level)
    Task = make_live()
    put = Task.put(task())
    mine = Task.take()
    with Task.xq.session():
        with make_live.db.atomic():
            Task.xq.snatch(put)
            theirs = Task.take()
            late = Work(make_live.db, lambda: getattr(Task, finish)(mine))
            until_one_waits_for_a_lock(make_live.db)
        with pytest.raises(xq.NotOwner):
            late.result()
        assert state(Task, put) == "T"
        assert theirs.ack().id == put.id
    assert is_exact(Task)


KILLS: dict[str, Callable[[Any, list[Any]], int]] = {
    "kill_many": lambda Task, members: len(Task.xq.kill_many(members)),
    "group.kill": lambda Task, members: Task.xq.group("import").kill(),
    "act": lambda Task, members: Task.xq.act("kill", "group:import").run().done,
}


def group_of(Task: Any) -> tuple[list[Any], list[Any]]:
    """The members of a group, of which the first two are taken, and these."""
    with Task.xq.group("import", then=task(name="report")) as group:
        members = group.put_many(tasks(4))
    return members, Task.xq.take_many(2)


@ON_SERVERS
@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_of_several_tasks_kills_those_too_that_move_while_it_waits_for_them(make_live, kill):
    Task = make_live({"buried": True, "groups": True})
    members, (first, second) = group_of(Task)
    with make_live.db.atomic():
        assert Task.take().id == members[2].id
        Task.release(first)
        Task.bury(second)
        late = Work(make_live.db, lambda: KILLS[kill](Task, members))
        until_one_waits_for_a_lock(make_live.db)
    assert late.result() == 4
    assert Task.xq.group("import").done
    assert Task.take().name == "report"
    assert is_exact(Task)


@ON_SERVERS
def test_a_group_is_killed_as_it_is_now_in_a_transaction_with_an_older_snapshot(make_live):
    Task = make_live({"buried": True, "groups": True})
    _, (first, second) = group_of(Task)

    def change() -> None:
        Task.xq.snatch(first)
        Task.xq.snatch(second)
        Task.xq.group("import").put(task())

    with make_live.db.atomic():
        assert Task.select().count() == 4
        Work(make_live.db, change).result()
        assert Task.xq.group("import").kill() == 5
    assert is_exact(Task)


@ON_SERVERS
@pytest.mark.parametrize("act", ["cancel", "kill"])
def test_an_operation_leaves_alone_what_leaves_the_states_of_its_filter_meanwhile(make_live, act):
    Task = make_live()
    Task.xq.put_many(tasks(3))
    with make_live.db.atomic():
        mine = Task.take()
        late = Work(make_live.db, lambda: Task.xq.act(act, "state:ready").run())
        until_one_waits_for_a_lock(make_live.db)
    assert (late.result().done, late.result().skipped) == (2, 1)
    assert mine.ack()


AT_EACH_LEVEL = pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])


@ON_SERVERS
@AT_EACH_LEVEL
@pytest.mark.parametrize("features", [{}, {"keep": True}])
@pytest.mark.parametrize("several", [False, True])
def test_a_task_that_is_put_after_one_that_ends_meanwhile_is_released(make_live, level, features, several):
    isolate(make_live.db, level)
    Task = make_live({"after": True, **features})
    parents = Task.xq.put_many(tasks(1 + several))
    first, *others = Task.xq.take_many(2)
    with make_live.db.atomic():
        child = Task.xq.put(task(), after=parents)
        late = Work(make_live.db, lambda: Task.xq.ack(first))
        until_one_waits_for_a_lock(make_live.db)
    late.result()
    Task.xq.ack_many(others)
    assert state(Task, child) == "R"


@ON_SERVERS
@AT_EACH_LEVEL
def test_two_last_ends_at_once_release_the_dependant_and_put_what_follows_the_group(make_live, level):
    isolate(make_live.db, level)
    Task = make_live({"after": True, "groups": True, "keep": True})
    Task.xq.parts.maintenance.stop_maintenance()
    with Task.xq.group("import", then=task(name="report")) as group:
        members = group.put_many(tasks(2))
    child = Task.xq.put(task(name="child"), after=members)
    one, other = Task.xq.take_many(2)
    with make_live.db.atomic():
        Task.xq.ack(one)
        late = Work(make_live.db, lambda: Task.xq.ack(other))
        until_one_waits_for_a_lock(make_live.db) if is_postgres(Task) else late.result()
    late.result()
    if is_postgres(Task) and level == "REPEATABLE READ":
        Task.xq.sweep()  # each has a snapshot without the other's end
    assert (group.done, state(Task, child)) == (True, "R")
    assert sorted(each.name for each in Task.xq.by_state("R")) == ["child", "report"]


def is_postgres(Task: Any) -> bool:
    return bool(Task.xq.parts.store.engine == "postgres")
