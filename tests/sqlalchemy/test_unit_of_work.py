"""A session's unit of work: calls with on=session give its instances, and what it writes has the queue's features."""

from __future__ import annotations

from typing import Any

import pytest

import sqlalchemy as sa
import xq
import xq.otel
from sqlalchemy import orm
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship
from tests.contract.test_otel import Traced
from tests.sqlalchemy.maker import engine_of as engine
from tests.steps import a_second_passes
from xq.adapters.sqlalchemy import upgrade
from xq.testing import Clock

WORDS = {"R": "open", "T": "sending", "W": "later", "B": "failed", "D": "sent"}
KEEPS = {"keep": True, "delayed": True, "buried": True}


class Desk:
    """A table of orders, with accounts and items, on an engine."""

    def __init__(self, db: Any) -> None:
        class Base(orm.DeclarativeBase):
            pass

        class Account(Base):
            __tablename__ = "account"
            id: Mapped[int] = mapped_column(primary_key=True)
            orders: Mapped[list[Order]] = relationship(back_populates="account")

        class Order(Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(primary_key=True)
            state: Mapped[str | None] = mapped_column(sa.String(10))
            cents: Mapped[int] = mapped_column(default=0)
            number: Mapped[str | None] = mapped_column(sa.String(10))
            trace: Mapped[str | None] = mapped_column(sa.String(60))
            account_id: Mapped[int | None] = mapped_column(sa.ForeignKey("account.id"))
            account: Mapped[Account | None] = relationship(back_populates="orders")
            items: Mapped[list[Item]] = relationship()

        class Item(Base):
            __tablename__ = "item"
            id: Mapped[int] = mapped_column(primary_key=True)
            order_id: Mapped[int] = mapped_column(sa.ForeignKey("orders.id"))

        self.Base, self.Account, self.Order, self.Item = Base, Account, Order, Item
        for made in (Account, Order, Item):  # their annotations are texts
            globals()[made.__name__] = made
        orm.configure_mappers()
        self.engine, self.clock, self.seen = engine(db), Clock(1_000), list[str]()

    def queue(self, roles: Any = (), **features: Any) -> Any:
        fields = {"status": self.Order.state, **dict(roles)}
        orders = upgrade(self.Order, fields, features, engine=self.engine, statuses=self._words(features))
        orders.clock = self.clock
        self.Base.metadata.create_all(self.engine)
        orders.install()
        orders.on_change(lambda task, event, source, target: self.seen.append(f"{event} {source}-{target}"))
        self.orders = orders
        return orders

    @staticmethod
    def _words(features: Any) -> dict[str, str]:
        there = {"W": "delayed", "B": "buried", "D": "keep"}
        return {letter: word for letter, word in WORDS.items() if letter not in there or there[letter] in features}

    def rows(self, *columns: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.select(*columns).order_by(self.Order.id))]


@pytest.fixture
def desk(shared_db):
    made = Desk(shared_db)
    yield made
    made.engine.dispose()


@pytest.fixture
def session(desk):
    with Session(desk.engine) as made:
        yield made


# what comes back


def test_the_instance_that_is_put_becomes_the_sessions(desk, session):
    orders, order = desk.queue(**KEEPS), desk.Order(cents=7)
    assert orders.put(order, on=session, delay=60) is order
    assert order in session
    session.commit()
    assert (order.state, order.cents, order.xq_runat) == ("later", 7, 1_060)


def test_what_belongs_to_a_new_order_is_put_with_it(desk, session):
    orders = desk.queue(**KEEPS)
    order = orders.put(desk.Order(account=desk.Account(), items=[desk.Item()]), on=session)
    assert (order.account_id, order.items[0].order_id) == (order.account.id, order.id)


def test_an_order_that_its_account_has_brought_into_the_session_is_put_with_the_options(desk, session):
    orders, account, order = desk.queue(**KEEPS), desk.Account(), desk.Order()
    session.add(account)
    account.orders.append(order)
    assert orders.put(order, on=session, delay=60).state == "later"
    assert order.account_id == account.id


def test_a_new_order_that_is_put_alone_has_the_key_of_its_account_and_nothing_else_that_belongs_to_it(desk, session):
    orders, account = desk.queue(**KEEPS), desk.Account()
    for new in ({"account": account}, {"items": [desk.Item()]}):
        with pytest.raises(xq.BadValue, match="on=session"):
            orders.put(desk.Order(**new))
    session.add(account)
    session.flush()
    number = account.id
    session.commit()
    session.close()
    assert orders.put(desk.Order(account=account, items=[])).account_id == number
    assert orders.put(desk.Order(account=None)).account_id is None


