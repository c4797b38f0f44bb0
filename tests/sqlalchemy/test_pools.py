"""The engine's pool: a call has one of its connections while a statement runs, and gives it back as it was."""

# mypy: disable-error-code="valid-type,misc,arg-type,attr-defined,var-annotated,unused-ignore"

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy import orm
from tests.conftest import fresh
from tests.sqlalchemy.maker import engine_of
from tests.steps import STUCK
from tests.support.life import end_threads
from tests.support.trips import counter_of
from tests.support.walks import functions, walks
from tests.timing import in_sequence
from xq.adapters.sqlalchemy import upgrade

db, file = fresh(["sqlite", "postgres", "mariadb", "mysql"]), fresh(["sqlite"])


def engine(db, **options):
    of_test = engine_of(db)
    return sa.create_engine(of_test.url, creator=of_test.pool._creator, **options)  # type: ignore[attr-defined]


def queue_on(engine, **features):
    base: Any = type("Base", (orm.DeclarativeBase,), {})
    columns = {"id": sa.Column(sa.Integer, primary_key=True), "name": sa.Column(sa.String(20))}
    queue = upgrade(type("Order", (base,), {"__tablename__": "orders", **columns}), features=features, engine=engine)
    base.metadata.create_all(engine)
    queue.install()
    return queue


def cycle(queue, name="a"):
    queue.put({"name": name})
    return queue.ack(queue.take(STUCK))  # another thread may have locked what this one sees


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 1, "max_overflow": 0, "pool_timeout": STUCK},
        {"poolclass": sa.NullPool},
        {"pool_pre_ping": True},
        {"isolation_level": "AUTOCOMMIT"},
        {"pool_reset_on_return": None},
        {"pool_recycle": 0},
    ],
    ids=["of one", "none", "pre-ping", "autocommit", "no reset", "recycle"],
)
def test_calls_use_any_pool_and_keep_no_connection(db, options):
    made = engine(db, **options)
    queue = queue_on(made)
    assert cycle(queue).name == "a"
    with in_threads(4) as pool:
        done = list(pool.map(lambda n: cycle(queue, str(n)), range(40)))
    assert sorted(int(each.name) for each in done) == [*range(40)]
    end_threads()
    assert getattr(made.pool, "checkedout", int)() == 0
    assert queue.count() == 0
    made.dispose()


@in_sequence
def in_threads(n):
    return ThreadPoolExecutor(n)


def test_a_session_gets_a_connection_that_begins_transactions_after_a_call_has_had_it(db):
    made = engine(db, pool_size=1, max_overflow=0)
    queue = queue_on(made)
    for end in ("rollback", "commit", "rollback"):
        cycle(queue)
        with orm.Session(made) as session:
            session.add(queue.model(name=end))
            session.flush()
            getattr(session, end)()
    with orm.Session(made) as session:
        assert session.scalars(sa.select(queue.model.name)).all() == ["commit"]
    end_threads()
    made.dispose()


def test_an_error_leaves_the_connection_as_it_was(db):
    made = engine(db, pool_size=1, max_overflow=0)
    queue = queue_on(made)
    for _ in range(3):
        with pytest.raises(xq.NotFound):
            queue.ack(99)
        with pytest.raises(sa.exc.DatabaseError):
            queue.parts.store.execute("SELECT nothing FROM nowhere")
    assert cycle(queue).name == "a"
    end_threads()
    assert made.pool.checkedout() == 0  # type: ignore[attr-defined]
    made.dispose()


def test_a_connection_that_the_server_has_closed_is_replaced(db):
    made = engine(db, pool_size=1, max_overflow=0)
    queue = queue_on(made)
    with made.connect() as connection:
        connection.connection.driver_connection.close()
    assert cycle(queue).name == "a"
    end_threads()
    made.dispose()


def test_a_call_sends_only_its_statement(db, monkeypatch):
    counter, made = counter_of(monkeypatch), engine(db)
    queue = queue_on(made)
    cycle(queue)  # the first calls look at the installation
    key = queue.put({"name": "a"}).id
    for call in (lambda: queue.put({"name": "b"}), queue.take, lambda: queue.ack(key)):
        with counter.counting() as sent:
            call()
        assert str(sent) == "1/1/1", sent.texts
    end_threads()
    made.dispose()


