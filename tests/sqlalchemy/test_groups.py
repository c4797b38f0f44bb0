"""Groups of a mapped class: a block that is part of the caller's session, and members that are its instances."""

from __future__ import annotations

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.orm import Session
from tests.sqlalchemy.test_unit_of_work import desk

__all__ = ["desk"]  # the fixture


def test_a_block_is_part_of_the_callers_session(desk):
    orders = desk.queue(groups=True, buried=True)
    with Session(desk.engine) as session:
        with orders.group("import", then={"cents": 7}, on=session) as group:
            group.put(desk.Order(cents=1))
            group.put_many([{"cents": 2}])
        session.rollback()
    assert orders.count() == 0
    with Session(desk.engine) as session:
        with orders.group("import", then={"cents": 7}, on=session) as group:
            member = group.put(desk.Order(cents=1))
            assert member in session
            group.put_many([{"cents": 2}])
        assert session.scalar(sa.select(sa.func.count()).select_from(desk.Order)) == 2
        session.commit()
    group = orders.group("import")
    assert group.stats()["total"] == 2
    with Session(desk.engine) as session:
        for _ in range(2):
            orders.ack(orders.take(on=session), on=session)
        session.commit()
    orders.sweep()
    assert (group.done, [order.cents for order in orders.by_state("R")]) == (True, [7])


def test_after_its_block_a_group_is_no_part_of_the_session(desk):
    orders = desk.queue(groups=True, buried=True)
    with Session(desk.engine) as session:
        with orders.group("import", then={"cents": 7}, on=session) as group:
            group.put(desk.Order(cents=1))
        session.commit()
    group.put({"cents": 2})
    with desk.engine.connect() as connection:  # the session has begun nothing anew
        assert desk.engine.pool.checkedout() == 1
        assert connection.scalar(sa.select(sa.func.count()).select_from(desk.Order)) == 2
    assert (group.stats()["total"], group.done, group.failed, group.paused) == (2, False, 0, False)
    assert (group.kill(), group.wait(0), group.done) == (2, True, True)


def test_each_call_of_a_handle_is_part_of_the_session(desk):
    orders = desk.queue(groups=True, buried=True)
    with orders.group("import"):
        orders.put({"cents": 1, "xq_group": "import"})
    with Session(desk.engine) as session:
        group = orders.group("import", on=session)
        group.put({"cents": 2})
        assert (group.stats()["R"], group.done) == (2, False)
        with pytest.raises(xq.InTransaction):
            group.wait(5)
        assert group.kill() == 2
        session.rollback()
    assert (orders.count(), orders.group("import").done) == (1, False)