def test_listeners_to_a_commit_are_called_at_the_commit_only(desk, session):
    orders, seen = desk.queue(**KEEPS), list[str]()
    for name in ("before_commit", "after_commit"):
        sa.event.listen(session, name, lambda session, name=name: seen.append(name))
    orders.put(desk.Order(), on=session)
    assert seen == []
    session.commit()
    assert seen == ["before_commit", "after_commit"]


def test_calls_return_the_sessions_instance_with_the_rows_values(desk, session):
    orders = desk.queue(**KEEPS)
    order = orders.put(desk.Order(), on=session)
    session.commit()
    orders.take()  # elsewhere
    assert orders.ack(order.id, on=session, update={"cents": 5}) is order
    assert (order.state, order.cents, len(session.dirty)) == ("sent", 5, 0)


def test_pending_changes_are_written_before_a_call(desk, session):
    orders = desk.queue(**KEEPS)
    orders.put({})
    order = orders.take(on=session)
    order.cents = 9
    assert orders.ack(order, on=session).cents == 9
    session.commit()
    assert desk.rows(desk.Order.state, desk.Order.cents) == [("sent", 9)]


def test_a_parent_may_be_pending_in_the_session(desk, session):
    orders = desk.queue(**KEEPS, after=True)
    session.add(parent := desk.Order(state="open"))
    child = orders.put(desk.Order(), after=[parent], on=session)
    session.commit()
    assert (parent.state, child.state) == ("open", "later")


def test_an_expired_instance_names_its_task(desk, session):
    orders = desk.queue(**KEEPS)
    orders.put({})
    order = orders.take(on=session)
    session.commit()  # expires it
    orders.ack(order, on=session)
    session.commit()
    assert order.state == "sent"


def test_a_deleted_task_leaves_the_session_and_keeps_its_values(desk, session):
    orders = desk.queue()
    orders.put({"cents": 3})
    order = orders.take(on=session)
    assert orders.ack(order, on=session) is order
    session.commit()
    assert (order in session, order.cents) == (False, 3)


def test_on_a_connection_the_instance_is_of_no_session(desk):
    orders = desk.queue(**KEEPS)
    with desk.engine.begin() as connection:
        assert sa.inspect(orders.put(desk.Order(), on=connection)).detached


def test_a_row_of_the_session_is_not_put_again(desk, session):
    orders = desk.queue(**KEEPS)
    order = orders.put(desk.Order(), on=session)
    with pytest.raises(xq.BadValue, match="is a task already"):
        orders.put(order, on=session)


def test_what_is_put_in_a_session_carries_the_trace_of_the_put(desk, session):
    orders, traced = desk.queue({"trace": "trace"}, **KEEPS), Traced()
    xq.otel.instrument(orders, traced.provider)
    put = [orders.put(desk.Order(), on=session), *orders.put_many([{}, {}], on=session)]
    session.commit()
    one, several = (f"{span.context.trace_id:032x}" for span in traced.spans("put Order"))
    assert [order.trace.split("-")[1] for order in put] == [one, several, several]


def test_what_a_listener_of_the_application_sets_at_the_flush_counts(desk, session):
    def listen(mapper, connection, order):
        order.xq_ttl = 5

    orders = desk.queue({"ttl": True}, **KEEPS, ttl=60)
    sa.event.listen(desk.Order, "before_insert", listen, insert=True)
    order = orders.put(desk.Order(), on=session)
    assert (order.xq_ttl, order.xq_runat) == (5, 1_005)


# features of what a session adds


def test_an_order_that_is_added_is_put_as_by_put(desk, session):
    orders = desk.queue({"trace": "trace"}, **KEEPS, lifetime=100)
    orders.parts.observers.around_put = lambda put, n: put("a trace")
    session.add(order := desk.Order(state="open"))
    session.flush()
    assert (order.xq_deadline, order.trace, desk.seen) == (1_100, "a trace", [])
    session.commit()
    assert desk.seen == ["put X-R"]


def test_a_rollback_takes_an_added_order_back(desk, session):
    orders = desk.queue(**KEEPS)
    session.add(desk.Order(state="open"))
    session.flush()
    session.rollback()
    assert (desk.seen, orders.stats().counts["R"]) == ([], 0)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_full_queue_refuses_what_a_session_adds(desk, session, tasks):
    orders = desk.queue(**KEEPS, limit=2)
    orders.put_many([{}] * (3 - tasks))
    session.add_all([desk.Order(state="open") for _ in range(tasks)])
    with pytest.raises(xq.Full):
        session.flush()
    session.rollback()
    assert orders.stats().counts["R"] == 3 - tasks


