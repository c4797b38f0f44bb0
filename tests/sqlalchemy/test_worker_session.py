"""A worker's function in a session of its own: what it writes and the end of its task are one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tests.steps import conflict
from xq.testing import run_pending
from xq.testing import session as xq_session


def pays(shop: Any, then: Any = lambda order, session: None, **options: Any) -> Any:
    """A worker that pays an order, and then does what the test says."""

    @shop.orders.worker(session=shop.Session, **{"max_attempts": 1, **options})
    def pay(order: Any, session: Any) -> None:
        session.add(shop.Payment(order_id=order.id))
        order.cents += 5
        session.flush()
        then(order, session)

    shop.orders.put({"cents": 1})
    return pay


def test_what_the_function_writes_is_there_with_the_end_of_its_task(shop):
    pays(shop)
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), shop.orders.peek(1).cents) == ("D", [1], 6)


def test_the_task_is_in_the_session_without_a_query(shop):
    statements = list[str]()

    @shop.orders.worker(session=shop.Session)
    def work(order: Any, session: Any) -> None:
        assert order in session
        assert shop.engine.pool.checkedout() == 0
        assert not session.dirty
        assert sa.inspect(order).persistent
        assert (order.cents, order.tries) == (3, 1)

    sa.event.listen(shop.engine, "before_cursor_execute", lambda *event: statements.append(event[2]))
    shop.orders.put({"cents": 3})
    shop.orders.run(until_empty=True)
    assert statements == []  # but xq's own, of which the engine hears nothing
    assert shop.states() == "D"


def test_an_error_rolls_all_back(shop):
    def fail(order: Any, session: Any) -> None:
        raise ValueError("no money")

    pays(shop, fail)
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), shop.orders.peek(1).cents) == ("B", [], 1)
    assert shop.why().startswith("ValueError: no money")


def test_a_conflict_with_another_transaction_is_no_attempt(shop, shared_db):
    tried = list[int]()

    def meet(order: Any, session: Any) -> None:
        tried.append(order.tries)
        if len(tried) < 3:
            conflict(shared_db, lambda sql: session.execute(sa.text(sql)))

    @shop.orders.worker(session=shop.Session, max_attempts=1)
    def pay(order: Any, session: Any) -> None:
        if shop.is_file:
            session.execute(sa.text("BEGIN"))
        meet(order, session)
        session.add(shop.Payment(order_id=order.id))

    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), tried) == ("D", [1], [1, 1, 1])


def test_who_has_lost_the_task_writes_nothing(shop):
    again = list[int]()

    @shop.orders.worker(session=shop.Session)
    def pay(order: Any, session: Any) -> None:
        if not again:
            again.append(order.id)
            shop.orders.snatch(order.id)
        session.add(shop.Payment(order_id=order.id))

    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("D", [1])


def test_a_savepoint_is_the_functions_own(shop):
    def try_twice(order: Any, session: Any) -> None:
        for cents in (7, 8):
            try:
                with session.begin_nested():
                    session.execute(sa.update(shop.Order).values(cents=cents))
                    if cents == 7:
                        raise ValueError
            except ValueError:
                pass

    pays(shop, try_twice)
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), shop.orders.peek(1).cents) == ("D", [1], 8)


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_the_function_cannot_end_the_transaction(shop, end):
    pays(shop, lambda order, session: getattr(session, end)())
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("B", [])
    assert f"calls {end}() of its session: xq commits it with the ack" in shop.why()


def test_the_function_may_finish_the_task_in_its_session(shop):
    pays(shop, lambda order, session: shop.orders.release(order, delay=60, update={"cents": 9}, on=session))
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), shop.orders.peek(1).cents) == ("W", [1], 9)


def test_an_ack_in_a_savepoint_that_is_rolled_back_is_made_again(shop):
    def ack_in_vain(order: Any, session: Any) -> None:
        with session.begin_nested() as savepoint:
            shop.orders.ack(order, on=session)
            savepoint.rollback()

    pays(shop, ack_in_vain)
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("D", [1])


def test_a_next_stage_commits_this_one(shop):
    def go_on(order: Any, session: Any) -> None:
        if order.stage == "pay":
            raise xq.Next("mail", update={"cents": 4})

    shop.orders.put({"stage": "mail"}, delay=60)
    pays(shop, go_on, tube="pay")
    shop.orders.put({"stage": "pay"})
    shop.orders.run(until_empty=True, tubes=["pay"])
    found = shop.orders.peek(3)
    assert (found.stage, found.tries, found.cents, shop.paid()) == ("mail", 0, 4, [3])


def test_a_commit_that_the_database_refuses_is_a_failed_attempt(shop):
    """MariaDB refuses the statement itself."""
    pays(shop, lambda order, session: session.add(shop.Payment(order_id=99)))
    called = list[int]()
    pays_none = shop.orders.handlers[None].function
    shop.orders.handlers.clear()

    @shop.orders.worker(session=shop.Session, max_attempts=1)
    def work(order: Any, session: Any) -> None:
        xq.after_commit(called.append, 1)
        pays_none(order, session)

    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), called) == ("B", [], [])
    assert "IntegrityError" in shop.why()
    with shop.Session.begin() as session:  # nothing is left open
        session.add(shop.Payment(order_id=1))


def test_a_batch_is_in_one_session_and_acked_together(shop):
    @shop.orders.worker(session=shop.Session, batch=10, max_attempts=1)
    def pay(batch: Any, session: Any) -> None:
        for order in batch:
            assert order in session
            session.add(shop.Payment(order_id=order.id))
        batch.fail(batch[1], "no money")

    shop.orders.put_many([{}, {}, {}])
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("DBD", [1, 2, 3])


def test_a_call_after_the_commit_is_made_then_and_an_error_of_it_is_logged(shop, caplog):
    seen = list[Any]()

    def tell(order: Any, session: Any) -> None:
        xq.after_commit(lambda key: seen.append((key, shop.states(), shop.paid())), order.id)
        xq.after_commit(lambda: 1 / 0)

    pays(shop, tell)
    shop.orders.run(until_empty=True)
    assert (seen, shop.states()) == ([(1, "D", [1])], "D")
    assert "a call of xq.after_commit() has failed; the task is finished all the same" in caplog.text


def test_a_function_that_has_failed_calls_nothing_after_a_commit(shop):
    seen = list[int]()

    def fail(order: Any, session: Any) -> None:
        xq.after_commit(seen.append, 1)
        raise ValueError

    pays(shop, fail)
    shop.orders.run(until_empty=True)
    assert seen == []


def test_what_stands_around_the_function_and_fails_after_the_commit_leaves_the_task_done(shop, caplog):
    worker, failed = pays(shop), list[Any]()
    worker.on_failure(lambda *given: failed.append(given))

    @worker.around
    def around(order: Any) -> Any:
        yield
        raise ValueError("too late")

    shop.orders.run(until_empty=True)
    assert (shop.states(), failed) == ("D", [])
    assert "is finished, and what ran after that has failed: ValueError: too late" in caplog.text


def test_a_call_after_the_commit_has_no_lease_to_lose(shop):
    held = list[bool]()
    pays(shop, lambda order, session: xq.after_commit(lambda: held.append(xq.current().heartbeat())))
    shop.orders.run(until_empty=True)
    assert held == [True]


def test_a_commit_whose_answer_is_lost_has_finished_the_task(shop):
    class Lost(Session):
        def commit(self) -> None:
            super().commit()
            raise sa.exc.OperationalError("COMMIT", None, ConnectionError("the connection is lost"))

    failed = list[Any]()
    shop.Session = sessionmaker(shop.engine, class_=Lost)
    pays(shop).on_failure(lambda *given: failed.append(given))
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), failed) == ("D", [1], [])


def test_a_test_runs_the_worker_as_well(shop):
    worker = pays(shop)
    assert run_pending(worker) == 1
    assert (shop.states(), shop.paid()) == ("D", [1])


@pytest.mark.parametrize("given", ["a session", "none"])
def test_a_test_that_rolls_back_may_run_it_on_its_own_connection(shop, given):
    shop.orders.put({})
    with shop.engine.connect() as connection:
        outer = connection.begin()
        made = sessionmaker(connection, join_transaction_mode="create_savepoint")

        def in_a_session(order: Any, session: Any) -> None:
            session.add(shop.Payment(order_id=order.id))

        def by_itself(order: Any) -> None:
            with made.begin() as session:
                session.add(shop.Payment(order_id=order.id))

        if given == "a session":
            worker = shop.orders.worker(in_a_session, session=shop.Session, max_attempts=1)
        else:
            worker = shop.orders.worker(by_itself, max_attempts=1)
        with made() as mine, xq_session(mine):
            assert run_pending(worker, raises=True) == 1
            assert list(mine.scalars(sa.select(shop.Payment.order_id))) == [1]
        outer.rollback()
    assert (shop.states(), shop.paid()) == ("R", [])


def test_after_commit_is_for_the_function_of_a_worker_with_a_session(shop):
    shop.orders.worker(lambda order: xq.after_commit(print), max_attempts=1)
    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert "give the worker session=" in shop.why()
    with pytest.raises(xq.ConfigurationError, match="call it there"):
        xq.after_commit(print)


def test_an_observer_hears_of_the_end_after_the_commit(shop):
    seen = list[Any]()
    shop.orders.on_change(lambda order, event, *states: seen.append((event, len(shop.paid()))))
    pays(shop)
    shop.orders.run(until_empty=True)
    assert ("ack", 1) in seen


# calls beside the session


@pytest.mark.parametrize("call", ["ack", "release", "bury", "ack_many"])
def test_a_call_that_would_wait_for_the_functions_own_session_is_refused(shop, call):
    pays(shop, lambda order, session: getattr(shop.orders, call)([order] if call == "ack_many" else order))
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("B", [])
    assert f"InTransaction: {call} would wait" in shop.why()
    assert f"{call}(order, on=session)" in shop.why()


def test_a_session_that_the_function_has_opened_itself_counts_as_well(shop):
    @shop.orders.worker(max_attempts=1)
    def pay(order: Any) -> None:
        with shop.Session.begin() as session:
            session.add(shop.Payment(order_id=order.id))
            session.flush()
            shop.orders.ack(order)

    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("B", [])
    assert "InTransaction" in shop.why()


# what a function leaves undone


def runs(shop: Any, function: Any) -> str:
    shop.orders.worker(function, max_attempts=1)
    shop.orders.put({})
    shop.orders.run(until_empty=True)
    return str(shop.states())


def test_a_forgotten_commit_fails_the_attempt(shop):
    def forget(order: Any) -> None:
        with shop.Session() as session:
            session.add(shop.Payment(order_id=order.id))
            session.flush()

    assert (runs(shop, forget), shop.paid()) == ("B", [])
    assert "what it wrote on the engine of Order was rolled back" in shop.why()


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("by", ["session", "connection", "ack"])
def test_a_forgotten_commit_of_a_transaction_that_the_application_begins_on_sqlite_fails_the_attempt(shop, by):
    @sa.event.listens_for(shop.engine, "connect")
    def connected(raw: Any, _: Any) -> None:
        raw.isolation_level = None

    @sa.event.listens_for(shop.engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def forget(order: Any) -> None:
        with shop.engine.connect() as connection, Session(connection if by == "session" else shop.engine) as session:
            if by == "connection":
                connection.execute(sa.insert(shop.Payment).values(order_id=order.id))
            elif by == "ack":
                shop.orders.ack(order, on=session)
            else:
                session.add(shop.Payment(order_id=order.id))
                session.flush()

    shop.engine.dispose()
    assert (runs(shop, forget), shop.paid()) == ("B", [])
    assert "LeftOpen" in shop.why()

    def commits(order: Any) -> None:
        with shop.Session.begin() as session:
            session.add(shop.Payment(order_id=order.id))

    shop.orders.worker(commits, tube="good")
    shop.orders.put({"stage": "good"})
    shop.orders.run(until_empty=True, tubes=["good"])
    assert (shop.states(), shop.paid()) == ("BD", [2])


WRITES = {"insert": "INSERT INTO payments (order_id) VALUES (1)"}
WRITES["with"] = "WITH a AS (SELECT id FROM orders) UPDATE orders SET cents = 2 WHERE id IN (SELECT id FROM a)"


@pytest.mark.parametrize("write", WRITES)
def test_a_forgotten_commit_of_a_connection_fails_the_attempt(shop, write):
    sql = WRITES["insert" if write == "with" and shop.engine.name == "mysql" else write]  # it has no such UPDATE

    def forget(order: Any) -> None:
        with shop.engine.connect() as connection:
            connection.execute(sa.text(sql))

    assert (runs(shop, forget), shop.paid()) == ("B", [])


@pytest.mark.parametrize("end", ["rollback()", "an error"])
def test_a_rollback_of_a_connection_that_is_asked_for_is_none(shop, end):
    def roll_back(order: Any) -> None:
        with suppress(ValueError), shop.engine.begin() as connection:
            connection.execute(sa.insert(shop.Payment).values(order_id=order.id))
            if end == "an error":
                raise ValueError
            connection.rollback()

    assert (runs(shop, roll_back), shop.paid()) == ("D", [])


def test_a_forgotten_commit_of_an_ack_fails_the_attempt(shop):
    def forget(order: Any) -> None:
        with shop.Session() as session:
            shop.orders.ack(order, on=session)

    assert runs(shop, forget) == "B"


def test_a_session_that_is_left_open_fails_the_attempt_and_is_rolled_back(shop):
    left = list[Any]()

    def leave(order: Any) -> None:
        left.append(session := shop.Session())
        session.execute(sa.update(shop.Order).values(cents=1))

    assert runs(shop, leave) == "B"
    assert "LeftOpen" in shop.why()


def test_a_commit_of_the_functions_own_session_that_is_refused_fails_the_attempt_alone(shop):
    def refused(order: Any) -> None:
        with shop.Session.begin() as session:
            session.add(shop.Payment(order_id=order.id))
            session.add(shop.Payment(order_id=99))

    assert (runs(shop, refused), shop.paid()) == ("B", [])
    assert "IntegrityError" in shop.why()


def test_a_rollback_that_is_asked_for_is_none(shop):
    def roll_back(order: Any) -> None:
        with shop.Session() as session:
            session.add(shop.Payment(order_id=order.id))
            session.flush()
            session.rollback()

    assert (runs(shop, roll_back), shop.paid()) == ("D", [])


def test_a_rollback_after_which_the_work_is_done_again_is_none(shop):
    def retry(order: Any) -> None:
        for tried in (1, 2):
            with shop.engine.connect() as connection:
                connection.execute(sa.insert(shop.Payment).values(order_id=order.id))
                if tried == 2:
                    connection.commit()

    assert (runs(shop, retry), shop.paid()) == ("D", [1])


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_session_of_the_thread_brings_nothing_of_a_task_into_the_next_one(shop, fails, flushed):
    sessions = scoped_session(shop.Session)

    @shop.orders.worker(max_attempts=1)
    def pay(order: Any) -> None:
        session = sessions()
        session.add(shop.Payment(order_id=order.id))
        if order.id == 1:
            if flushed:
                session.flush()
            if fails:
                raise ValueError("no money")
            return  # without a commit
        session.commit()

    shop.orders.put_many([{}, {}])
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("BD", [2])
    assert ("no money" if fails else "LeftOpen") in shop.why()


def test_what_only_reads_may_be_left_as_it_is(shop):
    def read(order: Any) -> None:
        with shop.Session() as session:
            session.scalars(sa.select(shop.Payment)).all()

    assert runs(shop, read) == "D"


# a scoped_session


def test_a_scoped_session_has_one_session_for_each_attempt_and_its_acks_commit(shop):
    sessions, seen = scoped_session(shop.Session), list[Session]()

    @shop.orders.worker(session=sessions, max_attempts=1)
    def pay(order: Any, session: Any) -> None:
        seen.append(sessions())
        assert sessions() is session
        assert order in sessions
        sessions.add(shop.Payment(order_id=order.id))
        if order.id == 2:
            raise ValueError("no money")

    shop.orders.put_many([{}] * 3)
    run_pending(shop.orders)
    assert (shop.states(), shop.paid(), len({*seen})) == ("DBD", [1, 3], 3)
    assert not sessions.registry.has()


def test_what_stands_around_an_attempt_is_around_its_session_and_its_ack(shop):
    """As an application's context of Flask: it has the engine, and what is written there is part of the attempt."""
    app = ContextVar[Any]("app")

    class InContext(Session):
        def get_bind(self, *args: Any, **kwargs: Any) -> Any:
            if app.get(None) is None:
                raise RuntimeError("Working outside of application context.\n\nThis typically means")
            return app.get()

    sessions = scoped_session(sessionmaker(class_=InContext), scopefunc=lambda: id(app.get()))

    @contextmanager
    def context(order: Any) -> Iterator[None]:
        token = app.set(shop.engine)
        try:
            sessions.add(shop.Payment(order_id=order.id))
            sessions.flush()
            yield
            states.append(shop.states())
        finally:
            app.reset(token)

    def pay(order: Any, session: Any) -> None:
        if order.id == 2:
            raise ValueError("no money")

    states = list[str]()
    shop.orders.worker(pay, session=sessions)
    shop.orders.put_many([{}, {}])
    with pytest.raises(xq.ConfigurationError, match=r"finds no engine here \(Working outside of .*around=lambda"):
        shop.orders.run(until_empty=True)
    shop.orders.handlers.clear()
    shop.orders.worker(pay, session=sessions, around=context, max_attempts=1)
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid(), states) == ("DB", [1], ["DR"])


