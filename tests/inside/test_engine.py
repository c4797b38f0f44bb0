"""What comes between a take and its task, what a process keeps of its calls, and questions to the database itself."""

from __future__ import annotations

import gc
import itertools
import linecache
import logging
import re
from contextlib import closing, suppress
from copy import copy
from itertools import permutations
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS
from tests.factories import task
from tests.steps import elsewhere, eventually, refers, state
from tests.support import questions
from xq.core import values
from xq.engine import binding
from xq.engine.named import ACK
from xq.features.utube import heads as utube_heads
from xq.operators import doctor, inspection


def test_a_pause_is_not_undone_by_a_read_that_began_before_it(make):
    Task = make()
    Task.put(task())
    pauses = Task.xq.parts.takes.pauses
    began = pauses.begin()
    Task.xq.pause()
    pauses.end(began, [])  # the thread that reads them was slow
    assert Task.take() is None
    pauses.end(pauses.begin(), [])
    assert Task.take().id == 1


def test_the_writes_that_the_guard_lets_through_are_logged_once(make, caplog):
    Task = make({"keep": True, "guard": "log"})
    Task.put(task())
    Task.take().ack()
    look = Task.xq.parts.maintenance.log_writes
    with caplog.at_level(logging.WARNING, "xq"):
        look()
        Task.update(status="R").execute()
        assert caplog.messages == []
        look()
        look()
    assert caplog.messages == ["task: 1 task went from Done to Ready by other programs (feature guard)"]


def test_a_token_with_a_dash_fits_into_64_characters_after_any_number_of_takes(make, monkeypatch):
    monkeypatch.setattr("xq.database.sessions._takes", itertools.count(2**62 - 1))
    Task = make(roles=("owner",))
    Task.put(task())
    assert len(Task.take().owner) == 63


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_a_take_whose_group_head_another_connection_refreshes_looks_again(make_shared, monkeypatch):
    Task = make_shared({"utube": True}, roles=("utube", "tube"))
    Task.put({"utube": "a", "tube": "t"})
    heads = Task.xq.parts.executor.dialect.heads.table
    waited = list[float]()
    assert Task.take(tube="another") is None  # which refreshes its head
    with closing(copy(make_shared.db)) as other:
        other._state = type(other._state)()
        other.connect()
        with other.atomic():
            other.execute_sql(f"SELECT * FROM {heads} FOR UPDATE").fetchall()

            def step(seconds: float) -> None:
                waited.append(seconds)
                if len(waited) == 3:
                    other.rollback()

            monkeypatch.setattr("xq.engine.take.time.sleep", step)
            assert Task.take(tube="another") is None
            assert not waited  # since the head has no task of that tube
            assert Task.take(tube="t").utube == "a"
    assert len(waited) == 3


def heads_of(Task: Any) -> set[str]:
    found = Task._meta.database.execute_sql(f"SELECT utube FROM {Task.xq.parts.executor.dialect.heads.table}")
    return {str(utube) for (utube,) in found.fetchall()}


def test_an_empty_utube_is_remembered_until_each_with_tasks_was_served(make, monkeypatch):
    Task = make({"utube": {"n": 1, "fair": True}}, roles=("utube",))
    Task.xq.put_many([{"utube": utube} for utube in "abbcd"])

    def taken(n: int) -> list[str]:
        return [task.ack().utube for task in (Task.take() for _ in range(n))]

    assert taken(4) == ["a", "b", "c", "d"]
    Task.xq.sweep()
    assert len(heads_of(Task)) == 3, "b has been served since a was"
    Task.put({"utube": "b"})
    assert taken(1) == ["b"]
    held = Task.take()
    assert held.utube == "b"
    Task.xq.sweep()
    assert len(heads_of(Task)) == 1, "and since the others were"
    Task.xq.put_many([{"utube": utube} for utube in "cdef"])
    assert taken(4) == ["c", "d", "e", "f"]
    monkeypatch.setattr(utube_heads, "TURNS", 2)
    Task.xq.sweep()
    assert len(heads_of(Task)) == 3, "two, and that of b"
    held.ack()
    Task.xq.sweep()
    assert heads_of(Task) == set()
    assert Task.xq.check() == []


class Heard:
    """A listener, which needs the changes of this process."""

    anybody = True

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, int]] = []

    def changed(self, source: str, target: str, rows: Any) -> None:
        self.changes.append((source, target, len(rows)))