def test_a_put_that_is_refused_undoes_nothing_else_of_the_session(desk, session):
    orders = desk.queue({"unique": "number"}, **KEEPS, unique=True)
    session.add(desk.Account())
    order = orders.put(desk.Order(number="a"), on=session)
    with pytest.raises(xq.Duplicate):
        orders.put(desk.Order(number="a"), on=session)
    assert orders.put(desk.Order(number="a"), on=session, on_conflict="skip") is order
    assert orders.put(desk.Order(number="a", cents=8), on=session, on_conflict="replace") is order
    session.commit()
    assert (order.cents, session.scalar(sa.select(sa.func.count(desk.Account.id)))) == (8, 1)


def test_a_put_that_was_refused_is_called_again_with_the_same_options(desk, session):
    orders, order = desk.queue({"ttr": True}, **KEEPS, ttr=60, limit=1), desk.Order()
    orders.put({})
    with pytest.raises(xq.Full):
        orders.put(order, on=session, ttr=5)
    orders.kill(1, on=session)
    assert orders.put(order, on=session, ttr=5).xq_ttr == 5
    with pytest.raises(xq.BadValue, match="both"):
        orders.put(desk.Order(xq_ttr=5), on=session, ttr=5)
    session.rollback()
    orders.kill(1)
    assert orders.put(order, on=session, ttr=5).xq_ttr == 5


def test_a_second_task_with_a_unique_value_is_refused_at_flush(desk, session):
    desk.queue({"unique": "number"}, **KEEPS, unique=True)
    session.add_all([desk.Order(state="open", number="a") for _ in range(2)])
    with pytest.raises(xq.Duplicate):
        session.flush()


@pytest.mark.parametrize("word", ["Open", " open", "r", "sending", "later"])
def test_a_word_that_makes_no_task_is_refused(desk, session, word):
    desk.queue(**KEEPS)
    session.add(desk.Order(state=word))
    with pytest.raises(xq.BadValue, match=f"'{word}'"):
        session.flush()


def test_rows_that_are_no_task_and_ended_tasks_are_added_as_they_are(desk, session):
    orders = desk.queue(**KEEPS, limit=1)
    session.add_all([desk.Order(), desk.Order(state="archived"), desk.Order(state="sent")])
    session.commit()
    assert orders.stats().counts == {"R": 0, "T": 0, "W": 0, "B": 0, "D": 1}


# what leaves the queue


@pytest.mark.parametrize("word", ["archived", None])
@pytest.mark.parametrize("state", ["R", "W", "B", "D"])
def test_an_order_leaves_the_queue_by_a_word_that_no_state_has(desk, state, word):
    orders = desk.queue(**KEEPS, ttl=60, guard=True)
    key = orders.put({}, **({"delay": 5} if state == "W" else {})).id
    if state in "BD":
        (orders.bury if state == "B" else orders.ack)(orders.take())
    with Session(desk.engine, expire_on_commit=False) as session:
        order = session.get_one(desk.Order, key)
        order.state = word
        session.commit()
        assert (order.state, order.xq_runat, orders.stats().transition[f"{state}-X"]) == (word, None, 1)
        desk.clock.tick(100)
        order.state = "open"
        session.commit()
        assert (orders.take().id, orders.check()) == (order.id, [])


def test_a_taken_order_does_not_leave_the_queue(desk, session):
    orders = desk.queue(**KEEPS)
    order = orders.put(desk.Order(), on=session)
    session.commit()
    assert order.state == "open"
    orders.take()
    order.state = "archived"
    with pytest.raises(xq.BadValue, match="is taken by now: cancel"):
        session.flush()
    session.rollback()
    with pytest.raises(xq.BadValue, match=r"Order\.xq\.cancel\(task, on=session\)"):
        order.state = "archived"


# what moves no task


@pytest.mark.parametrize(("value", "call"), [("sent", "ack"), ("Sent", "ack"), ("open", "release")])
def test_a_written_status_is_refused_with_the_call_to_use(desk, session, value, call):
    orders = desk.queue(**KEEPS)
    orders.put({})
    order = orders.take(on=session)
    with pytest.raises(xq.BadValue, match=rf"Order\.xq\.{call}\(task, on=session\)"):
        order.state = value
    assert not session.dirty


def test_the_status_of_a_stale_instance_is_refused_though_it_is_no_change(desk):
    orders = desk.queue(**KEEPS)
    with Session(desk.engine, expire_on_commit=False) as session:
        order = orders.put(desk.Order(), on=session)
        session.commit()
        orders.ack(orders.take())
        with pytest.raises(xq.BadValue):
            order.state = "open"


def test_the_queues_own_columns_are_refused(desk, session):
    orders = desk.queue(**KEEPS)
    order = orders.put(desk.Order(), on=session)
    for name in ("xq_owner", "xq_runat"):
        with pytest.raises(xq.BadValue, match="which only the queue writes"):
            delattr(order, name)


