"""What a mapped class may be and hold: its types, defaults, keys and ways of mapping."""

# mypy: disable-error-code="valid-type,misc,arg-type,attr-defined,var-annotated,unused-ignore"

from __future__ import annotations

import enum
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlmodel
from sqlmodel.main import default_registry

import sqlalchemy as sa
import xq
from sqlalchemy import orm
from sqlalchemy.dialects import mysql, postgresql
from tests.conftest import fresh
from tests.sqlalchemy.maker import engine_of
from tests.support.life import end_threads
from xq.adapters.sqlalchemy import upgrade
from xq.testing import Clock

db = fresh(["sqlite", "postgres", "mariadb", "mysql"])
FEATURES = {"keep": True, "buried": True}


class State(enum.Enum):
    OPEN = "open!"
    SENDING = "sending!"
    SENT = "sent!"
    FAILED = "failed!"


def converted(impl: Any, bind: Any, result: Any) -> Any:
    """A type of the application."""
    way = {"process_bind_param": lambda _, value, dialect: bind(value)}
    way |= {"process_result_value": lambda _, value, dialect: result(value)}
    return type("Converted", (sa.TypeDecorator,), {"impl": impl, "cache_ok": False, **way})


Cents = converted(sa.Integer, lambda value: value and round(value * 100), lambda value: value and value / 100)
Names = converted(sa.JSON, lambda names: {"names": names}, lambda found: found["names"])
Bytes = sa.BINARY(16).with_variant(sa.LargeBinary(), "postgresql")
Binary = converted(Bytes, lambda key: key and key.bytes, lambda found: found and uuid.UUID(bytes=found))


@pytest.fixture
def engine(db):
    made = engine_of(db)
    yield made
    end_threads()
    assert made.pool.checkedout() == 0
    made.dispose()


@pytest.fixture
def base():
    return type("Base", (orm.DeclarativeBase,), {})


def queue_of(engine, model, fields=None, features=FEATURES, **options):
    made = upgrade(model, fields, features, engine=engine, **options)
    queue_table(made).metadata.create_all(engine)
    made.install()
    return made


def queue_table(queue):
    return sa.inspect(queue.model).local_table


def seconds(when):
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def done(queue, task):
    """What a task is after a put, a take and an ack, and as a session of the application reads it."""
    put = queue.put(task)
    taken = queue.take()
    acked = queue.ack(taken)
    with orm.Session(queue.parts.store.known_engine) as session:
        return [put, taken, acked, session.get_one(queue.model, sa.inspect(acked).identity)]