def test_a_put_in_a_session_sends_only_its_statement_and_the_savepoint_around_it(db, monkeypatch):
    counter, made = counter_of(monkeypatch), engine(db, pool_size=1, max_overflow=0)
    queue = queue_on(made)
    for _ in range(2):  # the first one sets the connection up
        with orm.Session(made) as session:
            with counter.counting() as sent:
                queue.put(queue.model(name="a"), on=session)
            session.commit()
    words = [text.split()[0].upper() for text in sent.texts]
    assert words[words[0] == "BEGIN" :] == ["SAVEPOINT", "INSERT", "RELEASE"], sent.texts
    end_threads()
    made.dispose()


@pytest.mark.parametrize("end", ["commit", "rollback", "invalidate"])
def test_the_history_names_the_calls_in_sessions_whatever_has_become_of_the_one_before(db, end):
    made = engine(db, pool_size=1, max_overflow=0)
    queue = queue_on(made, history=True)
    cycle(queue)
    made.dispose()  # a new connection is set up within a transaction
    with orm.Session(made) as session:
        queue.put({"name": "first"}, on=session)
        getattr(session, end)()
    with orm.Session(made) as session:
        queue.put({"name": "a"}, on=session)
        session.commit()
        queue.ack(queue.take(on=session), on=session)
        session.commit()
    cycle(queue)
    assert {move.event for move in queue.history()} == {"put", "take", "ack"}
    end_threads()
    made.dispose()


def test_a_file_is_in_wal_mode_after_a_call_that_joins_no_transaction(file):
    made = engine(file, pool_size=1, max_overflow=0)
    queue = queue_on(made)
    end_threads()
    made.dispose()
    assert file.pragma("journal_mode", "DELETE") == "delete"  # as a migration leaves it
    file.close()
    with orm.Session(made) as session:
        queue.put({"name": "a"}, on=session)
        session.commit()
    cycle(queue)
    assert file.pragma("journal_mode") == "wal"
    end_threads()
    made.dispose()


def test_the_maintenance_thread_uses_no_connection_of_the_pool(db):
    made = engine(db, pool_size=1, max_overflow=0, pool_timeout=0)
    queue = queue_on(made)
    store: Any = queue.parts.executor.database.store
    with made.connect(), in_threads(1) as pool:
        assert pool.submit(lambda: [store.connect_unpooled(), queue.parts.store.execute("SELECT 1")]).result()
        pool.submit(store.disconnect).result()
    end_threads()
    assert made.pool.checkedin() == 1  # type: ignore[attr-defined]
    made.dispose()


def test_a_session_of_another_database_in_memory_is_refused():
    mine, other = (sa.create_engine("sqlite://", poolclass=sa.StaticPool) for _ in "ab")
    queue = queue_on(mine)
    with orm.Session(other) as session, pytest.raises(xq.ConfigurationError, match="on= is on sqlite://"):
        queue.put({"name": "a"}, on=session)
    for each in (mine, other):
        each.dispose()


def test_workers_are_refused_on_one_connection_by_the_name_of_its_pool():
    made = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    queue = queue_on(made)
    queue.worker()(lambda task: None)
    with pytest.raises(xq.ConfigurationError, match="the one connection of a StaticPool"):
        queue.run(until_empty=True)
    made.dispose()


@pytest.mark.parametrize("kind", [sa.StaticPool, sa.pool.SingletonThreadPool])
def test_a_call_does_not_end_the_transaction_of_a_session_with_the_same_connection(kind):
    made = sa.create_engine("sqlite://", poolclass=kind, connect_args={"check_same_thread": False})
    queue = queue_on(made)
    cycle(queue)
    with orm.Session(made) as session:
        session.add(queue.model(name="mine"))
        session.flush()
        with pytest.raises(xq.ConfigurationError, match="on=session"):
            queue.put({"name": "other"})
        queue.put({"name": "joined"}, on=session)
        session.rollback()
    assert queue.count() == 0
    assert cycle(queue).name == "a"
    end_threads()
    made.dispose()


CLOSED = sys.version_info[:2] not in ((3, 12), (3, 13))  # these do not enter a generator that is left halfway
WALKS = f"""
put of an instance  68
put of a mapping    {66 + CLOSED}
take                56
ack                 62
"""


def test_each_path_on_a_session_enters_as_many_functions_as_the_table_says(file):
    made = engine(file)
    queue = queue_on(made)
    kind: Any = queue.model

    def steps(step):
        with orm.Session(made) as session:
            step("put of an instance", lambda: queue.put(kind(name="a"), on=session))
            session.commit()
            step("put of a mapping", lambda: queue.put({"name": "a"}, on=session))
            session.commit()
            taken = step("take", lambda: queue.take(on=session))
            session.commit()
            step("ack", lambda: queue.ack(taken, on=session))
            session.commit()

    assert functions(walks(steps)) == WALKS.strip("\n")