def test_a_row_that_is_no_task_gets_its_status(desk, session):
    orders = desk.queue(**KEEPS)
    session.add(order := desk.Order())
    session.flush()
    order.state = "open"
    session.commit()
    assert orders.take().id == order.id


def test_a_row_that_gets_its_status_is_put_with_all_features(desk, session):
    orders = desk.queue({"unique": "number"}, **KEEPS, lifetime=100, limit=2, unique=True)
    session.add_all(drafts := [desk.Order(number=number) for number in "abcb"])
    session.commit()
    drafts[1].state = "open"
    session.commit()
    assert (desk.rows(desk.Order.xq_deadline)[1], desk.seen) == ((1_100,), ["put X-R"])
    drafts[3].state = "open"
    with pytest.raises(xq.Duplicate):
        session.flush()
    session.rollback()
    drafts[0].state = drafts[2].state = "open"
    with pytest.raises(xq.Full):
        session.flush()
    session.rollback()
    assert orders.stats().counts["R"] == 1


def test_a_row_of_the_session_that_is_no_task_is_put_with_options(desk, session):
    orders = desk.queue(**KEEPS, limit=1)
    session.add_all(drafts := [desk.Order(cents=8), desk.Order()])
    session.commit()
    assert orders.put(drafts[0], on=session, delay=60) is drafts[0]
    with pytest.raises(xq.Full):
        orders.put(drafts[1], on=session)
    session.commit()
    assert desk.rows(desk.Order.state, desk.Order.cents, desk.Order.xq_runat) == [("later", 8, 1_060), (None, 0, None)]
    with pytest.raises(xq.BadValue, match="is a task already"):
        orders.put(drafts[0], on=session)


@pytest.mark.parametrize("word", ["sending", "later"])
def test_a_row_does_not_become_a_task_that_nothing_moves(desk, session, word):
    desk.queue(**KEEPS)
    session.add(order := desk.Order())
    session.flush()
    order.state = word
    with pytest.raises(xq.BadValue, match=f"a task has '{word}'"):
        session.flush()


def test_a_stale_row_is_not_put_a_second_time(desk):
    orders = desk.queue(**KEEPS)
    with Session(desk.engine, expire_on_commit=False) as first, Session(desk.engine) as second:
        first.add(stale := desk.Order())
        first.commit()
        second.get_one(desk.Order, 1).state = "open"
        second.commit()
        orders.ack(orders.take())
        stale.state = "open"
        with pytest.raises(xq.BadValue, match="has become a task since"):
            first.commit()
    assert desk.rows(desk.Order.state) == [("sent",)]


def test_a_status_is_taken_back_before_the_flush(desk, session):
    orders = desk.queue(**KEEPS)
    session.add(order := desk.Order())
    session.flush()
    order.state = "open"
    order.state = None
    session.commit()
    assert orders.stats().counts["R"] == 0


def test_merge_of_a_stale_instance_leaves_the_queues_columns_out(desk, session):
    orders = desk.queue(**KEEPS)
    orders.put({})
    stale = orders.take()
    orders.ack(stale)
    stale.cents = 4
    session.merge(stale)
    session.commit()
    assert desk.rows(desk.Order.state, desk.Order.cents, desk.Order.xq_runat) == [("sent", 4, None)]


def test_merge_of_an_instance_whose_row_is_gone_is_refused(desk, session):
    orders = desk.queue()
    orders.put({})
    stale = orders.take()
    orders.ack(stale)
    with pytest.raises(xq.NotFound, match="put\\(\\) puts a new one"):
        session.merge(stale)


def test_a_session_of_an_older_process_goes_on_to_add_and_put_orders(desk, session, shared_db, monkeypatch):
    orders = desk.queue(keep=True, delayed=True, unique=True, roles={"unique": "number"})
    newer = Desk(shared_db)
    newer.queue(**KEEPS, unique=True, max_takes=3, roles={"unique": "number"})
    a_second_passes(monkeypatch)
    session.add(desk.Order(state="open", number="one"))
    session.commit()
    orders.put(desk.Order(number="two"), on=session)
    session.commit()
    session.add(desk.Order(state="open", number="two"))
    with pytest.raises(xq.Duplicate):
        session.commit()
    session.rollback()
    with pytest.raises(xq.NotInstalled, match="its puts go on"):
        orders.take()
    third = Desk(shared_db)
    third.queue(**KEEPS, roles={"unique": "number"})
    a_second_passes(monkeypatch)
    session.add(desk.Order(state="open", number="three"))
    with pytest.raises(xq.NotInstalled):
        session.commit()
    assert (third.orders.stats().counts["R"], third.orders.check()) == (2, [])
