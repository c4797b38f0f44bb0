"""Who owns a taken task: sessions, and the take that an object comes from."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from subprocess import check_output
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import another_process, bring, elsewhere, eventually, in_threads, is_exact, row, state, transitions

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FINISH = {
    "ack": lambda Task, key: Task.ack(key),
    "release": lambda Task, key: Task.release(key),
    "bury": lambda Task, key: Task.bury(key),
    "touch": lambda Task, key: Task.touch(key, 5),
}


FEATURES = {"buried": True, "keep": True, "ttr": 60}


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=("runat", "attempts"))


@pytest.fixture
def shared(make_live):
    return make_live(FEATURES, roles=("runat", "attempts"))


# sessions


@pytest.mark.parametrize("event", FINISH)
def test_only_the_session_that_took_a_task_may_finish_it(queue, event):
    taken = bring(queue, "T")
    with queue.xq.session():
        with pytest.raises(xq.NotOwner) as refused:
            FINISH[event](queue, taken.id)
        assert refused.value.key == taken.id
        with pytest.raises(xq.NotOwner):
            FINISH[event](queue, taken)
    assert row(queue, taken).__data__ == taken.__data__
    FINISH[event](queue, taken.id)


def test_the_session_that_took_a_task_may_name_it_in_any_way(queue):
    put = queue.xq.put_many(tasks(4))
    keys = [taken.id for taken in queue.xq.take_many(4)]
    for name in (keys[0], {"id": keys[1], "name": "whatever"}, queue.get_by_id(keys[2]), put[3]):
        assert queue.ack(name).status == "D"


@pytest.mark.parametrize("how", ["left", "left by an error", "closed"])
def test_a_session_gives_its_tasks_back_when_it_is(queue, how):
    mine = bring(queue, "T")
    queue.xq.put_many(tasks(3))
    with suppress(ZeroDivisionError), queue.xq.session() as session:
        taken = queue.xq.take_many(3)
        assert {holder for _, holder, _ in queue.xq.taken()} > {session.uuid}
        if how == "left by an error":
            raise ZeroDivisionError
        if how == "closed":
            session.close()
            assert queue.xq.count("R") == 3
    session.close()  # once more does nothing
    assert queue.xq.count("R") == queue.stats().transition["T-R"] == 3
    assert [key for key, _, _ in queue.xq.taken()] == [mine.id]
    assert is_exact(queue)
    for refusal in (xq.WrongState, xq.NotOwner):
        with pytest.raises(refusal):
            taken[0].ack()
        queue.take()
    with pytest.raises(xq.UnknownSession), session:
        pass


def test_more_than_a_batch_of_tasks_is_given_back(queue):
    queue.xq.put_many(tasks(1500))
    with queue.xq.session():
        queue.xq.take_many(1500)
    assert queue.xq.count("R") == 1500


def test_the_session_entered_last_is_the_current_one(queue):
    queue.xq.put_many(tasks(3))
    with queue.xq.session() as outer:
        first = queue.take()
        with queue.xq.session() as inner:
            second = queue.take()
            with pytest.raises(xq.NotOwner):
                queue.ack(first.id)
        assert state(queue, second) == "R"
        with outer:
            queue.touch(first.id, 5)
        assert state(queue, first) == "T", "it is left with the last"
        assert queue.ack(first.id).status == "D"
    assert outer.uuid != inner.uuid


def test_a_session_is_shared_by_the_queues_of_a_database(make):
    One, Two = make(), make(model=make.model(table_name="other"))
    One.put(task())
    Two.put(task())
    with One.xq.session() as session:
        assert One.take()
        assert Two.take()
        assert One.xq.taken()[0][1] == Two.xq.taken()[0][1] == session.uuid
        assert Two.xq.session(session.uuid) is session
    assert (One.xq.count("R"), Two.xq.count("R")) == (1, 1)


# joining


def test_a_session_is_joined_by_its_uuid(queue):
    queue.put(task())
    with queue.xq.session() as session:
        taken = queue.take()
        with queue.xq.session(session.uuid):
            assert queue.touch(taken.id, 5)
        assert state(queue, taken) == "T", "the outer with was not left yet"
        with queue.xq.session(uuid.UUID(session.uuid)):
            assert queue.ack(taken).status == "D"


def test_a_closed_session_takes_nothing_and_stays_closed(queue):
    queue.put(task())
    with queue.xq.session() as session:
        session.close()
        with pytest.raises(xq.UnknownSession):
            queue.take()
        assert queue.xq.sessions() == []
    assert queue.xq.count("R") == 1
    for name in (session.uuid, str(uuid.uuid4())):
        with pytest.raises(xq.UnknownSession, match=name) as unknown:
            queue.xq.session(name)
        assert unknown.value.uuid == name


def test_a_session_is_current_in_the_thread_that_entered_it_only(make_shared):
    Task = make_shared(FEATURES, roles=("runat",))
    Task.put(task())
    with Task.xq.session() as session:
        taken = Task.take()

        def another() -> Any:
            for name in (taken.id, taken):
                with pytest.raises(xq.NotOwner):
                    Task.ack(name)
            with Task.xq.session(session.uuid):
                return Task.touch(taken.id, 5)

        assert elsewhere(make_shared.db, another).id == taken.id
        assert taken.ack().status == "D", "this thread had not left the session yet"


def test_a_session_left_in_another_thread_than_it_was_entered_in_is_closed(shared):
    put = shared.put(task())
    session = shared.xq.session()

    def work():
        with session:
            yield shared.take()

    running = work()
    assert next(running).id == put.id
    in_threads(shared._meta.database, running.close)
    assert session.closed
    assert state(shared, put) == "R"
    assert shared.xq.taken() == []


# takes


@pytest.mark.parametrize("event", FINISH)
def test_an_object_of_an_earlier_take_is_refused_even_in_the_same_session(queue, event):
    stale = bring(queue, "T")
    queue.xq.clock.tick(60)
    fresh = queue.take()
    with pytest.raises(xq.NotOwner) as refused:
        FINISH[event](queue, stale)
    assert refused.value.key == stale.id
    assert "its ttr has passed: let it go, or give it a longer ttr" in str(refused.value)
    assert row(queue, stale).__data__ == fresh.__data__
    assert FINISH[event](queue, stale.id).id == stale.id, "a key means the take that this session holds now"


def test_an_object_is_refused_after_it_was_released_and_taken_again_at_the_same_moment(queue):
    taken = bring(queue, "T")
    objects = [taken, taken.touch(5)]
    taken.release()
    for refusal in (xq.WrongState, xq.NotOwner):
        for each in objects:
            with pytest.raises(refusal):
                each.ack()
        queue.take()
    assert queue.xq.count("T") == 1


# other writers


def test_a_row_that_plain_sql_took_is_nobodys(queue):
    put = queue.put(task())
    queue.update(status="T").execute()
    with pytest.raises(xq.NotOwner) as refused:
        queue.ack(put.id)
    assert refused.value.owner is None
    assert queue.xq.taken() == [(put.id, None, None)]
    assert queue.xq.snatch(put.id).status == "R"


def test_a_task_whose_owner_another_program_has_emptied_is_nobodys(make):
    Task = make(FEATURES, roles=("runat", "owner"))
    foreign = [bring(Task, "T"), bring(Task, "T")]
    Task.update(owner="").execute()
    with Task.xq.session():
        for call in (lambda: Task.ack(foreign[0]), lambda: Task.xq.ack_many(foreign)):
            with pytest.raises(xq.NotOwner):
                call()
    assert Task.xq.count("T") == 2


def test_a_key_used_again_has_no_owner_left_over(make):
    Task = make(FEATURES)
    stale = bring(Task, "T")
    Task.delete().execute()
    Task.create(id=stale.id, status="T")
    with pytest.raises(xq.NotOwner):
        stale.ack()


# not_check_session


def test_without_the_check_anyone_may_finish_a_taken_task(make):
    Task = make(FEATURES | {"not_check_session": True}, roles=("runat",))
    stale = Task.put(task())
    with pytest.raises(xq.WrongState):
        Task.ack(stale)
    for event in FINISH:
        Task.xq.truncate()
        stale = bring(Task, "T")
        Task.xq.clock.tick(60)
        taken = Task.take()
        with Task.xq.session():
            assert FINISH[event](Task, taken.id).id == taken.id
        if event == "touch":
            assert stale.ack().status == "D"


def test_a_task_that_anyone_may_finish_stays_taken_until_its_ttr_however_its_session_ends(make_live):
    Task = make_live(FEATURES | {"not_check_session": True})
    Task.xq.put_many(tasks(5))

    def take() -> Any:
        with Task.xq.session() as session:
            yield session.uuid, Task.take().id

    with another_process(make_live.db, take) as exits, another_process(make_live.db, take) as dies:
        ended = [next(exits)[0], next(dies)[0]]
        dies.kill()
    for how in ("left", "closed", "postponed"):
        Task.xq.configure(session_ttr=0.2 if how == "postponed" else None)
        with Task.xq.session() as session:
            Task.take()
            if how == "closed":
                session.close()
        ended.append(session.uuid)
    eventually(lambda: not {*ended} & {*dict(Task.xq.sessions())})
    assert Task.xq.count("T") == 5
    assert Task.xq.release_all() == 5
    with Task.xq.session():
        taken = Task.take(ttr=0.5).id
    eventually(lambda: Task.xq.peek(taken).status == "R")
    assert is_exact(Task)


# threads and processes


def test_threads_that_fight_for_one_task_have_one_winner(shared):
    for _ in range(5):
        taken = bring(shared, "T")

        def work(taken=taken):
            try:
                return taken.ack().status
            except xq.WrongState as error:
                return error.state

        before = transitions(shared)
        assert in_threads(shared._meta.database, *[work] * 4) == ["D"] * 4
        assert transitions(shared) - before == {"T-D": 1}


# who works


def test_processes_name_each_session_and_count_what_it_holds_of_the_queue(make_live):
    Task, Other = make_live(), make_live(model=make_live.model(table_name="other"))
    Task.xq.put_many(tasks(3))
    Other.put({})
    Task.xq.take_many(2)
    Other.take()
    ((session, since),) = Task.xq.sessions()
    (held,) = Task.xq.processes()
    assert held._fields == ("session", "host", "pid", "program", "since", "tasks", "oldest", "gone")
    assert (held.session, held.since, held.host, held.pid) == (session, since, socket.gethostname(), os.getpid())
    assert (held.tasks, held.oldest, held.gone) == (2, min(at for _, _, at in Task.xq.taken()), False)
    assert held.name == f"pid {os.getpid()} on host {socket.gethostname()} ({held.program})"
    assert [each.tasks for each in Other.xq.processes()] == [1]
    with Task.xq.session() as session:
        (idle,) = [each for each in Task.xq.processes() if each.session == session.uuid]
        assert (idle.tasks, idle.oldest, idle.pid) == (0, None, os.getpid())


def test_a_session_is_named_by_the_process_that_has_it(make_live):
    Task = make_live()
    Task.xq.configure(session_ttr=600)
    Task.put({})

    def script():
        with Task.xq.session() as session:
            Task.take()
            yield session.uuid, os.getpid()
            yield

    with another_process(make_live.db, script) as other:
        session, pid = next(other)
        (held,) = Task.xq.processes()
        assert (held.session, held.pid, held.tasks, held.gone) == (session, pid, 1, False)
        (why, *_) = Task.xq.why(1)
        assert why.startswith(f"it is taken by the session {session} for ")
        assert why.endswith(f": {held.name}")
        other.kill()
        assert eventually(lambda: [each.pid for each in Task.xq.processes() if each.gone]) == [pid]
        with Task.xq.session(session):
            assert [each.pid for each in Task.xq.processes() if each.session == session] == [os.getpid()]


PROGRAM = """
import peewee as pw, xq

class Page(xq.Task):
    class Meta:
        database = pw.SqliteDatabase("app.db")

xq.upgrade(Page)
Page._meta.database.create_tables([Page])
Page.put({})
Page.take()
print(Page.xq.processes()[0].program)
"""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["crawl.py", "--password=hunter2"], "crawl.py"),
        (["-m", "crawl", "hunter2"], "-m crawl"),
        (["-c", "import crawl", "hunter2"], "python"),
    ],
)
def test_a_program_is_named_without_its_arguments(tmp_path, command, program):
    (tmp_path / "crawl.py").write_text(PROGRAM)
    path = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": os.environ["PATH"]}
    assert check_output([sys.executable, *command], cwd=tmp_path, env=path, text=True).strip() == program
