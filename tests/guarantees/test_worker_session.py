"""A worker with a session of SQLAlchemy is killed with kill -9: what it wrote and its task stay together."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import xq
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_pools import cycle, engine, queue_on
from tests.steps import STUCK, another_process, eventually, forked, note, noted
from tests.support.life import end_threads


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def pays(shop: Any, seen: Path, then: Any, **options: Any) -> None:
    @shop.orders.worker(session=shop.Session, backoff=[0], **options)
    def pay(order: Any, session: Any) -> None:
        session.add(shop.Payment(order_id=order.id))
        session.flush()
        note(seen, order.id)
        if noted(seen) == ["1"]:
            then()


@pytest.mark.parametrize("when", ["before the commit", "after it"])
def test_a_process_that_dies_loses_and_doubles_nothing(make_live, tmp_path, when):
    shop, seen = Shop(make_live.db), tmp_path / "seen"
    then = kill_myself if when == "before the commit" else partial(xq.after_commit, kill_myself)
    pays(shop, seen, then, kind="process")
    shop.orders.put_many([{}, {}, {}])
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("DDD", [1, 2, 3])
    assert noted(seen).count("1") == (2 if when == "before the commit" else 1)
    shop.engine.dispose()


def test_a_process_that_is_forked_uses_no_connection_of_any_engine_that_its_parent_has_opened(make_live, tmp_path):
    shop, seen = Shop(make_live.db), tmp_path / "seen"
    others = [engine(make_live.db, pool_size=1, pool_pre_ping=ping) for ping in (False, True)]
    session = orm.scoped_session(orm.sessionmaker(engine(make_live.db)))
    with ExitStack() as opened:
        connections = [opened.enter_context(each.connect()) for each in others]
        inherited = [each.connection.dbapi_connection for each in [*connections, session.connection()]]

    def ask(order: Any) -> None:
        for each in [*others, session]:
            with each.connect() if each in others else each() as mine:
                dbapi = (mine if each in others else mine.connection()).connection.dbapi_connection
                note(seen, f"{mine.execute(sa.text('SELECT 1')).scalar()} {dbapi in inherited}")

    shop.orders.worker(ask, kind="process", max_attempts=1)
    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (noted(seen), shop.states()) == (["1 False"] * 3, "D")
    assert session.execute(sa.text("SELECT 1")).scalar() == 1, "the parent's is as it was"
    for each in [*others, session.get_bind()]:
        session.remove()
        each.dispose()


def test_the_task_of_a_killed_program_is_done_by_another(make_live, tmp_path):
    shop, seen = Shop(make_live.db), tmp_path / "seen"
    pays(shop, seen, lambda: eventually(lambda: False))
    shop.orders.put_many([{}, {}])

    def works():
        shop.orders.start()
        yield eventually(lambda: noted(seen))

    with another_process(make_live.db, works) as program:
        next(program)
        program.kill()
    running = shop.orders.start()
    eventually(lambda: shop.states() == "DD")
    running.stop()
    running.join()
    assert (shop.paid(), sorted(noted(seen))) == ([1, 2], ["1", "1", "2"])
    shop.engine.dispose()


def test_a_forked_process_opens_connections_of_its_own(make_live):
    made = engine(make_live.db)
    queue = queue_on(made)
    cycle(queue)
    end_threads()
    child = forked(make_live.db, lambda: cycle(queue, "child"))
    child.join(STUCK)
    assert child.exitcode == 0
    assert queue.stats().transition["R-T"] == 2
    assert cycle(queue).name == "a"
    end_threads()
    made.dispose()