def test_a_test_has_the_workers_scoped_session_on_its_own_connection(shop):
    sessions = scoped_session(shop.Session)
    shop.orders.worker(lambda order, session: sessions.add(shop.Payment(order_id=order.id)), session=sessions)
    with shop.engine.connect() as connection, connection.begin(), Session(connection) as session, xq_session(session):
        shop.orders.put({})
        assert run_pending(shop.orders) == 1
        assert list(session.scalars(sa.select(shop.Payment.order_id))) == [1]
        connection.rollback()
    assert (shop.states(), shop.paid()) == ("", [])


# what fits


def test_sessions_without_an_engine_are_refused_before_a_task_is_taken(shop):
    shop.orders.worker(lambda order, session: None, session=(make := sessionmaker()), max_attempts=1)
    shop.orders.put({})
    with pytest.raises(xq.ConfigurationError, match="without an engine for Order"):
        shop.orders.run(until_empty=True)
    make.configure(bind=shop.engine)
    shop.orders.run(until_empty=True)
    assert shop.states() == "D"


def test_the_session_is_made_as_the_function_needs_it(shop, make):
    async def work(order: Any, session: Any) -> None: ...

    scoped: Any = scoped_session
    unfit = [(print, async_sessionmaker()), (work, sessionmaker()), (print, shop.engine), (print, scoped(print))]
    for function, session in unfit:
        with pytest.raises(xq.ConfigurationError, match="session= of .* is made by"):
            shop.orders.worker(function, session=session)
    with pytest.raises(xq.ConfigurationError, match="gets the task.* and the session"):
        shop.orders.worker(lambda order: None, session=shop.Session)
    with pytest.raises(xq.ConfigurationError, match="session= is a sessionmaker of SQLAlchemy"):
        make().xq.worker(lambda order, session: None, session=shop.Session)
