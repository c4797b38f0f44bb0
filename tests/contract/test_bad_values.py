"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xq
from tests.conftest import DATABASES, Maker
from tests.steps import Bytes, refused
from tests.support.bad_values import ROLES, VALUES, Call, HostileError, Other, fits
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

EVERY = {"buried": True, "delayed": True, "zombie": 9, "ttl": 60, "ttr": 60, "unique": True, "limit": 50}
FIELDS = ("id", "name", "size", "status", "runat", "deadline", "priority", "tube", "owner", "attempts", "ttl", "ttr")


Other.create_table()


class Bare(pw.BareField):
    """A column of no type, where a database has such; else of text."""

    def ddl_datatype(self, ctx: Any) -> Any:
        return None if ctx.state.param == "?" else pw.SQL("TEXT")


# A field of each kind that Peewee has, for the application's own.
OWN: Mapping[str, Callable[[], pw.Field]] = {
    "big": lambda: pw.BigIntegerField(null=True),
    "small": lambda: pw.SmallIntegerField(null=True),
    "real": lambda: pw.FloatField(null=True),
    "money": lambda: pw.DecimalField(null=True),
    "yes": lambda: pw.BooleanField(null=True),
    "char": lambda: pw.CharField(max_length=5, null=True),
    "fixed": lambda: pw.FixedCharField(5, null=True),
    "blob": lambda: pw.BlobField(null=True),
    "bits": lambda: pw.BitField(),
    "uuid": lambda: pw.UUIDField(null=True),
    "binary": lambda: pw.BinaryUUIDField(null=True),
    "moment": lambda: pw.DateTimeField(null=True),
    "day": lambda: pw.DateField(null=True),
    "hour": lambda: pw.TimeField(null=True),
    "stamp": lambda: pw.TimestampField(null=True, default=None),
    "ip": lambda: pw.IPField(null=True),
    "bare": lambda: Bare(null=True),
    "other": lambda: pw.ForeignKeyField(Other, null=True),
}


def _calls() -> Iterator[tuple[str, Call]]:
    """Each argument of each public method, by what a reader would write."""
    options = {
        "put": ("delay", "ttl", "ttr", "on_conflict"),
        "put_many": ("delay", "ttl", "ttr", "on_conflict"),
        "take": ("tube", "ttr"),
        "take_many": ("tube", "ttr"),
        "ack": ("update", "delay"),
        "release": ("update", "delay", "ttl", "ttr"),
        "bury": ("update",),
        "dig": ("update", "delay", "ttl"),
        "kick": (),
        "plow": ("update", "ttl"),
        "kill": (),
        "snatch": ("delay",),
        "restart": ("delay",),
        "ack_many": ("update", "delay"),
        "release_many": ("update", "delay", "ttl", "ttr"),
        "bury_many": ("update", "error"),
        "kill_many": (),
    }
    subject = {  # an argument for which the call works, to try the options with
        "put": lambda Task: ({},),
        "put_many": lambda Task: ([{}, {"name": "x"}],),
        "take": lambda Task: (),
        "take_many": lambda Task: (2,),
        "plow": lambda Task: (),
        "dig": lambda Task: (key(Task, "B"),),
        "kick": lambda Task: (key(Task, "B"),),
        "restart": lambda Task: (key(Task, "Z"),),
    }

    def option(method: str, name: str) -> Call:
        def call(Task: Any, value: Any) -> Any:
            many = method.endswith("_many") and method not in subject
            found = ([key(Task, "T")],) if many else subject.get(method, lambda Task: (key(Task, "T"),))(Task)
            return getattr(Task.xq, method)(*found, **{name: value})

        return call

    def field(method: str, name: str) -> Call:
        def call(Task: Any, value: Any) -> Any:
            if method == "put":
                return Task.xq.put({name: value})
            if method == "put_many":
                return Task.xq.put_many([{}, {name: value}])
            if method == "instance":
                return Task.xq.put(Task(**{name: value}))
            if method == "sequence":
                return Task.xq.put([value if field == name else None for field in Task._meta.sorted_field_names])
            return Task.xq.ack(key(Task, "T"), update={name: value})

        return call

    def of_keys(method: str) -> Iterator[tuple[str, Call]]:
        if method not in ("take", "plow"):
            yield f"{method}(v)", lambda Task, v: getattr(Task.xq, method)(v)
        if method.endswith("_many"):
            yield f"{method}([v])", lambda Task, v: getattr(Task.xq, method)([v])
            yield f"{method}([key, v])", lambda Task, v: getattr(Task.xq, method)([key(Task, "T"), v])

    for method, names in options.items():
        yield from of_keys(method)
        for name in names:
            yield f"{method}({name}=v)", option(method, name)
        if set(names) - {"update", "error"}:
            yield f"{method}(nonsense=v)", option(method, "nonsense")
    for name in FIELDS:
        for method in ("put", "update"):
            yield f"{method}: {name}=v", field(method, name)
    for name in ("id", "name", "size", "status", "priority", "ttl"):
        for method in ("put_many", "instance", "sequence"):
            yield f"{method}: {name}=v", field(method, name)
    for text in WRITTEN:
        yield text, eval(f"lambda Task, v: Task.{text}")


