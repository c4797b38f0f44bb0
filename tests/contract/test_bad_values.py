"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, Maker
from tests.features import EXAMPLES, concerns_calls, options_of, together
from tests.steps import Bytes, refused
from tests.support.bad_values import VALUES, Call, HostileError, fits
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

EVERY = {name: value for name, value in together(zombie=9).items() if concerns_calls(name)}
ROLES = ("runat", "priority", "tube", "owner", "attempts", "unique", "ttl", "ttr")
FIELDS = ("id", "name", "size", "status", "deadline", *ROLES)
ALIASES = {"kick": "dig", "plow": "dig"}  # method -> event
PAUSES = {"timeout", "wait", "on"}  # arguments with which a call may wait, or needs a connection

# Each method, with arguments by which it works: K has the keys of tasks by their states. Those of the features' own
# events are in their examples.
METHODS: Mapping[str, str] = {
    "put": "{}",
    "put_many": "[{}, {'name': 'x'}]",
    "take": "",
    "take_many": "2",
    **dict.fromkeys(("ack", "release", "bury", "kill", "cancel", "snatch"), "K['T']"),
    **dict.fromkeys(("dig", "kick"), "K['B']"),
    "plow": "",
    "restart": "K['Z']",
    **{f"{event}_many": "[K['T']]" for event in ("ack", "release", "bury", "kill")},
}
# more calls, as they are written: of Task
WRITTEN = (
    "xq.put({v: 1})", "xq.ack(K['T'], update={v: 1})", "ack({'id': v})", "kill({'id': v})",
    "xq.ack(Task(id=v))", "xq.peek(Task(id=v))", "xq.peek(v)", "xq.touch(v, 1)", "xq.touch_many(v, 1)",
    "xq.touch_many([K['T']], v)", "xq.touch_many([K['T']], update=v)", "touch(K['T'], v)", "xq.switch(v, 'R')",
    "get(status='T').ack(update=v)", "get(status='T').release(delay=v)", "get(status='T').touch(v)",
    "get(status='T').touch(update=v)",
    "xq.switch(K['R'], v)", "xq.switch(K['R'], 'W', delay=v)", "xq.switch(K['R'], 'Z', delay=v)",
    "xq.call(v, K['T'])", "xq.call('ack', v)", "xq.call('take', v)", "xq.call('touch', K['T'], increment=v)",
    "xq.call('ack', K['T'], update=v)", "dig(n=v)", "kick(n=v)", "plow(v)", "xq.by_state(v)", "xq.count(v)",
    "xq.by_state('R', v)",
)  # fmt: skip


def _options(method: str) -> list[str]:
    """The options of a method: those of its signature, and of its event in a queue with these features."""
    parameters = inspect.signature(getattr(xq.Queue, method)).parameters.values()
    named = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    event = method.removesuffix("_many")
    if all(each.kind is not each.VAR_KEYWORD for each in parameters):
        return sorted(named - PAUSES)
    return sorted((named | options_of(EVERY, ALIASES.get(event, event)) | {"nonsense"}) - PAUSES)


def _of_features() -> Iterator[str]:
    """Each argument of the methods that the features bring, as in their examples."""
    for here, event, options, *_ in (line for name in EVERY for line in EXAMPLES[name].calls):
        if event not in {*METHODS, "touch"}:
            for wrong in ("", *options):
                given = "".join(f", {name}={'v' if name == wrong else repr(value)}" for name, value in options.items())
                key = f"K[{here!r}]" if wrong else "v"
                yield from (f"xq.{event}({key}{given})", f"xq.{event}_many([{key}]{given})")
                yield f"xq.{event}_many([K[{here!r}], v]{given})"


def _written() -> Iterator[str]:
    """Each argument of each public method, as a reader would write it."""
    for method, works in METHODS.items():
        if method not in ("take", "plow"):
            yield f"xq.{method}(v)"
        if method.endswith("_many"):
            yield from (f"xq.{method}([v])", f"xq.{method}([K['T'], v])")
        yield from (f"xq.{method}(*[{works}], {option}=v)" for option in _options(method))
    yield from _of_features()
    for name in FIELDS:
        yield from (f"xq.put({{'{name}': v}})", f"xq.ack(K['T'], update={{'{name}': v}})")
    for name in ("id", "name", "size", "status", "priority", "ttl"):
        yield from (f"xq.put_many([{{}}, {{'{name}': v}}])", f"xq.put(Task({name}=v))")
        yield f"xq.put([v if name == '{name}' else None for name in Task._meta.sorted_field_names])"
    yield from WRITTEN


CALLS: Mapping[str, Call] = {
    text: eval(f"lambda Task, v: Task.{text}".replace("K[", "Task.keys[")) for text in _written()
}


def stock(make: Any) -> Any:
    """A queue with tasks in each state."""
    Task = make(EVERY, roles=ROLES)
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


Tries = Mapping[str, tuple[Call, Callable[[], Any]]]  # a call, and what makes its value