def test_values_come_back_as_the_application_s_types(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[uuid.UUID] = orm.mapped_column(primary_key=True, default=uuid.uuid4)
        price: orm.Mapped[float] = orm.mapped_column(Cents)
        more: orm.Mapped[dict[str, Any]] = orm.mapped_column(sa.JSON)
        other: orm.Mapped[uuid.UUID]
        made: orm.Mapped[datetime]
        at: orm.Mapped[datetime] = orm.mapped_column(sa.DateTime(timezone=True))
        paid: orm.Mapped[bool] = orm.mapped_column(default=True)
        rest: orm.Mapped[Any] = orm.mapped_column(sa.Numeric(10, 2), default=2)
        raw: orm.Mapped[bytes] = orm.mapped_column(sa.LargeBinary)
        packed: orm.Mapped[Any] = orm.mapped_column(sa.PickleType)
        names: orm.Mapped[list[str]] = orm.mapped_column(Names)
        secret: orm.Mapped[int] = orm.mapped_column("hidden", default=lambda: 7)

    moment, key = datetime(2030, 1, 2, 3, 4, 5), uuid.uuid4()
    at = moment if engine.dialect.name != "postgresql" else moment.replace(tzinfo=UTC)
    queue = queue_of(engine, Order)
    new = Order(price=1.25, more={"a": [1]}, other=key, made=moment, at=at, raw=b"\0\xff", packed={1: 2}, names=["a"])
    for found in done(queue, new):
        assert (found.price, found.more, found.other) == (1.25, {"a": [1]}, key)
        assert (found.made, found.at, found.paid, found.rest) == (moment, at, True, 2)
        assert (found.raw, found.secret, type(found.id)) == (b"\0\xff", 7, uuid.UUID)
        assert (found.packed, found.names) == ({1: 2}, ["a"])


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_arrays_go_to_other_programs_and_come_from_them(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        words: orm.Mapped[Any] = orm.mapped_column(sa.ARRAY(sa.String(20)))
        ids: orm.Mapped[Any] = orm.mapped_column(postgresql.ARRAY(sa.Uuid))
        ats: orm.Mapped[Any] = orm.mapped_column(postgresql.ARRAY(sa.DateTime(timezone=True)))
        deep: orm.Mapped[Any] = orm.mapped_column(postgresql.ARRAY(sa.Integer, dimensions=2), nullable=True)

    queue, values = queue_of(engine, Order), (["a", None], [uuid.UUID(int=5)], [datetime(2030, 1, 2, tzinfo=UTC), None])
    queue.pipeline.bulk().begin(["words", "ids", "ats"]).put(0, [values])
    taken = queue.take()
    assert (taken.words, taken.ids, taken.ats) == values
    extract = queue.pipeline.extract()
    assert [*extract.read(["words", "ids", "ats"])] == [(values[0], [str(uuid.UUID(int=5))], values[2])]
    with pytest.raises(xq.BadValue, match=r"'deep' is INTEGER\[\]\[\]"):
        _ = extract.column("deep").declared


def test_a_key_may_be_a_uuid_in_bytes_and_people_name_it_as_a_uuid(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[uuid.UUID] = orm.mapped_column(Binary, primary_key=True)

    queue, keys = (
        queue_of(engine, Order, features={"buried": "any", "history": True}),
        [uuid.UUID(int=n) for n in range(3)],
    )
    queue.put_many([Order(id=key) for key in keys])
    assert [found.id for found in queue.find(f"key:{keys[1]}").tasks] == [keys[1]]
    assert queue.act("bury", "", chunk=1).run().done == 3
    assert {row.key for row in queue.history()} == {key.hex for key in keys}
    assert [queue.dig(key).id for key in keys] == keys


def test_states_are_stored_as_the_enum_s_names(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        state: orm.Mapped[State] = orm.mapped_column(sa.Enum(State, native_enum=False), default=State.OPEN)

    states = {"R": State.OPEN, "T": State.SENDING, "D": State.SENT, "B": State.FAILED}
    queue = queue_of(engine, Order, {"status": Order.state}, statuses=states)
    assert [found.state for found in done(queue, {})] == [State.OPEN, State.SENDING, State.SENT, State.SENT]
    with engine.connect() as connection:
        assert connection.scalars(sa.text("SELECT state FROM orders")).all() == ["SENT"]
    assert (queue.check(), queue.count(State.SENT)) == ([], 1)


def test_an_enum_s_values_are_stored_if_it_says_so(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        state: orm.Mapped[State] = orm.mapped_column(
            sa.Enum(State, native_enum=False, values_callable=lambda kind: [each.value for each in kind])
        )

    states = {"R": State.OPEN, "T": State.SENDING, "D": State.SENT, "B": State.FAILED}
    queue = queue_of(engine, Order, {"status": "state"}, statuses=states)
    assert [found.state for found in done(queue, {})] == [State.OPEN, State.SENDING, State.SENT, State.SENT]
    assert (queue.statuses["R"], queue.count(State.SENT)) == ("open!", 1)


def test_the_server_s_defaults_and_computed_columns_come_back(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        cents: orm.Mapped[int] = orm.mapped_column(server_default="5")
        double: orm.Mapped[int] = orm.mapped_column(sa.Computed("cents * 2", persisted=True))

    queue = queue_of(engine, Order)
    assert [found.double for found in done(queue, Order(cents=4))] == [8, 8, 8, 8]
    assert [(found.cents, found.double) for found in done(queue, Order())] == [(5, 10)] * 4
    assert [found.cents for found in queue.put_many([{}, Order(cents=1)])] == [5, 1]


def test_keys_may_have_several_columns(engine, base):
    class Order(base):
        __tablename__ = "orders"
        shop: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        number: orm.Mapped[str] = orm.mapped_column(sa.String(20), primary_key=True)

    queue = queue_of(engine, Order)
    assert {(found.shop, found.number) for found in done(queue, Order(shop=1, number="a"))} == {(1, "a")}
    assert queue.peek((1, "a")).number == "a"


def test_single_table_inheritance_returns_the_class_of_the_row(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        kind: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "plain"}

    class Gift(Order):
        card: orm.Mapped[str | None] = orm.mapped_column(sa.String(20))
        __mapper_args__ = {"polymorphic_identity": "gift", "polymorphic_load": "inline"}

    queue = queue_of(engine, Order)
    assert [(type(found), found.card) for found in done(queue, Gift(card="x"))] == [(Gift, "x")] * 4
    assert [type(found) for found in done(queue, Order())] == [Order] * 4


def test_calls_that_write_the_application_s_columns_count_versions_as_a_session_does(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        cents: orm.Mapped[int] = orm.mapped_column(default=0)
        version: orm.Mapped[int] = orm.mapped_column()
        changed: orm.Mapped[datetime] = orm.mapped_column(
            sa.DateTime(timezone=True), default=sa.func.now(), onupdate=sa.func.now()
        )
        __mapper_args__ = {"version_id_col": version}

    queue = queue_of(engine, Order, {"attempts": True}, clock=Clock(1_000))
    assert [task.version for task in (queue.put({}), *queue.put_many([{}, Order()]))] == [1, 1, 1]
    with orm.Session(engine) as session:
        edited = session.get_one(Order, 1)
        assert seconds(edited.changed) == 1_000
        queue.clock.tick(60)
        queue.release(queue.take())
        edited.cents = 1
        session.flush()  # the attempt has written nothing of the application's
        session.rollback()
        assert edited.version == 1
        assert queue.ack(queue.take(), update={"cents": 2}).version == 2
        assert seconds(queue.peek(1).changed) == 1_060
        edited.cents = 3
        with pytest.raises(orm.exc.StaleDataError):
            session.flush()
        session.rollback()
        assert (queue.put(Order(), on=session).version, edited.version) == (1, 2)


def test_versions_that_sql_cannot_count_are_refused(base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        version: orm.Mapped[str] = orm.mapped_column(sa.String(32))
        __mapper_args__ = {"version_id_col": version, "version_id_generator": lambda version: uuid.uuid4().hex}

    with pytest.raises(xq.ConfigurationError, match="versions of Order"):
        upgrade(Order)


def test_a_mapped_dataclass_is_a_queue(engine):
    class Base(orm.MappedAsDataclass, orm.DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(init=False, primary_key=True)
        name: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        cents: orm.Mapped[int] = orm.mapped_column(default=3)

    queue = queue_of(engine, Order)
    assert [(found.name, found.cents) for found in done(queue, Order("a"))] == [("a", 3)] * 4


def test_a_sqlmodel_is_a_queue(engine):
    sqlmodel.SQLModel.metadata.clear()
    default_registry.dispose()

    class Order(sqlmodel.SQLModel, table=True):
        __tablename__ = "orders"
        id: int | None = sqlmodel.Field(default=None, primary_key=True)
        name: str = sqlmodel.Field(max_length=20)
        key: uuid.UUID = sqlmodel.Field(default_factory=lambda: uuid.UUID(int=5))

    queue = queue_of(engine, Order)
    assert [(each.name, each.key) for each in done(queue, Order(name="a"))] == [("a", uuid.UUID(int=5))] * 4
    assert queue.peek(1).model_dump()["name"] == "a"


def test_an_imperative_mapping_is_a_queue(engine):
    class Order:
        pass

    table = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.Integer))
    orm.registry().map_imperatively(Order, table, properties={"number": table.c.n})
    table.metadata.create_all(engine)
    queue = queue_of(engine, Order)
    assert [found.number for found in done(queue, {"number": 3})] == [3] * 4


def test_a_table_is_a_queue_and_its_tasks_have_its_columns(engine):
    table = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.Integer))
    queue = queue_of(engine, table)
    assert [found.n for found in done(queue, {"n": 3})] == [3] * 4
    assert queue.name == "orders"


def test_what_was_loaded_has_no_changes_and_may_enter_a_session(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        name: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        length: orm.Mapped[int] = orm.column_property(sa.func.length(sa.column("name")))

    class Plain(base):
        __tablename__ = "plain"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        name: orm.Mapped[str] = orm.mapped_column(sa.String(20))

    for model in (Order, Plain):
        queue = queue_of(engine, model)
        queue.put(model(name="abc"))
        with orm.Session(engine) as session:
            taken = session.merge(queue.take(), load=False)
            assert taken not in session.dirty
            taken.name = "b"
            assert taken in session.dirty
            session.commit()
        assert queue.peek(1).name == "b"


def test_what_cannot_be_a_queue_is_refused_by_name(engine, base):
    class Animal(base):
        __tablename__ = "animals"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        kind: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        __mapper_args__ = {"polymorphic_on": "kind"}

    class Dog(Animal):
        __tablename__ = "dogs"
        id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("animals.id"), primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "dog"}

    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        kind: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        __mapper_args__ = {"polymorphic_on": "kind"}

    class Gift(Order):
        __mapper_args__ = {"polymorphic_identity": "gift", "polymorphic_load": "inline"}

    with pytest.raises(xq.ConfigurationError, match="joined inheritance.*one table"):
        upgrade(Dog)
    with pytest.raises(xq.ConfigurationError, match="joined inheritance.*one table"):
        upgrade(Animal)
    with pytest.raises(xq.ConfigurationError, match="upgrade Order"):
        upgrade(Gift)
    with pytest.raises(xq.ConfigurationError, match=r"schema_translate_map.*__table_args__"):
        upgrade(Order).parts.store.bind(engine.execution_options(schema_translate_map={None: "other"}))


def test_a_class_that_adds_a_column_to_a_queue_later_is_refused(base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        kind: orm.Mapped[str] = orm.mapped_column(sa.String(20))
        __mapper_args__ = {"polymorphic_on": "kind"}

    queue = upgrade(Order)

    class Gift(Order):  # has the columns of all
        __mapper_args__ = {"polymorphic_identity": "gift"}

    assert queue.parts.store.is_mine(Gift)
    with pytest.raises(xq.ConfigurationError, match=r"Card adds columns.*upgrade\(Order, \.\.\.\) below"):

        class Card(Order):
            card: orm.Mapped[str | None]
            __mapper_args__ = {"polymorphic_identity": "card"}


def test_a_queue_that_is_bound_later_has_the_types_of_its_database(engine):
    def order():
        class Order(type("Base", (orm.DeclarativeBase,), {})):
            __tablename__ = "orders"
            id: orm.Mapped[uuid.UUID] = orm.mapped_column(primary_key=True)
            at: orm.Mapped[datetime] = orm.mapped_column(
                sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
            )
            raw: orm.Mapped[bytes] = orm.mapped_column(sa.LargeBinary)

        return Order

    early, later = upgrade(order(), engine=engine), upgrade(order())
    later.bind(engine)
    its, wanted = (each.parts.tasks.table for each in (later, early))
    assert [field.type for field in its.fields] == [field.type for field in wanted.fields]
    assert [field.type for field in its.key] == [field.type for field in wanted.key]


def test_a_native_enum_as_status_is_refused_where_the_database_has_one(engine, base):
    class Order(base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        state: orm.Mapped[State]

    states = {"R": State.OPEN, "T": State.SENDING, "D": State.SENT, "B": State.FAILED}
    if engine.dialect.name == "sqlite":
        queue_of(engine, Order, {"status": Order.state}, statuses=states)
        return
    with pytest.raises(xq.ConfigurationError, match=r"native_enum=False"):
        upgrade(Order, {"status": Order.state}, FEATURES, statuses=states, engine=engine)