# more calls, as they are written: of Task
WRITTEN = (
    "xq.put({v: 1})", "xq.ack(key(Task, 'T'), update={v: 1})", "ack({'id': v})", "kill({'id': v})",
    "xq.ack(Task(id=v))", "xq.peek(Task(id=v))", "xq.peek(v)", "xq.touch(v, 1)", "xq.touch_many(v, 1)",
    "xq.touch_many([key(Task, 'T')], v)", "touch(key(Task, 'T'), v)", "xq.switch(v, 'R')",
    "get(status='T').ack(update=v)", "get(status='T').release(delay=v)", "get(status='T').touch(v)",
    "xq.switch(key(Task, 'R'), v)", "xq.switch(key(Task, 'R'), 'W', delay=v)",
    "xq.switch(key(Task, 'R'), 'Z', delay=v)", "xq.call(v, key(Task, 'T'))", "xq.call('ack', v)",
    "xq.call('take', v)", "xq.call('touch', key(Task, 'T'), increment=v)",
    "xq.call('ack', key(Task, 'T'), update=v)", "dig(n=v)", "kick(n=v)", "plow(v)", "xq.by_state(v)",
    "xq.by_state('R', v)", "xq.count(v)", "xq.session(v)", "xq.reconfigure(v)",
    "xq.reconfigure({'delayed': True}, move=v)", "xq.reconfigure({'delayed': True}, move={'B': v})",
    "xq.reconfigure({'delayed': True}, move={v: 'R'})", "xq.reconfigure({'ttl': v})", "xq.reconfigure({'keep': v})",
    "xq.reconfigure({'id': v})", "xq.reconfigure({'nonsense': v})",
)  # fmt: skip
CALLS = dict(_calls())


def key(Task: Any, state: str) -> Any:
    """The key of a task that is in a state, and held by this session where it is T."""
    return Task.keys[state]


def stock(make: Any, **fields: pw.Field) -> Any:
    """A queue with tasks in each state."""
    if any(isinstance(field, pw.ForeignKeyField) for field in fields.values()):
        with Other.bind_ctx(make.db):
            Other.create_table()
    Task = make(EVERY, roles=ROLES, attributes=fields)
    Task.keys = {}
    for state in "TBZRRW":
        options = {"delay": 5} if state == "W" else {}
        Task.keys[state] = Task.put({"name": state, "tube": "a"}, **options).id
        if state in "TBZ":
            task = Task.take()
        if state == "B":
            task.bury()
        if state == "Z":
            task.ack()
    return Task


def reading(db: pw.Database, tables: Iterable[str]) -> str:
    """One statement that reads all rows of these tables."""
    quote = db.quote[0]
    cast = "{}" if isinstance(db, pw.SqliteDatabase) else "CAST({} AS BINARY)"
    if isinstance(db, pw.PostgresqlDatabase):
        cast = "CAST({} AS text)"
    columns = {table: [column.name for column in db.get_columns(table)] for table in tables}
    widest = max(map(len, columns.values()))
    return " UNION ALL ".join(
        f"SELECT '{table}'"
        + "".join(f", {cast.format(quote + name + quote)}" for name in names)
        + ", NULL" * (widest - len(names))
        + f" FROM {quote}{table}{quote}"
        for table, names in columns.items()
    )


