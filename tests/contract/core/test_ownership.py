"""Who owns a taken task: sessions, and the take that an object comes from."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import another_process, begun_anew, bring, in_threads, is_exact, row, state, transitions
from tests.support import ownership as support
from tests.support.ownership import FEATURES

owner, queue = support.owner, support.queue

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FINISH = {
    "ack": lambda Task, key: Task.ack(key),
    "release": lambda Task, key: Task.release(key),
    "bury": lambda Task, key: Task.bury(key),
    "touch": lambda Task, key: Task.touch(key, 5),
}


@pytest.fixture
def shared(make_live, owner):
    return make_live(FEATURES, roles=("runat", "attempts", *owner))


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
    for name in (
        lambda put, taken: taken.id,
        lambda put, taken: {"id": taken.id, "name": "whatever"},
        lambda put, taken: queue.get_by_id(taken.id),
        lambda put, taken: put,
    ):
        put, taken = queue.put(task()), queue.take()
        assert queue.ack(name(put, taken)).id == taken.id


@pytest.mark.parametrize("retval", ["dict", "tuple"])
def test_dicts_and_tuples_are_checked_by_session(make, owner, retval):
    Task = make(FEATURES | {"retval": retval}, roles=("runat", *owner))
    Task.put(task())
    first = Task.take()
    Task.release(first)
    Task.take()
    Task.touch(first, 5)
    with Task.xq.session(), pytest.raises(xq.NotOwner):
        Task.ack(first)
    assert Task.xq.count("T") == 1
    Task.ack(first)
    assert Task.xq.count("D") == 1


def fails(session: Any) -> None:
    raise ZeroDivisionError


ENDS = {
    "it is left": lambda session: None,
    "it is left by an error": fails,
    "it is closed": lambda session: session.close(),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_session_gives_its_tasks_back_when(queue, how):
    mine = bring(queue, "T")
    queue.xq.put_many(tasks(3))
    with suppress(ZeroDivisionError), queue.xq.session() as session:
        taken = queue.xq.take_many(3)
        assert {holder for _, holder, _ in queue.xq.taken()} > {session.uuid}
        ENDS[how](session)
        assert (queue.xq.count("R") == 3) == (how == "it is closed")
    session.close()  # once more does nothing
    assert queue.xq.stats().counts["R"] == 3
    assert queue.stats().transition["T-R"] == 3
    assert [key for key, _, _ in queue.xq.taken()] == [mine.id]
    assert is_exact(queue)
    for refusal in (xq.WrongState, xq.NotOwner):
        with pytest.raises(refusal):
            taken[0].ack()
        queue.take()
    with pytest.raises(xq.UnknownSession):
        queue.xq.session(session.uuid)
    with pytest.raises(xq.UnknownSession), session:
        pass


def test_more_than_a_batch_of_tasks_is_given_back(queue):
    queue.xq.put_many(tasks(1500))
    with queue.xq.session():
        queue.xq.take_many(1500)
    assert queue.xq.count("R") == 1500


def test_a_task_that_was_given_back_starts_its_time_to_live_anew(make):
    Task = make({"ttl": 10, "ttr": 60})
    Task.put(task())
    with Task.xq.session():
        Task.take()
        Task.xq.clock.tick(50)
    assert Task.get().runat == Task.xq.clock.now + 10


def test_the_session_entered_last_is_the_current_one(queue):
    queue.xq.put_many(tasks(3))
    with queue.xq.session() as outer:
        first = queue.take()
        with queue.xq.session() as inner:
            second = queue.take()
            with pytest.raises(xq.NotOwner):
                queue.ack(first.id)
        assert state(queue, second) == "R"
        assert queue.ack(first.id).status == "D"
    assert outer.uuid != inner.uuid


def test_a_session_entered_twice_is_left_with_the_last(queue):
    queue.put(task())
    with queue.xq.session() as session:
        with session:
            taken = queue.take()
        assert state(queue, taken) == "T"
        assert queue.ack(taken).status == "D"


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


def test_sessions_tells_who_is_there_and_taken_who_holds_what(queue):
    assert queue.xq.taken() == []
    taken = bring(queue, "T")
    since = queue.xq.clock.now
    queue.xq.clock.tick(5)
    with queue.xq.session() as session:
        second = bring(queue, "T")
        held = {key: (holder, when) for key, holder, when in queue.xq.taken()}
        assert held[second.id] == (session.uuid, since + 5)
        mine, when = held[taken.id]
        assert (mine != session.uuid, when) == (True, since)
        assert queue.xq.sessions() == [(mine, since), (session.uuid, since + 5)]
    assert [uuid for uuid, _ in queue.xq.sessions()] == [mine]


def test_the_session_of_the_process_may_be_closed_and_is_made_anew(queue):
    queue.put(task())
    queue.take()
    ((_, first, _),) = queue.xq.taken()
    queue.xq.session(first).close()
    assert queue.xq.count("R") == 1
    queue.take()
    ((_, second, _),) = queue.xq.taken()
    assert second != first


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


def test_a_session_that_nobody_opened_is_unknown(queue):
    name = str(uuid.uuid4())
    with pytest.raises(xq.UnknownSession, match=name) as unknown:
        queue.xq.session(name)
    assert unknown.value.uuid == name


def test_a_closed_session_takes_nothing_and_stays_closed(queue):
    queue.put(task())
    with queue.xq.session() as session:
        session.close()
        with pytest.raises(xq.UnknownSession):
            queue.take()
        assert queue.xq.sessions() == []
        with pytest.raises(xq.UnknownSession):
            queue.xq.session(session.uuid)
    assert queue.xq.count("R") == 1


# takes


@pytest.mark.parametrize("event", FINISH)
def test_an_object_of_an_earlier_take_is_refused_even_in_the_same_session(queue, event):
    stale = bring(queue, "T")
    queue.xq.clock.tick(60)
    fresh = queue.take()
    with pytest.raises(xq.NotOwner) as refused:
        FINISH[event](queue, stale)
    assert refused.value.key == stale.id
    assert row(queue, stale).__data__ == fresh.__data__
    assert FINISH[event](queue, stale.id).id == stale.id, "a key means the take that this session holds now"


def passes(Task: Any, taken: Any) -> None:
    Task.xq.clock.tick(70)
    Task.xq.sweep()


LOST = {
    "its ttr passed": passes,
    "it was released": lambda Task, taken: taken.release(),
    "it was snatched": lambda Task, taken: Task.xq.snatch(taken.id),
    "plain SQL gave it back": lambda Task, taken: Task.update(status="R").execute(),
}


@pytest.mark.parametrize("how", LOST)
def test_an_object_is_refused_after(queue, how):
    taken = bring(queue, "T")
    objects = [taken, taken.touch(5)]
    LOST[how](queue, taken)
    for each in objects:
        with pytest.raises(xq.WrongState) as wrong:
            each.ack()
        assert wrong.value.state == "R"
    fresh = queue.take()
    for each in objects:
        with pytest.raises(xq.NotOwner):
            each.ack()
    assert fresh.touch(5).ack().status == "D"


def test_tasks_taken_together_are_finished_one_by_one(queue):
    queue.xq.put_many(tasks(3))
    one, two, three = queue.xq.take_many(3)
    two.release()
    again = queue.take()
    with pytest.raises(xq.NotOwner):
        two.ack()
    assert [each.ack().status for each in (one, three, again)] == ["D", "D", "D"]


# other writers


def test_a_row_that_plain_sql_took_is_nobodys(queue):
    put = queue.put(task())
    queue.update(status="T").execute()
    with pytest.raises(xq.NotOwner) as refused:
        queue.ack(put.id)
    assert refused.value.owner is None
    assert queue.xq.taken() == [(put.id, None, None)]
    assert queue.xq.snatch(put.id).status == "R"


def test_a_key_used_again_has_no_owner_left_over(make):
    Task = make(FEATURES)
    stale = bring(Task, "T")
    Task.delete().execute()
    Task.create(id=stale.id, status="T")
    with pytest.raises(xq.NotOwner):
        stale.ack()


# not_check_session


# threads and coroutines


def test_a_session_is_current_in_the_thread_that_entered_it_only(shared):
    db = shared._meta.database
    shared.put(task())
    with shared.xq.session() as session:
        taken = shared.take()

        def elsewhere():
            with pytest.raises(xq.NotOwner):
                shared.ack(taken.id)
            with pytest.raises(xq.NotOwner):
                taken.ack()
            with shared.xq.session(session.uuid):
                return shared.touch(taken.id, 5)

        (touched,) = in_threads(db, elsewhere)
        assert touched.id == taken.id
        assert taken.ack().status == "D", "this thread had not left the session yet"


def test_without_the_check_anyone_may_finish_a_taken_task(make, owner):
    Task = make(FEATURES | {"not_check_session": True}, roles=("runat", *owner))
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


def test_threads_never_take_one_task_twice(shared):
    put = [each.id for each in shared.xq.put_many(tasks(200))]

    def work():
        done = []
        while taken := shared.take():
            done.append(taken.ack().id)
        return done

    done = in_threads(shared._meta.database, *[work] * 4)
    assert sorted(chain(*done)) == put
    assert transitions(shared) == {"X-R": 200, "R-T": 200, "T-D": 200}
    assert is_exact(shared)


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


# processes


def test_a_task_that_another_process_took_is_not_ours(shared):
    put = shared.put(task())

    def script():
        taken = shared.take()
        yield taken.id
        yield taken.ack().status

    with another_process(shared._meta.database, script) as other:
        assert next(other) == put.id
        assert shared.take() is None
        with pytest.raises(xq.NotOwner):
            shared.ack(put.id)
        with pytest.raises(xq.NotOwner):
            put.release()
        assert next(other) == "D"


def test_a_closed_session_gives_back_what_another_process_took_in_it(make_live):
    One, Two = make_live(), make_live(model=make_live.model(table_name="other"))
    One.put(task())

    def script():
        uuid = yield "ready"
        Two.put(task())
        with Two.xq.session(uuid):
            yield One.take().id, Two.take().id

    with another_process(make_live.db, script) as other:
        assert next(other) == "ready"
        with One.xq.session() as session:
            assert other.send(session.uuid) == (1, 1)
            session.close()
            assert (One.get().status, Two.get().status) == ("R", "R")


def test_takes_of_two_processes_in_one_session_are_told_apart(shared):
    shared.put(task())
    with shared.xq.session() as session:
        first = shared.take()
        first.release()

        def child():
            with shared.xq.session(session.uuid):
                yield shared.take().id
                yield

        with another_process(shared._meta.database, child) as other:
            assert next(other) == first.id
            with pytest.raises(xq.NotOwner):
                first.ack()
            assert shared.ack(first.id).id == first.id  # the session holds it, and a key is checked by session
            next(other)


def test_threads_that_sweep_at_once_move_each_due_row_once(make_live):
    Task = make_live({"delayed": True})
    Task.xq.put_many([{} for _ in range(2_500)], delay=0)
    assert sum(in_threads(make_live.db, *[Task.xq.sweep] * 6)) == 2_500
    assert transitions(Task) == {"X-W": 2_500, "W-R": 2_500}


def test_threads_that_do_anything_at_once_lose_nothing_and_take_nothing_twice(shared):
    db, calls = shared._meta.database, ("put", "take", "take", "ack", "release", "bury", "dig")
    logs: list[Counter[str]] = [Counter() for _ in range(6)]

    def call(rng: random.Random, mine: list[Any]) -> tuple[str, list[Any]]:
        """One transaction of the application: the transition that it brought about, and what is held then."""
        held, what = list(mine), rng.choice(calls)
        with db.atomic():
            if what == "put":
                shared.put(task())
                return "X-R", held
            if what == "take":
                taken = shared.xq.take_many(1)
                return "R-T" if taken else "", held + taken
            if what == "dig":
                return "B-R" if shared.dig(n=1) else "", held
            if not held:
                return "", held
            getattr(held.pop(rng.randrange(len(held))), what)()
            return {"ack": "T-D", "release": "T-R", "bury": "T-B"}[what], held

    def work(seed: int) -> list[int]:
        rng, mine = random.Random(seed), list[Any]()
        for _ in range(80):
            moved, mine = begun_anew(shared, partial(call, rng, mine))
            logs[seed][moved] += 1
        return [each.id for each in mine]

    held = in_threads(db, *(lambda seed=seed: work(seed) for seed in range(6)))
    assert transitions(shared) == {each: n for each, n in sum(logs, Counter()).items() if each}
    assert sorted(chain(*held)) == sorted(key for key, _, _ in shared.xq.taken())
    assert is_exact(shared)