def test_a_listener_is_notified_of_each_ack_of_a_worker_that_takes_the_next_task_with_it(make_shared):
    Task, heard = make_shared({}), Heard()
    Task.xq.put_many([{}] * 3)
    Task.xq.parts.observers.listen(heard)
    Task.xq.worker(lambda task: None)
    Task.xq.run(until_empty=True)
    assert sorted(heard.changes) == [("R", "T", 1)] * 3 + [("T", "X", 1)] * 3


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_an_ack_that_is_sent_alone_since_the_take_sends_nothing_leaves_no_transaction_open(make_shared):
    Task = make_shared()
    refers(Task, Task.put(task()))
    moves, store = Task.xq.parts.named, Task.xq.parts.store
    taken = values.Taken(*moves.tasks.identify(Task.take()))
    with pytest.raises(pw.IntegrityError):
        moves.ack_those([(taken, ACK)], list)
    assert not store.in_transaction()
    assert elsewhere(make_shared.db, lambda: Task.xq.release(1)).status == "R"


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_an_ack_whose_take_is_rolled_back_has_no_rows(make_shared):
    Task = make_shared()
    Task.put(task())
    moves = Task.xq.parts.named
    taken = values.Taken(*moves.tasks.identify(Task.take()))

    def take() -> None:
        with suppress(ZeroDivisionError):
            moves.executor.transaction(lambda: 1 / 0)

    acked, _ = moves.ack_those([(taken, ACK)], take)
    assert (acked, state(Task, 1)) == ([], "T")


def test_a_put_finds_room_though_the_task_that_had_its_value_ends_before_it_is_looked_for(make, monkeypatch):
    Task = make({"unique": True, "limit": 1}, roles=("unique",))
    there, inserts = Task.put({"job": "a"}), Task.xq.parts.inserts
    look = inserts._holders

    def late(*new):
        monkeypatch.setattr(inserts, "_holders", look)
        Task.kill(there.id)
        return look(*new)

    monkeypatch.setattr(inserts, "_holders", late)
    Task.put({"job": "a"}, on_conflict="skip")
    assert Task.xq.count() == 1


VALUES = {"name": "a", "size": 1, "tube": "b", "utube": "c", "priority": 2}


def generated() -> int:
    gc.collect()
    return sum(file.startswith("<xq ") for file in linecache.cache)


def test_tasks_of_ever_other_fields_and_numbers_leave_no_more_than_a_bound(make, monkeypatch):
    monkeypatch.setattr(values, "SHAPES", 10)
    monkeypatch.setattr(binding, "KEPT", 20)
    Task = make(roles=("priority",))
    orders = list(permutations(VALUES, 3))
    for n in (2, 3, 4, 5):
        before = generated() if n > 2 else float("inf")
        for order in orders:
            Task.xq.put_many([{name: VALUES[name] for name in order}] * n)
        assert generated() < before + len(orders)
    assert len(Task.xq.parts.tasks._shapes) <= 10
    assert len(Task.xq.parts.executor.binding.compiled) <= 20


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # MariaDB shows them to those with PROCESS
def test_doctor_finds_a_transaction_that_stays_open(make_live, monkeypatch):
    Task, db = make_live(), make_live.db
    Task.put(task())
    monkeypatch.setattr(doctor, "LONG", 0.0)

    def found() -> list[Any]:
        return [each for each in Task.xq.doctor() if "has a transaction open for" in each.what]

    other = type(db)(db.database, **db.connect_params)
    with other.connection_context(), other.atomic():
        other.execute_sql("UPDATE task SET name = 'z'")
        told = r"process \d+ of \w+ has a .* m?s, and holds the oldest snapshot\nend it \(SELECT pg_terminate_backend.*"
        assert re.fullmatch(told, "\n".join(eventually(found)[0]))
    assert eventually(lambda: not found())


# the SQL of docs/questions.md


def asked(Task: Any, sql: str) -> tuple[list[str], list[tuple[str, ...]]]:
    cursor = Task._meta.database.cursor()
    cursor.execute(sql)  # without values: drivers would read % as a placeholder
    return [name for name, *_ in cursor.description], questions.told(cursor.fetchall())


def test_each_question_to_a_history_has_the_answer_of_the_document(make_shared):
    Page = make_shared({"keep": True, "history": True}, attributes={"table_name": questions.TABLE})
    History = Page.xq.History
    History.insert_many(questions.history(), [getattr(History, name) for name in questions.COLUMNS]).execute()
    found = questions.questions()
    assert len(found) == 10
    for title, (sql, names, answers) in found.items():
        assert asked(Page, sql) == (names, answers), title


def test_the_time_in_a_state_that_began_before_the_transitions_that_are_read_is_a_bound(make, monkeypatch):
    Task = make({"history": True})
    for seconds in (10, 5):
        Task.put(task())
        Task.xq.clock.tick(seconds)
    Task.take()
    of = Task.xq.parts.doctor
    assert of.times()["R"] == {50: (15.0, True), 99: (15.0, True)}
    monkeypatch.setattr(inspection, "LAST", 2)
    assert of.times()["R"] == {50: (5.0, False), 99: (5.0, False)}