class Trial:
    """A queue that calls are tried on, in a transaction of the application and, where that is refused, without."""

    def __init__(self, fresh: Callable[[], Any]) -> None:
        self.fresh = fresh
        self.Task: Any = None
        self.calls: dict[str, tuple[Call, Callable[[], Any]]] = {}
        self.reading: dict[tuple[str, ...], str] = {}  # the tables -> what reads them

    def __call__(self, name: str, call: Call, make: Callable[[], Any]) -> None:
        self.calls[name] = call, make

    @property
    def wrong(self) -> dict[str, str]:
        """What is wrong, by call. To look for changes after each takes minutes: only if there are any after all."""
        wrong, changed = self.tried(self.calls)
        if changed:
            each = [self.tried({name: self.calls[name]})[0] for name in self.calls]
            wrong = {name: what for found in each for name, what in found.items()}
        return wrong

    def tried(self, calls: Mapping[str, tuple[Call, Callable[[], Any]]]) -> tuple[dict[str, str], bool]:
        """What is wrong with calls, made one after the other, and whether something has changed that was not undone."""
        self.begin()
        wrong, refused = {}, {}
        with self.db.atomic() as transaction:
            for name, (call, make) in calls.items():
                with self.db.savepoint() as savepoint:
                    worked, what = self.outcome(call, make())
                    if worked:
                        savepoint.rollback()
                if what:
                    wrong[name] = what
                if not worked:
                    refused[name] = call, make
            changed = self.changed
            transaction.rollback()
        stayed = False  # what a call did that worked only now, and changed something, is no fault
        for name, (call, make) in refused.items():
            worked, what = self.outcome(call, make())
            if what:
                wrong[name] = what
            if worked and self.changed:
                stayed |= len(calls) == 1
                self.begin(anew=True)
        changed |= self.changed
        if changed and len(calls) == 1 and refused and not stayed:
            (name,) = calls
            wrong[name] = f"{wrong.get(name, 'refused')}, and something changed"
        if changed:
            self.begin(anew=True)
        return wrong, changed

    def begin(self, anew: bool = False) -> None:
        if anew:
            self.Task.drop_table()
        if anew or self.Task is None:
            self.Task = self.fresh()
            self.db = self.Task._meta.database
            self.before = self.everything()

    @property
    def changed(self) -> bool:
        """Whether something is not as it was."""
        # Who lives is written beside the transaction, which may go on seeing what is over.
        beside = ["xq_alive"] if self.db.in_transaction() else []
        before, now = ([row for row in rows if row[0] not in beside] for rows in (self.before, self.everything()))
        return before != now

    def everything(self) -> list[Any]:
        """All that a call could have changed: the tables, the rows, the counters, who holds what, the sessions."""
        tables = tuple(sorted(self.db.get_tables()))
        if tables not in self.reading:
            self.reading[tables] = reading(self.db, tables)
        rows = self.db.execute_sql(self.reading[tables]).fetchall()
        return [*zip(tables, strict=True), *sorted(rows, key=repr)]

    def outcome(self, call: Call, value: Any) -> tuple[bool, str]:
        """Whether a call worked, and what is wrong with how it ended."""
        try:
            with refused(self.db) if self.db.in_transaction() else nullcontext():
                call(self.Task, value)
        except (xq.Error, pw.IntegrityError, pw.DataError) as error:  # what the database refuses is Peewee's
            return False, self.message_of(error)
        except HostileError:
            return False, ""
        except Exception as error:
            return False, repr(error)[:150]
        return True, "; ".join(self.Task.xq.check())

    @staticmethod
    def message_of(error: Exception) -> str:
        try:
            str(error)
        except Exception as second:
            return f"{type(error).__name__} cannot be told: {second!r}"
        return ""