class Trial:
    """A queue that calls are tried on, in a transaction of the application and, where that is refused, without."""

    def __init__(self, fresh: Callable[[], Any]) -> None:
        self.fresh = fresh
        self.begin()

    def begin(self) -> None:
        self.Task = self.fresh()
        self.db = self.Task._meta.database
        self.before = self.everything()

    def wrong(self, tries: Tries) -> dict[str, str]:
        """What is wrong with calls, made one after the other: how they ended, or that something has changed."""
        wrong, refused = {}, {}
        with self.db.atomic() as transaction:
            for name, (call, make) in tries.items():
                with self.db.savepoint() as savepoint:
                    worked, what = self.outcome(call, make())
                    if worked:
                        savepoint.rollback()
                    else:
                        refused[name] = call, make
                    wrong[name] = what
            wrong["all, in a transaction"] = self.changes()
            transaction.rollback()
        for name, (call, make) in refused.items():
            worked, wrong[name] = self.outcome(call, make())
            if worked and self.changes():  # which a transaction did not allow
                self.Task.drop_table()
                self.begin()
        wrong["all, without a transaction"] = self.changes()
        found = {name: what for name, what in wrong.items() if what}
        if found:
            self.Task.drop_table()
            self.begin()
        return found

    def changes(self) -> str:
        """What is not as it was. Who lives is written beside the transaction, which may not see it yet."""
        beside = {"xq_alive"} if self.db.in_transaction() else set[str]()
        now = self.everything()
        return ", ".join(t for t in sorted({*self.before, *now} - beside) if self.before.get(t) != now.get(t))

    def everything(self) -> dict[str, list[str]]:
        """All that a call could have changed: the rows, the counters, who holds what, the sessions."""
        quote = self.db.quote[0]
        selects = {table: f"SELECT * FROM {quote}{table}{quote}" for table in self.db.get_tables()}
        return {table: sorted(map(repr, self.db.execute_sql(sql))) for table, sql in selects.items()}

    def outcome(self, call: Call, value: Any) -> tuple[bool, str]:
        """Whether a call worked, and what is wrong with how it ended."""
        try:
            with refused(self.db) if self.db.in_transaction() else nullcontext():
                call(self.Task, value)
        except (xq.Error, pw.IntegrityError, pw.DataError) as error:  # what the database refuses is Peewee's
            return False, "" if str(error) else "it does not say what is wrong"
        except HostileError:
            return False, ""
        except Exception as error:
            return False, repr(error)[:150]
        return True, "; ".join(self.Task.xq.check())


@pytest.fixture(scope="module", params=DATABASES)
def stocked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One queue for many tests, since none of them leaves it changed: to make one takes longer than most of them."""
    with DATABASES[request.param](tmp_path_factory.mktemp("stocked")) as database:
        make = Maker(database, Clock())
        yield Trial(lambda: stock(make))


def tries(calls: Mapping[str, Call]) -> Tries:
    """These calls, each with each value."""
    return {
        f"{name}, v = {value}": (call, made)
        for name, call in calls.items()
        for value, made in VALUES.items()
        if fits(name, made())
    }


@pytest.mark.parametrize("part", range(4))
def test_a_call_works_or_says_what_is_wrong_and_changes_nothing(stocked, subtests, part):
    for name, call in [*CALLS.items()][part::4]:
        with subtests.test(name):
            assert stocked.wrong(tries({name: call})) == {}


KEYS: Mapping[str, Callable[[], pw.Field]] = {
    "text": lambda: pw.CharField(primary_key=True),
    "char": lambda: pw.CharField(primary_key=True, max_length=36),
    "big": lambda: pw.BigIntegerField(primary_key=True),
    "uuid": lambda: pw.UUIDField(primary_key=True),
    "binary": lambda: pw.BinaryUUIDField(primary_key=True),
    "integer": lambda: pw.IntegerField(primary_key=True),
    "real": lambda: pw.DoubleField(primary_key=True),
    "moment": lambda: pw.DateTimeField(primary_key=True),
    "blob": lambda: Bytes(primary_key=True),
    "counted": pw.AutoField,
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_kind_is_any_value_or_what_is_wrong_is_said(make, kind):
    def fresh() -> Any:
        """A queue with one task, which is taken, if it can be put without a key."""
        Task = make(key=KEYS[kind](), roles=("runat",))
        with suppress(xq.BadValue):
            Task.put({"size": 7})
            Task.take()
        return Task

    calls: Mapping[str, Call] = {
        "put": lambda Task, v: Task.put({"id": v}),
        "put_many": lambda Task, v: Task.xq.put_many([{"id": v}, {"id": v}]),
        "ack": lambda Task, v: Task.ack(v),
        "kill_many": lambda Task, v: Task.xq.kill_many([v, v]),
        "kill a mapping": lambda Task, v: Task.kill({"id": v}),
    }
    assert Trial(fresh).wrong(tries(calls)) == {}
