"""Faults that were found once: what happens now, on every database."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, bring, in_threads, is_exact, row, state

FIELDS = {"status": "status", "runat": "runat"}

HUGE = 10**5000  # so long that Python refuses to write it down


# sessions


def test_a_child_forked_within_a_session_is_in_no_session_of_its_parents(make_live):
    Task = make_live({"keep": True})
    Task.xq.put_many(tasks(2))
    with ExitStack() as stack:
        session = stack.enter_context(Task.xq.session())
        taken = Task.take()

        def child():
            other = Task.take()
            holders = {key: holder for key, holder, _ in Task.xq.taken()}
            with pytest.raises(xq.NotOwner):
                Task.ack(taken.id)
            stack.close()
            yield holders[other.id], holders[taken.id], Task.xq.stats().counts["T"]

        with another_process(make_live.db, child) as other:
            theirs, mine, held = next(other)
        assert theirs != session.uuid
        assert (mine, held) == (session.uuid, 2)
        assert session.uuid in dict(Task.xq.sessions())
        assert Task.ack(taken).status == "D"


def test_a_session_that_threads_enter_together_is_closed_when_the_last_leaves(make_live):
    Task = make_live()
    several = [Task.xq.session() for _ in range(20)]
    threads = 6
    together = threading.Barrier(threads)

    def work():
        found = []
        for session in several:
            together.wait(PATIENCE)
            with session:
                found.append(session.closed)
                together.wait(PATIENCE)
                found.append(session.closed)
            together.wait(PATIENCE)
            found.append(not session.closed)
        return found

    assert not any(any(found) for found in in_threads(make_live.db, *[work] * threads))
    assert not {session.uuid for session in several} & {uuid for uuid, _ in Task.xq.sessions()}


def test_a_session_whose_close_was_rolled_back_may_be_closed_again(make):
    Task = make()
    put = Task.put(task())
    with ExitStack() as stack:
        session = stack.enter_context(Task.xq.session())
        Task.take()
        with make.db.atomic() as transaction:
            session.close()
            assert state(Task, put) == "R"
            transaction.rollback()
        assert state(Task, put) == "T"
        session.close()
        assert state(Task, put) == "R"
    assert session.uuid not in dict(Task.xq.sessions())


def test_a_session_left_in_another_thread_than_it_was_entered_in_is_closed(make_live):
    Task = make_live()
    put = Task.put(task())
    session = Task.xq.session()

    def work():
        with session:
            yield Task.take()

    running = work()
    assert next(running).id == put.id
    in_threads(make_live.db, running.close)
    assert session.closed
    assert state(Task, put) == "R"
    assert Task.xq.taken() == []


def test_a_session_is_known_again_after_uninstall_and_install(make):
    Task = make({"keep": True})
    bring(Task, "D")
    Task.xq.uninstall()
    Task.xq.install()
    assert Task.xq.sessions() == []
    Task.put(task())
    taken = Task.take()
    ((_, holder, _),) = Task.xq.taken()
    assert [uuid for uuid, _ in Task.xq.sessions()] == [holder]
    assert Task.xq.session(holder).uuid == holder
    assert Task.ack(taken).status == "D"


# keys


class ToTheMicrosecond:
    """For a field of moments, which on MariaDB has whole seconds unless it is declared so."""

    def ddl_datatype(self, ctx: Any) -> Any:
        found = super().ddl_datatype(ctx)  # type: ignore[misc]
        return pw.SQL(f"{found.sql}(6)") if found.sql in ("DATETIME", "TIME") else found


class Moment(ToTheMicrosecond, pw.DateTimeField):
    """A date and a time."""


class Hour(ToTheMicrosecond, pw.TimeField):
    """A time."""


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "date": (lambda: pw.DateField(primary_key=True), [date(2024, 2, day) for day in (29, 1, 15)]),
    "time": (lambda: Hour(primary_key=True), [time(23, 5), time(1, 0, 0, 5), time(12)]),
    "date-time": (
        lambda: Moment(primary_key=True),
        [datetime(2024, 2, 29, 23), datetime(2024, 2, 1, 0, 0, 0, 5), datetime(2024, 2, 15)],
    ),
    "decimal": (
        lambda: pw.DecimalField(max_digits=8, decimal_places=3, primary_key=True),
        [Decimal("10.500"), Decimal("9.125"), Decimal("10")],
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_batch_of_tasks_with_a_key_of_any_kind_keeps_its_order(make, kind):
    field, keys = KEYS[kind]
    Task = make({"keep": True}, key=field())
    put = Task.xq.put_many([task(id=key) for key in keys])
    assert [each.id for each in put] == keys
    assert {taken.id for taken in Task.xq.take_many(3)} == set(keys)
    assert {key for key, _, _ in Task.xq.taken()} == set(keys)
    assert [(each.id, each.status) for each in Task.xq.ack_many(keys)] == [(key, "D") for key in keys]
    assert is_exact(Task)


# definitions


def test_a_definition_that_lacks_states_with_tasks_in_them_is_not_installed(make):
    first = make({"keep": True, "buried": True})
    bring(first, "D")
    bring(first, "D")
    bring(first, "B")
    second = make.model()
    xq.upgrade(second, FIELDS, clock=make.clock)
    for install in (second.xq.install, lambda: make.db.create_tables([second])):
        with pytest.raises(xq.ConfigurationError, match=r"1 buried \(B\), 2 done \(D\)"):
            install()
    assert first.xq.check() == []
    first.put(task())
    assert first.take().ack().status == "D"
    assert is_exact(first)


def test_a_definition_that_cannot_be_installed_leaves_the_one_that_is(make):
    first = make({"keep": True}, roles=("runat",))
    for _ in range(2):
        bring(first, "D", task(job="a"))
    first.update(status="R").execute()
    second = make.model()
    xq.upgrade(second, {**FIELDS, "unique": "job"}, {"unique": True}, clock=make.clock)
    with pytest.raises(xq.ConfigurationError, match="twice"):
        second.xq.install()
    assert first.take().ack().status == "D"
    assert is_exact(first)


def test_a_definition_that_lacks_states_without_tasks_is_installed(make):
    first = make({"keep": True})
    bring(first, "D").delete_instance()
    second = make.model()
    xq.upgrade(second, FIELDS, clock=make.clock)
    second.xq.install()
    second.put(task())
    assert second.take()
    assert is_exact(second)


def test_unique_is_not_installed_over_values_that_stand_twice(make):
    model = make.model()
    make.db.create_tables([model])
    model.create(job="a")
    model.create(job="a")
    xq.upgrade(model, {**FIELDS, "unique": "job"}, {"unique": True})
    for install in (model.xq.install, lambda: make.db.create_tables([model])):
        with pytest.raises(xq.ConfigurationError, match="twice"):
            install()
    model.delete().where(model.id == 1).execute()
    model.xq.install()
    assert model.take().job == "a"
    assert is_exact(model)


def test_what_is_missing_is_in_the_error(make):
    Task = make.model()
    make.db.create_tables([Task])
    xq.upgrade(Task, FIELDS)
    with pytest.raises(xq.NotInstalled) as refused:
        Task.put(task())
    assert isinstance(refused.value.missing, tuple)
    assert any("xq_queue is missing" in what for what in refused.value.missing)
    assert all(what in str(refused.value) for what in refused.value.missing)


def test_reconfigure_is_refused_within_a_transaction(make):
    Task = make({"keep": True})
    bring(Task, "D")
    with make.db.atomic():
        with pytest.raises(xq.ConfigurationError, match="transaction"):
            Task.xq.reconfigure({}, move={"D": "X"})
    assert Task.xq.count("D") == 1
    assert Task.xq.check() == []
    Task.xq.reconfigure({}, move={"D": "X"})
    assert Task.xq.count() == 0


# values


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 10**400},
        {"priority": HUGE},
        {"priority": Decimal("sNaN")},
        {"size": HUGE},
        {HUGE: 1},
        {"ttl": HUGE},
    ],
    ids=["long", "huge", "signalling NaN", "huge size", "huge name", "huge ttl"],
)
def test_a_value_that_nothing_holds_is_refused(make, fields):
    Task = make({"ttl": 5}, roles=("runat", "priority", "ttl"))
    with pytest.raises((xq.BadValue, xq.BadType)):
        Task.put({**task(), **fields})
    assert Task.xq.count() == 0


HUGE_CALLS = {
    "delay": lambda Task: Task.put(task(), delay=HUGE),
    "negative delay": lambda Task: Task.put(task(), delay=-HUGE),
    "increment": lambda Task: Task.touch(1, HUGE),
    "negative n": lambda Task: Task.xq.take_many(-HUGE),
    "negative n of dig": lambda Task: Task.dig(n=-HUGE),
    "name of an update": lambda Task: Task.bury(1, update={HUGE: 1}),
    "value of an update": lambda Task: Task.bury(1, update={"size": HUGE}),
    "state": lambda Task: Task.xq.by_state(HUGE),
    "state counted": lambda Task: Task.xq.count(HUGE),
    "target": lambda Task: Task.xq.switch(1, HUGE),
    "event": lambda Task: Task.xq.call(HUGE, 1),
    "session": lambda Task: Task.xq.session(HUGE),
    "key": lambda Task: Task.bury(HUGE),
}


@pytest.mark.parametrize("call", HUGE_CALLS)
def test_a_number_too_long_to_be_written_down_is_refused(make, call):
    Task = make({"delayed": True, "ttr": 60, "buried": True})
    Task.put(task())
    before = Task.take().__data__
    with pytest.raises((xq.BadValue, xq.BadType)):
        HUGE_CALLS[call](Task)
    assert row(Task, 1).__data__ == before


def test_any_number_of_tasks_may_be_asked_for(make):
    Task = make({"buried": True})
    Task.xq.put_many(tasks(2))
    assert len(Task.xq.take_many(HUGE)) == 2
    assert Task.dig(n=HUGE) == []
    assert Task.xq.by_state("T", HUGE)


EXPRESSIONS = {
    "by_state": lambda Task: Task.xq.by_state(Task.status == "R"),
    "count": lambda Task: Task.xq.count(Task.status == "R"),
    "count a field": lambda Task: Task.xq.count(Task.status),
    "switch": lambda Task: Task.xq.switch(1, Task.status),
}


@pytest.mark.parametrize("call", EXPRESSIONS)
def test_an_expression_of_the_query_builder_is_no_state(make, call):
    Task = make()
    Task.put(task())
    with pytest.raises(xq.BadValue):
        EXPRESSIONS[call](Task)
    assert Task.xq.count("R") == 1


# the feature unique

BACK = {
    "dig": ("B", lambda Task, key: Task.dig(key)),
    "restart": ("D", lambda Task, key: Task.xq.restart(key)),
    "switch": ("D", lambda Task, key: Task.xq.switch(key, "R")),
}


@pytest.mark.parametrize("event", BACK)
def test_a_move_that_meets_a_duplicate_is_given_no_advice_about_put(make, event):
    came_from, again = BACK[event]
    Task = make({"unique": True, "buried": True, "keep": True}, roles=("runat", "unique"))
    first = bring(Task, came_from, task(job="a"))
    Task.put(task(job="a"))
    with pytest.raises(xq.Duplicate) as refused:
        again(Task, first.id)
    assert (refused.value.value, refused.value.key) == (None, None)
    assert "on_conflict" not in str(refused.value)
    assert state(Task, first) == came_from


def test_what_the_table_refuses_is_no_duplicate(make):
    attributes = {"jobs": pw.IntegerField(default=0)}  # the name begins as that of the role
    Task = make({"unique": True, "buried": True}, roles=("runat", "unique"), attributes=attributes)
    buried = bring(Task, "B", task(job="a"))
    with pytest.raises(pw.IntegrityError):
        Task.put(task(job="b", jobs=None))
    with pytest.raises(pw.IntegrityError):
        Task.dig(buried.id, update={"jobs": None})
    assert (Task.xq.count(), state(Task, buried)) == (1, "B")


def test_a_task_that_is_replaced_forgets_its_own_time_to_live(make):
    Task = make({"unique": True, "ttl": 10}, roles=("runat", "unique", "ttl"))
    first = Task.put(task(job="a"), ttl=100)
    assert first.runat == Task.xq.clock.now + 100
    again = Task.put(task(job="a"), on_conflict="replace")
    assert (again.id, again.ttl, again.runat) == (first.id, None, Task.xq.clock.now + 10)
    Task.xq.clock.tick(11)
    assert Task.take() is None


def test_a_delay_prolongs_the_life_of_a_task_that_is_released(make):
    Task = make({"lifetime": 100, "delayed": True}, roles=("runat", "deadline"))
    put = bring(Task, "T")
    deadline = put.deadline
    assert Task.release(put, delay=30).deadline == deadline + 30
    Task.xq.clock.tick(110)
    assert Task.take().id == put.id