@pytest.fixture(scope="module", params=DATABASES)
def stocked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One queue for many tests, since none of them leaves it changed: to make one takes longer than most of them."""
    with DATABASES[request.param](tmp_path_factory.mktemp("stocked")) as database:
        make = Maker(database, Clock())
        yield Trial(lambda: stock(make))


def test_a_call_works_or_says_what_is_wrong_and_changes_nothing(stocked, subtests):
    for name, call in CALLS.items():
        with subtests.test(name):
            stocked.calls = {value: (call, made) for value, made in VALUES.items() if fits(name, made())}
            assert stocked.wrong == {}


@pytest.mark.parametrize("field", OWN)
def test_a_field_of_any_kind_takes_any_value_or_says_that_it_cannot(make, field):
    trial = Trial(lambda: stock(make, own=OWN[field]()))
    for value, made in VALUES.items():
        trial(f"put {value}", lambda Task, v: Task.put({"own": v}), made)
        trial(f"ack with {value}", lambda Task, v: Task.ack(key(Task, "T"), update={"own": v}), made)
    assert trial.wrong == {}


KEYS: Mapping[str, Mapping[str, Any]] = {
    "time64": {"key": lambda: pw.BigIntegerField(primary_key=True)},
    "uuid": {"key": lambda: pw.UUIDField(primary_key=True)},
    "binary": {"key": lambda: pw.BinaryUUIDField(primary_key=True)},
    "text": {"key": lambda: pw.CharField(primary_key=True)},
    "char": {"key": lambda: pw.CharField(primary_key=True, max_length=36)},
    "integer": {"key": lambda: pw.IntegerField(primary_key=True)},
    "real": {"key": lambda: pw.DoubleField(primary_key=True)},
    "moment": {"key": lambda: pw.DateTimeField(primary_key=True)},
    "blob": {"key": lambda: Bytes(primary_key=True)},
    "made": {"key": lambda: pw.IntegerField(primary_key=True), "features": {"id": lambda task: task["size"]}},
    "dict": {"features": {"retval": "dict"}},
    "tuple": {"features": {"retval": "tuple"}},
}


def of_key(make: Any, kind: str) -> Any:
    """A queue whose key is of this kind, with one task, which is taken if it could be put without a key."""
    told = KEYS[kind]
    key = told["key"]() if "key" in told else None
    Task = make(told.get("features", {}), key=key, roles=("runat",))
    try:
        Task.put({"size": 7})
        Task.take()
    except xq.BadValue:
        assert kind in ("integer", "real", "moment", "blob", "binary")  # these keys nobody makes
    return Task


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_kind_is_any_value_or_what_is_wrong_is_said(make, kind):
    trial = Trial(lambda: of_key(make, kind))
    for value, made in VALUES.items():
        trial(f"put {value}", lambda Task, v: Task.put({"id": v}), made)
        trial(f"put_many {value}", lambda Task, v: Task.xq.put_many([{"id": v}, {"id": v}]), made)
        trial(f"ack {value}", lambda Task, v: Task.ack(v), made)
        trial(f"kill_many {value}", lambda Task, v: Task.xq.kill_many([v, v]), made)
        trial(f"kill a mapping of {value}", lambda Task, v: Task.kill({"id": v}), made)
    assert trial.wrong == {}


def test_a_part_of_a_composite_key_is_any_value_or_what_is_wrong_is_said(make):
    def fresh() -> Any:
        meta = {"primary_key": pw.CompositeKey("a", "b")}
        Task = make({}, attributes={"a": pw.IntegerField(), "b": pw.CharField(), "meta": meta})
        Task.put({"a": 1, "b": "x"})
        Task.take()
        return Task

    trial = Trial(fresh)
    for value, made in VALUES.items():
        trial(f"put a={value}", lambda Task, v: Task.put({"a": v, "b": "x"}), made)
        trial(f"put b={value}", lambda Task, v: Task.put({"a": 1, "b": v}), made)
        trial(f"peek {value}", lambda Task, v: Task.xq.peek(v), made)
        trial(f"peek ({value}, x)", lambda Task, v: Task.xq.peek((v, "x")), made)
        trial(f"ack (1, {value})", lambda Task, v: Task.ack((1, v)), made)
        trial(f"ack (1, x, {value})", lambda Task, v: Task.ack((1, "x", v)), made)
        trial(f"kill_many (1, {value})", lambda Task, v: Task.xq.kill_many([(1, v), (2, v)]), made)
        trial(f"kill a={value}", lambda Task, v: Task.kill({"a": v, "b": "x"}), made)
    assert trial.wrong == {}


# Values that nobody thought of.

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.decimals(allow_nan=True),
    st.fractions(),
    st.text(),
    st.characters(categories=["Cs"]),
    st.binary(max_size=20),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([int, str, object(), math, Ellipsis, NotImplemented, print, *FIELDS]),
)
anything = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=3), st.integers()), inner, max_size=4),
        st.lists(inner, max_size=3).map(iter),
    ),
    max_leaves=8,
)


def test_a_call_with_anything_works_or_says_what_is_wrong_and_changes_nothing(stocked):
    @settings(
        max_examples=300, derandomize=True, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
    )
    @given(name=st.sampled_from(list(CALLS)), value=anything)
    def test(name: str, value: Any) -> None:
        if fits(name, value):
            assert stocked.tried({name: (CALLS[name], lambda: value)})[0] == {}

    test()


def test_a_text_with_a_zero_byte_is_held_or_refused_by_the_name_of_its_field(make):
    Task = make({"keep": True})
    put = Task.put({})
    taken = Task.take()
    calls = (
        lambda: Task.put({"name": "a\0b"}),
        lambda: Task.xq.put_many([{"name": "a"}, {"name": "a\0b"}])[1],
        lambda: taken.ack(update={"name": "a\0b"}),
    )
    for call in calls:
        if isinstance(make.db, pw.PostgresqlDatabase):
            with pytest.raises(xq.BadValue, match=r"'name' of Task is 'a\\x00b'"):
                call()
        else:
            assert call().name == "a\0b"
    assert Task.xq.peek(put).status == ("T" if isinstance(make.db, pw.PostgresqlDatabase) else "D")
