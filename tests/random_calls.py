"""Random calls on a queue and on a model of it: after each, both hold the same. By whatever ORM the application has.

XQ_HYPOTHESIS_EXAMPLES=5000 looks for longer.
"""

from __future__ import annotations

import datetime as dt
import faulthandler
import itertools
import math
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import xq
from tests.conftest import DATABASES, SERVERS, Maker
from tests.model import Model, Refused
from tests.steps import install_anew, wrong
from xq.core.machine import FOREVER
from xq.engine.stats import counters, writes
from xq.testing import Clock

Values = Mapping[str, Any]

# A feature of a user's own.
NAP = xq.Feature(
    "nap",
    needs=("runat",),
    transitions=(
        *(xq.Transition("R", "nap", "P"), xq.Transition("P", "wake", "R")),
        xq.Transition("T", "retry", "R", fenced=True),
    ),
    timers=(xq.Timer("P", "nap", "R", option="nap", default=30.0),),
)
KEYS = ("auto", "time64", "uuid", "text", "required", "callable", "composite")
NOBODYS = {"uuid": uuid.UUID(int=1), "text": "nobody's", "composite": (-1, "nobody's")}  # keys of no task
TIMES = ("double", "bigint", "datetime")
EPOCH = dt.datetime(1970, 1, 1)
WORDS: list[Mapping[str, Any]] = [
    {},
    {"R": "new", "T": "processing", "B": "it's failed", "D": "done", "Z": "W", "W": "later", "P": "parked"},
    {"R": 0, "T": 1, "W": -2, "B": 3, "Z": 4, "D": 2**40, "P": 6},
]
ODD = ('"order', "b;--", "c 'd", "ü")  # names of columns and of the table
OPTIONAL = ("priority", "tube", "owner", "attempts", "ttl", "ttr")
NEEDED = dict.fromkeys(("delayed", "zombie", "ttl", "ttr", "nap"), "runat")
NEEDED |= {"lifetime": "deadline", "unique": "unique", "utube": "utube"}
OPTIONS = {  # of the events that move a task by its key
    **dict.fromkeys(("ack", "snatch", "restart", "switch"), ("delay",)),
    **dict.fromkeys(("dig", "wake", "retry"), ("delay", "ttl")),
    **dict.fromkeys(("bury", "kill"), ()),
    "release": ("delay", "ttl", "ttr"),
    "touch": ("increment",),
    "nap": ("nap",),
}
SPELLED = {"R": "Ready", "T": "Taken", "W": "Waiting", "B": "Buried", "Z": "Zombie", "D": "Done"}
UPDATING = ("ack", "release", "bury", "dig")
LETTERS = [*"RTWBZDP", "?"]  # "?" is a status that no queue means

durations = st.one_of(st.integers(1, 30), st.just(True))


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    """Any features that can be composed, in any order."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "buried": st.sampled_from([True, "any"]),
        "delayed": st.just(True),
        draw(st.sampled_from(["keep", "zombie"])): st.just(True),
        draw(st.sampled_from(["ttl", "lifetime"])): durations,
        "ttr": durations,
        "not_check_session": st.just(True),
        "unique": st.just(True),
        "utube": st.sampled_from([True, True, 2]),
        "limit": st.integers(2, 7),
        "nap": st.just(True),
        "retval": st.sampled_from(["model", "dict", "tuple"]),
        "history": st.just(True),
        "guard": st.sampled_from([True, "log"]),
    }
    chosen = {name: draw(values) for name, values in drawn.items() if draw(st.booleans())}
    if "zombie" in chosen:
        chosen["zombie"] = draw(durations)
    if "ttr" not in chosen:
        chosen.pop("not_check_session", None)
    if "unique" in chosen and ("nap" in chosen or draw(st.booleans())):
        # P is among them: time moves tasks from there to R.
        states = Model(chosen, (), (), 0).states
        chosen["unique"] = "".join(s for s in states if s in "WRTP" or draw(st.booleans()))
    return {name: chosen[name] for name in draw(st.permutations(sorted(chosen)))}


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    """What upgrade is told, and the features of a later install."""
    roles = [role for role in OPTIONAL if draw(st.booleans())]
    first, later, words = draw(features()), draw(features()), draw(st.sampled_from(WORDS))
    if not {"keep", "zombie"} & {*first}:  # ack deletes, so there may be no word for what it leaves
        words = {}
    return {
        "features": first,
        "later": later,
        "roles": roles,
        "key": draw(st.sampled_from(list(KEYS))),
        "time": draw(st.sampled_from(list(TIMES))),
        "statuses": words,
        "tube_stats": ["a", "b's"] if "tube" in roles and draw(st.booleans()) else [],
        "odd": draw(st.booleans()),
    }


some = st.integers(0, 40)
seconds = st.one_of(some, some, some, some, st.sampled_from([math.inf, math.inf, 10**10, -1.0, math.nan, "5", True]))
options = st.fixed_dictionaries({}, optional={"delay": seconds, "ttl": seconds, "ttr": seconds})
tubes = st.sampled_from([None, "a", "b's", "c"])
jobs = st.sampled_from([None, None, "j", "k"])
utubes = st.sampled_from([None, "u", "u", "v "])
remembered = st.sampled_from([None, 0, 5, 20, math.inf])
own = {"name": st.sampled_from([None, "n'", "ü"]), "size": st.integers(0, 3)}
placed = {"tube": tubes, "job": jobs, "utube": utubes}
priorities = st.sampled_from([None, -1, 0, 1])
times = {"ttl": remembered, "ttr": remembered}
tasks = st.fixed_dictionaries({}, optional={**own, "priority": priorities, **placed, **times})
updates = st.fixed_dictionaries({}, optional=own)
conflicts = st.sampled_from([None, None, "raise", "skip", "replace"])
ways = st.sampled_from(["model", "task", "queue", "call"])
careful = st.sampled_from([True] * 9 + [False])  # a call that can succeed, where there is one; else any call


class PeeweeApplication:
    """What an application does by its ORM, here Peewee, on a fresh database of a kind."""

    errors: type[Exception] = pw.PeeweeException

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.errors_end_transactions = kind == "postgres"  # but for savepoints
        self._made = DATABASES[kind](folder)
        self.db = self._made.__enter__()
        # of TIMES: those whose fields hold whole seconds only
        self.whole: tuple[str, ...] = ("bigint", "datetime") if isinstance(self.db, pw.MySQLDatabase) else ("bigint",)

    def make(self, setup: Values, attributes: Values, features: Values, roles: Sequence[str], clock: Clock) -> Any:
        """A model that is a queue, with a table. `attributes`: columns of status, runat and deadline, and the table."""
        word = setup["statuses"].get("R", "R")
        status = pw.BigIntegerField if isinstance(word, int) else pw.CharField
        time = {"double": pw.DoubleField, "bigint": pw.BigIntegerField, "datetime": pw.DateTimeField}[setup["time"]]
        made: dict[str, Any] = {
            "status": status(default=word, column_name=attributes["status"]),
            **{name: time(null=True, column_name=attributes[name]) for name in ("runat", "deadline")},
            "table_name": attributes["table"],
        }
        if setup["key"] == "composite":
            made |= {"a": pw.IntegerField(), "b": pw.CharField(), "meta": {"primary_key": pw.CompositeKey("a", "b")}}
        keys: Mapping[str, type[pw.Field]] = {
            "time64": pw.BigIntegerField,
            "uuid": pw.UUIDField,
            "text": pw.CharField,
            "required": pw.IntegerField,
            "callable": pw.IntegerField,
        }
        kind = keys.get(setup["key"])
        return Maker(self.db, clock)(
            features,
            roles=tuple(roles),
            key=None if kind is None else kind(primary_key=True),
            attributes=made,
            statuses=setup["statuses"],
            tube_stats=setup["tube_stats"],
        )

    def values(self, task: Any) -> dict[str, Any]:
        """What a clean instance holds."""
        assert not task.is_dirty()
        return dict(task.__data__)

    def rows(self, model: Any) -> Iterable[dict[str, Any]]:
        return list(model.select().dicts())

    def insert(self, model: Any, **values: Any) -> Any:
        """Returns the key."""
        return model.insert(**values).execute()

    def update(self, model: Any, key: Any, **values: Any) -> None:
        model.update(**values).where(model._meta.primary_key == key).execute()

    def delete(self, model: Any, key: Any) -> None:
        model.delete().where(model._meta.primary_key == key).execute()

    def clear(self, model: Any) -> None:
        """Delete all rows."""
        model.delete().execute()

    def save(self, task: Any, is_there: bool) -> None:
        """Save an instance, of which the row may be gone."""
        if is_there:  # Peewee writes what it has read of the other fields, whoever has changed them since
            own = {*task._meta.fields} - {*task.xq.roles.values()} - task._dirty
            now = type(task).get(task._pk_expr()).__data__
            task.__data__.update({name: now[name] for name in own})
        task.save()

    def atomic(self) -> AbstractContextManager[Any]:
        return self.db.atomic()

    def close(self) -> None:
        self._made.__exit__(None, None, None)


few = st.one_of(st.none(), st.integers(0, 3))
HOW: Any = {"number": some, "who": some, "options": options, "careful": careful}
SHAPES = st.sampled_from(["mapping", "mapping", "instance", "sequence"])
FINISHING = ["ack", "release", "bury"]


class QueueMachine(RuleBasedStateMachine):
    """One queue, its model, the sessions that use it and the task objects that were handed out."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self.clock = Clock()
        self.app = app
        self.database = app.kind
        self.open: list[tuple[Any, Any, set[str]]] = []  # transactions, with the model and the sessions of before
        self.listed: dict[str, float] = {}  # every session that there was; servers list them apart from transactions
        self.entered: dict[str, xq.Session] = {}
        self.handed: list[tuple[Any, Any, int | None]] = []  # (what was handed out, its key, the number of its take)

    @initialize(setup=setups(), stock=st.lists(st.tuples(tasks, some), max_size=4))
    def upgrade(self, setup: dict[str, Any], stock: list[Any]) -> None:
        self.kind = setup["key"]
        self.later = setup["later"]
        self.unit = 1 if setup["time"] in self.app.whole else 0.25  # seconds: what the fields of time hold exactly
        self.words = {letter: setup["statuses"].get(letter, letter) for letter in "RTWBZDP"}
        self.words["?"] = 77 if isinstance(self.words["R"], int) else "another"
        on = setup["features"]
        self.roles = [*setup["roles"], *dict.fromkeys(NEEDED[name] for name in {**on, **self.later} if name in NEEDED)]
        names = iter(ODD if setup["odd"] else ())
        attributes = {name: next(names, None) for name in ("status", "runat", "deadline")}
        attributes["table"] = next(names, "task")
        descending = itertools.count(1000, -1)
        self.id = {"id": lambda task: next(descending)} if self.kind == "callable" else {}
        self.Task = self.app.make(setup, attributes, self.configured(on), self.roles, self.clock)
        self.queue = self.Task.xq
        self.heard: list[tuple[str, str, str]] = []
        self.queue.on_change(lambda task, *change: self.heard.append(change))
        self.model = Model(on, self.roles, setup["tube_stats"], self.clock.now)
        self.managed = {"status", "runat", "deadline", "owner", "attempts"} & {"status", *self.roles} | {"xq_owner"}
        store = self.queue.parts.store
        self.fields, self.key_names = [field.name for field in store.fields], store.key
        # The sessions that are open, by uuid, each with a context in which it is the current one. The process's own
        # comes first.
        current = store.database.sessions.current()
        self.contexts: dict[str, Context] = {current.uuid: copy_context()}
        self.put_many(brought=stock, options={}, careful=True, on_conflict="skip")

    def configured(self, on: Values) -> dict[str, Any]:
        """What upgrade is given: the user's own feature for its name, and where keys come from."""
        return {name: NAP if name == "nap" else value for name, value in on.items()} | self.id

    def teardown(self) -> None:
        while self.open:
            self.end(False)
        for session in self.entered.values():
            session.close()
        self.app.close()

    # comparing

    @invariant()
    def both_hold_the_same(self) -> None:
        model, queue = self.model, self.queue
        rows = {self.key_of(row): row for row in map(self.read, self.app.rows(self.Task))}
        assert rows == {key: self.expected(key, row) for key, row in model.rows.items()}
        assert wrong(queue) == []
        stats = queue.stats()
        assert set(stats.tube) == set(model.tubes)
        for tube, numbers in {"": stats, **stats.tube}.items():
            held = [model.state(row) for row in model.rows.values() if tube in ("", row["tube"])]
            assert numbers.counts == {state: held.count(state) for state in model.states}
            assert numbers.transition == {name: n for (at, name), n in model.seen.items() if at == tube}
        others = {name: n for (at, name), n in model.seen.items() if at == "by others"}
        assert writes(counters(queue.parts.doctor.executor)) == others
        taken = {key: row["holder"] or (None, None, None) for key, row in model.rows.items() if row["state"] == "T"}
        told = {key: (session, since) for key, session, since in queue.taken()}
        assert told == {key: (session, since) for key, (session, _, since) in taken.items()}
        self.listed |= model.sessions
        if not (
            self.open and self.database in ("mariadb", "mysql")
        ):  # where a transaction sees the moment at which it began
            assert dict(queue.sessions()) == model.sessions

    @invariant()
    def the_history_has_no_gap_and_is_what_was_heard(self) -> None:
        if "history" not in self.model.on:
            return
        told = self.queue.history()
        states: dict[str, str] = {}
        for row in told:
            assert states.get(row.key, row.source) == row.source
            states[row.key] = row.target
        for key, row in self.model.rows.items():
            last = [row.target for row in self.queue.history(key)][-1:]
            assert last in ([], [self.model.state(row)])
        if not self.open:
            events = Counter((row.event, row.source, row.target) for row in told)
            assert Counter(self.heard) == Counter(
                {change: n for change, n in events.items() if change[0] not in ("write", "install")}
            )

    def history_begins(self) -> None:
        """Other features, or none, were there in between."""
        self.heard.clear()
        if "history" in self.model.on:
            self.app.clear(self.queue.History)

    def read(self, task: Any) -> dict[str, Any]:
        """A task in whatever shape it came, by field names; of the owner only whether there is one."""
        values: dict[str, Any]
        if isinstance(task, self.Task):
            values = self.app.values(task)
        else:
            values = task if isinstance(task, dict) else dict(zip(self.fields, task, strict=True))
        for name in ("runat", "deadline"):
            moment = values[name]
            values[name] = (
                (moment.replace(tzinfo=None) - EPOCH).total_seconds() if isinstance(moment, dt.datetime) else moment
            )
        for name in ("ttl", "ttr"):
            values[name] = math.inf if values[name] == FOREVER else values[name]
        owner = values["owner"] if "owner" in self.roles else values["xq_owner"]
        return {name: value for name, value in values.items() if name != "xq_owner"} | {"owner": bool(owner)}

    def expected(self, key: Any, row: Values) -> dict[str, Any]:
        """A row of the model as `read` gives it."""
        values = {name: value for name, value in row.items() if name not in ("state", "holder")}
        values |= {"status": self.words[row["state"]], "owner": bool(row["holder"])}
        return values | self.key_fields(key)

    def key_fields(self, key: Any) -> dict[str, Any]:
        return dict(zip(self.key_names, key if isinstance(key, tuple) else (key,), strict=True))

    def key_of(self, values: Values) -> Any:
        parts = tuple(values[name] for name in self.key_names)
        return parts if len(parts) > 1 else parts[0]

    def same(self, call: Callable[[], Any], model: Callable[[Any], Any], session: str | None = None) -> Any:
        """Run both. Returns both results; None when both refused, and for the same reason."""
        self.model.now = self.clock.now
        before = self.model.snapshot()
        context = self.contexts[session] if session else copy_context()
        error: Exception | None = None
        refusal: Refused | None = None
        result = expected = None
        try:
            with self.app.atomic() if self.open and self.app.errors_end_transactions else nullcontext():
                result = context.run(call)
        except (xq.Error, self.app.errors) as raised:
            error = raised
        try:
            expected = model(result)
        except Refused as raised:
            refusal = raised
            self.model.restore(before)
        if refusal is not None:
            assert error is not None, f"{refusal.errors} expected, but it returned {result!r}"
            assert type(error).__name__ in refusal.errors, repr(error)
            assert getattr(error, "state", "") in refusal.state
            return None
        if error is not None:
            raise error
        return result, expected

    def same_tasks(
        self, call: Callable[[], Any], model: Callable[[Any], Any], session: str | None = None, held: bool = False
    ) -> list[Any] | None:
        """As `same`, where both return tasks, which may be used later; `held` when they are of a take."""
        both = self.same(call, model, session)
        if both is None:
            return None
        returned, expected = both
        assert len(returned) == len(expected)
        for task, (key, row) in zip(returned, expected, strict=True):
            assert type(task) is {"dict": dict, "tuple": tuple}.get(self.model.on.get("retval", ""), self.Task)
            assert self.read(task) == self.expected(key, row)
            carries = held and row["holder"] and isinstance(task, self.Task)
            self.handed.append((task, key, row["holder"][1] if carries else None))
        del self.handed[:-8]
        return list(returned)

    def same_number(self, call: Callable[[], int], model: Callable[[], int]) -> None:
        both = self.same(call, lambda _: model())
        assert both is None or both[0] == both[1]

    # choosing

    def fitting(self, event: str, options: Values, careful: bool, to: str = "") -> dict[str, Any]:
        """The options that such a call can have. Whole numbers become what the fields of time hold exactly."""
        found = {name: value * self.unit if type(value) is int else value for name, value in options.items()}
        if not careful:
            return found
        fine: dict[str, Any] = {}
        for name, value in found.items():
            more = fine | {name: value}
            if not self.model.problems(event, more, to) - self.model.problems(event, fine, to):
                fine = more
        return fine

    def named(self) -> list[tuple[Any, Any, int | None]]:
        """What names a task, with its key and the number of its take: keys, what was handed out, and mappings."""
        keys = [*sorted(self.model.rows), NOBODYS.get(self.kind, -99)]
        plain = [(key, key, None) for key in keys]
        return [*plain, *reversed(self.handed), *((self.key_fields(key) | {"more": 1}, key, None) for key in keys)]

    def movable(self, event: str, session: str, careful: bool) -> list[tuple[Any, Any, int | None]]:
        """Of `named` those that an event can move."""

        def moves(key: Any, token: int | None) -> bool:
            try:
                return bool(self.model.find(event, key, token, session))
            except Refused:
                return False

        found = [one for one in self.named() if moves(*one[1:])] if careful else []
        return found or self.named()

    def session(self, number: int, careful: bool = False) -> str:
        """A session; when it is to be careful, one that holds something."""
        held = {row["holder"][0] for row in self.model.rows.values() if row["state"] == "T" and row["holder"]}
        open_ = [name for name in self.contexts if name in held and careful] or list(self.contexts)
        return open_[number % len(open_)]

    # producers

    def put_all(self, brought: list[Any], values: list[dict[str, Any]], call: Callable[[], Any], options: Any) -> None:
        options = dict(options)
        on_conflict = options.pop("on_conflict", None)
        own = [self.key_of(task) if all(task.get(n) is not None for n in self.key_names) else None for task in values]

        def model(result: Any) -> Any:
            if None in own and self.kind in ("required", "composite"):
                raise Refused("BadValue")
            made = [object() for _ in values] if result is None else [self.key_of(self.read(task)) for task in result]
            known = [{name: value for name, value in task.items() if name not in self.key_names} for task in values]
            keys = [new if key is None else key for key, new in zip(own, made, strict=True)]
            return self.model.put(keys, known, options, on_conflict)

        note(f"  # put {brought}, {options}, on_conflict={on_conflict}")
        self.same_tasks(call, model)

    def with_key(self, task: Values, number: int) -> dict[str, Any]:
        """The task with a key where it needs one, and sometimes where it does not."""
        if self.database in ("mariadb", "mysql"):  # it knows no infinity, but where xq says what is meant by it
            task = {
                name: value
                for name, value in task.items()
                if value != math.inf or (name in self.roles and not self.model.problems("put", {name: value}))
            }
        if self.kind == "composite":
            return {**task, "a": number % 4, "b": "xyz"[number % 3]}
        if self.kind == "required":
            return {**task, "id": number % 12}
        return {**task, "id": -1 - number % 6} if self.kind == "auto" and number % 7 == 6 else dict(task)

    def put_options(self, options: Any, on_conflict: str | None, careful: bool, tasks: list[Any]) -> dict[str, Any]:
        found = self.fitting("put", options, careful)
        if careful:
            found = {n: v for n, v in found.items() if n not in self.roles or all(t.get(n) is None for t in tasks)}
        more = {"on_conflict": on_conflict} if on_conflict and ("unique" in self.model.on or not careful) else {}
        return found | more

    @rule(task=tasks, options=options, careful=careful, number=some, shape=SHAPES, on_conflict=conflicts)
    def put(
        self, task: dict[str, Any], options: Any, careful: bool, number: int, shape: str, on_conflict: str | None
    ) -> None:
        options = self.put_options(options, on_conflict, careful, [task])
        values = self.with_key(task, number)
        argument: Any = values
        if shape != "mapping":
            empty = dict.fromkeys(("name", "tube", "job", "utube", "ttl", "ttr")) | {"size": 0, "priority": 0}
            values = empty | values
            argument = self.Task(**values)
        if shape == "sequence":
            argument = [None if name in self.managed else getattr(argument, name) for name in self.fields]
        self.put_all([argument], [values], lambda: [self.Task.put(argument, **options)], options)

    @precondition(lambda self: len(self.model.rows) < 12)
    @rule(brought=st.lists(st.tuples(tasks, some), max_size=5), options=options, careful=careful, on_conflict=conflicts)
    def put_many(self, brought: list[tuple[Any, int]], options: Any, careful: bool, on_conflict: str | None) -> None:
        options = self.put_options(options, on_conflict, careful, [task for task, _ in brought])
        # A key that one brings could be the one that is made for another.
        values = [self.with_key(task, 0 if self.kind == "auto" else number) for task, number in brought]
        self.put_all(values, values, lambda: self.queue.put_many(iter(values), **options), options)

    def instances(self) -> list[tuple[Any, Any]]:
        return [(task, key) for task, key, _ in self.handed if isinstance(task, self.Task)]

    @precondition(lambda self: self.instances())
    @rule(number=some)
    def put_again_what_was_handed_out(self, number: int) -> None:
        task, _ = self.instances()[number % len(self.instances())]
        values = {name: value for name, value in self.app.values(task).items() if name not in self.managed}
        values |= {name: math.inf for name in ("ttl", "ttr") if values.get(name) == FOREVER}  # as MariaDB has it
        self.put_all([task], [values], lambda: [self.Task.put(task)], {})

    # consumers

    @precondition(lambda self: self.model.oldest("R") or self.model.oldest("W"))
    @rule(who=some, n=st.sampled_from([1, 1, 0, 2, 3, None]), tube=tubes, options=options, careful=careful)
    def take(self, who: int, n: int | None, tube: str | None, options: Any, careful: bool) -> None:
        given = self.fitting("take", {name: value for name, value in options.items() if name == "ttr"}, careful)
        if careful:
            known = [row["tube"] for row in self.model.rows.values() if row["state"] == "R" and "tube" in self.roles]
            tube = tube if tube in known else None
        session = self.session(who)

        def call() -> Any:
            if n is not None:
                return self.queue.take_many(n, tube=tube, **given)
            task = self.Task.take(tube=tube, **given)
            return [] if task is None else [task]

        wanted = 1 if n is None else n
        self.same_tasks(call, lambda _: self.model.take(session, wanted, given, tube), session, held=True)

    @precondition(lambda self: self.model.oldest("R") or self.model.oldest("W"))
    @rule(who=some, seconds=some, event=st.sampled_from(FINISHING), number=some, options=options)
    def take_and_finish(self, who: int, seconds: int, event: str, number: int, options: Any) -> None:
        self.take(who=who, n=None, tube=None, options=options, careful=True)
        self.tick(seconds=seconds // 4, sweep=False)
        if self.model.oldest("T"):
            self.move(event, number, who, options, "R", {}, True, "task")

    @precondition(lambda self: self.model.oldest("T"))
    @rule(event=st.sampled_from([*FINISHING, "touch", "retry"]), update=updates, way=ways, **HOW)
    def finish(self, event: str, number: int, who: int, options: Any, update: Any, careful: bool, way: str) -> None:
        self.move(event, number, who, options, "R", update, careful, way)

    def stale(self) -> list[tuple[Any, Any, int | None]]:
        """Objects of earlier takes whose task is taken again."""
        taken = {key: row["holder"] for key, row in self.model.rows.items() if row["state"] == "T" and row["holder"]}
        now = {key: take for key, (session, take, _) in taken.items() if session in self.contexts}
        return [one for one in self.handed if one[2] is not None and one[2] != now.get(one[1], one[2])]

    @precondition(lambda self: self.stale())
    @rule(event=st.sampled_from(["ack", "release", "touch"]), number=some, way=ways)
    def finish_with_a_stale_object(self, event: str, number: int, way: str) -> None:
        one = self.stale()[number % len(self.stale())]
        who = list(self.contexts).index(self.model.rows[one[1]]["holder"][0])
        self.handed.append(one)
        self.move(event, len(self.model.rows) + 1, who, {}, "R", {}, False, way)

    @precondition(lambda self: self.model.rows)
    @rule(event=st.sampled_from(list(OPTIONS)), to=st.sampled_from([*"RWBZDPTX"]), update=updates, way=ways, **HOW)
    def move(
        self, event: str, number: int, who: int, options: Any, to: str, update: Any, careful: bool, way: str
    ) -> None:
        model = self.model
        states = {model.state(row) for row in model.rows.values()}
        possible = [e for e in OPTIONS if states & set(model.leaves(e))] or ["ack"]
        if event not in possible and (careful or ("nap" not in model.on and event in ("nap", "wake", "retry"))):
            event = possible[number % len(possible)]
        if careful and (to not in model.states or to == "T"):
            to = "R"
        given = {name: options.get(name, options.get("ttl")) for name in OPTIONS[event]}
        given = self.fitting(event, {n: v for n, v in given.items() if v is not None}, careful, to)
        if event == "touch" or (event == "switch" and to == "W" and careful):
            given = {OPTIONS[event][0]: 4 * self.unit} | given
        more = {"update": update} if update and event in UPDATING else {}
        session = self.session(who, careful)
        found = self.movable(event, session, careful)
        task, key, token = found[number % len(found)]

        def call() -> Any:
            if event == "switch":
                return self.queue.switch(task, to, **given)
            if way == "call" or event in ("nap", "wake", "retry"):
                return self.queue.call(event, task, **given, **more)
            name = "kick" if event == "dig" and number % 2 else event
            if way == "task" and isinstance(task, self.Task) and hasattr(task, name):
                return getattr(task, name)(**given, **more)
            where = self.Task if way == "model" and hasattr(self.Task, name) else self.queue
            return getattr(where, name)(task, **given, **more)

        note(f"  # {event} {task!r}, which is {key!r}, {given} {more} {to} by {way}")
        returned = self.same_tasks(
            lambda: [call()],
            lambda _: [(key, model.move(event, key, token, session, given, more.get("update", {}), to))],
            session,
        )
        if returned and event == "touch" and isinstance(returned[0], self.Task) and model.rows[key]["state"] == "T":
            self.handed[-1] = (returned[0], key, token)  # still of the take that was touched

    @precondition(lambda self: self.model.rows)
    @rule(event=st.sampled_from([*FINISHING, "kill"]), update=updates, **HOW | {"number": st.lists(some, max_size=4)})
    def move_many(self, event: str, number: list[int], who: int, options: Any, update: Any, careful: bool) -> None:
        model = self.model
        given = {name: value for name, value in options.items() if name in OPTIONS[event]}
        given = self.fitting(event, given, careful)
        more = {"update": update} if update and event in UPDATING else {}
        session = self.session(who, careful)
        found = self.movable(event, session, careful)
        picked = [found[each % len(found)] for each in number]
        if careful:
            picked = list({key: (task, key, token) for task, key, token in picked}.values())

        def moved(_: Any) -> Any:
            problems = model.problems(event, given)
            problems |= {"BadValue"} if len({key for _, key, _ in picked}) < len(picked) else set()
            reasons = [Refused(*problems)] if problems else []
            for _, key, token in picked if not problems else ():
                try:
                    model.find(event, key, token, session)
                except Refused as refused:
                    reasons.append(refused)
            if reasons:  # which of several tasks that cannot be moved is named, is not said
                raise Refused(*(e for r in reasons for e in r.errors), state="".join(r.state for r in reasons))
            update = more.get("update", {})
            return [(key, model.move(event, key, token, session, given, update)) for _, key, token in picked]

        note(f"  # {event}_many {picked}, {given} {more}")
        many = getattr(self.queue, f"{event}_many")
        self.same_tasks(lambda: many([task for task, _, _ in picked], **given, **more), moved, session)

    # operators

    @precondition(lambda self: self.model.oldest("B"))
    @rule(n=few, way=st.sampled_from(["dig", "kick", "plow"]), options=options, update=updates, careful=careful)
    def dig_the_oldest(self, n: int | None, way: str, options: Any, update: Any, careful: bool) -> None:
        given = {name: value for name, value in options.items() if name in OPTIONS["dig"]}
        given = self.fitting("dig", given, careful)
        more = {"update": update} if update else {}

        def model(_: Any) -> Any:
            if problems := self.model.problems("dig", given):
                raise Refused(*problems)
            if n != 0:
                self.model.sweep()
            keys = self.model.oldest("B")[:n]
            return [(key, self.model.move("dig", key, None, "", given, update)) for key in keys]

        self.same_tasks(lambda: getattr(self.Task, way)(n=n, **given, **more), model)

    @precondition(lambda self: len(self.model.rows) > 3)
    @rule(what=st.sampled_from(["release_all", "release_all", "truncate", "reset", "recount"]))
    def operate(self, what: str) -> None:
        if what == "reset":
            self.queue.reset()
            self.model.seen.clear()
        elif what == "recount":
            self.queue.recount()  # the numbers are right, so nothing comes of it
        else:
            self.same_number(getattr(self.queue, what), getattr(self.model, what))

    @rule(number=some, n=few)
    def look(self, number: int, n: int | None) -> None:
        states = [*self.model.states, *self.model.states, "S"]
        state = states[number % len(states)]

        def by_state(_: Any) -> Any:
            if state not in self.model.states:
                raise Refused("BadValue")
            return [(key, self.model.rows[key]) for key in self.model.oldest(state)[:n]]

        if self.same_tasks(lambda: self.queue.by_state(state, n), by_state) is not None:
            assert self.queue.count(state) == len(self.model.oldest(state))
        spelled = {SPELLED.get(letter, letter): self.queue.count(letter) for letter in self.model.states}
        assert self.Task.stats(pretty=True).counts == spelled
        assert self.queue.count() == sum(self.model.state(row) != "X" for row in self.model.rows.values())
        task, key, token = self.named()[number % len(self.named())]
        find = self.model.find  # a task that kill moves is any that there is
        self.same_tasks(lambda: [self.queue.peek(task)], lambda _: [(key, find("kill", key, token, ""))])

    @precondition(lambda self: not self.open)
    @rule(
        to=st.sampled_from(["R", "D", "X", ""]), others=st.one_of(st.none(), features()), state=st.sampled_from("RT?")
    )
    def configure(self, to: str, others: dict[str, Any] | None, state: str) -> None:
        """Install other features, to and fro; without `to` install anew, with a row that was written in between."""
        features = self.later if others is None else others
        if not to:
            self.install_anew(state)
        elif {NEEDED[name] for name in features if name in NEEDED} <= set(self.roles) and (
            self.words["D"] == "D" or {"keep", "zombie"} & {*features}  # else there may be no word
        ):
            after = Model(features, (), (), 0)
            lost = [state for state in self.model.states if state not in after.states]
            for key in [key for key, row in self.model.rows.items() if self.model.state(row) in lost]:
                if to == "X":
                    self.app.delete(self.Task, key)
                    self.model.write(key, None)
                elif to in after.states:
                    self.update(sorted(self.model.rows).index(key), to, {})
            both = self.same(
                lambda: install_anew(self.Task, self.configured(features), drop_history=True, downgrade=True),
                lambda _: self.model.installed_anew(features),
            )
            if both is not None:
                self.later, self.model, self.queue = self.model.on, both[1], self.Task.xq
                self.queue.on_change(lambda task, *change: self.heard.append(change))
                self.history_begins()

    def install_anew(self, state: str) -> None:
        self.queue.uninstall()
        with pytest.raises(xq.NotInstalled):
            self.queue.stats()
        self.insert(state=state, task={}, number=3)
        self.queue.install()
        self.model.seen.clear()
        self.model.sessions.clear()
        self.listed.clear()
        self.history_begins()
        for row in self.model.rows.values():
            row["holder"] = row["holder"] if "owner" in self.roles else None
            self.model.time_unowned(row)

    # time

    @rule(seconds=st.one_of(some, some, st.integers(-8, -1)), sweep=st.booleans())
    def tick(self, seconds: int, sweep: bool) -> None:
        self.clock.tick(seconds * self.unit)
        self.model.now = self.clock.now
        if sweep:
            self.same_number(self.queue.sweep, self.model.sweep)
            assert self.queue.sweep() == 0

    # sessions

    @rule(what=st.sampled_from(["open", "join", "close", "leave"]), number=some)
    def a_session(self, what: str, number: int) -> None:
        if what == "open" and len(self.contexts) < 4:
            session = self.queue.session()
            self.model.sessions[session.uuid] = self.clock.now
            self.enter(session)
        elif what == "join":
            self.join([*self.model.sessions, str(uuid.UUID(int=7))][number % (len(self.model.sessions) + 1)], number)
        elif self.entered:
            self.end_session(list(self.entered)[number % len(self.entered)], what == "leave")

    def enter(self, session: xq.Session) -> None:
        context = copy_context()
        context.run(session.__enter__)
        self.contexts[session.uuid] = context
        self.entered[session.uuid] = session

    def join(self, name: str, number: int) -> None:
        def model(_: Any) -> None:
            if name not in self.model.sessions:
                raise Refused("UnknownSession")

        both = self.same(lambda: self.queue.session(uuid.UUID(name) if number % 2 else name.upper()), model)
        if both is not None:
            assert both[0].uuid == name
            if name not in self.contexts:
                self.enter(both[0])

    def end_session(self, name: str, leave: bool) -> None:
        session, context = self.entered.pop(name), self.contexts.pop(name)
        both = self.same(
            lambda: context.run(session.__exit__, None, None, None) if leave else session.close(),
            lambda _: self.model.close(name),
        )
        assert both is not None
        if not leave:
            with pytest.raises(xq.UnknownSession):
                context.run(self.queue.take)
            self.model.sweep()  # as a take does before it needs a session

    # another program

    @rule(state=st.sampled_from(LETTERS), task=tasks, number=some)
    def insert(self, state: str, task: dict[str, Any], number: int) -> None:
        task = {name: value for name, value in task.items() if name not in ("ttl", "ttr")}
        values = self.with_key(task, number)
        made = self.kind == "auto" and "id" not in values  # by the database, which counts on from what it made itself
        if not made and not all(name in values for name in self.key_names):
            free = max(key for key in [0, *self.model.rows] if isinstance(key, int)) + 1
            values["id"] = {"uuid": uuid.UUID(int=number + 2), "text": f"{number}"}.get(self.kind, free)
        empty = dict.fromkeys(("name", "tube", "runat", "deadline", "ttl", "ttr", "job", "utube", "holder"))
        row = empty | {"size": 0, "priority": 0, "attempts": 0, "state": state} | task

        def model(result: Any) -> None:
            key = result if made else self.key_of(values)
            if key in self.model.rows:
                raise Refused("IntegrityError")
            self.model.write(key, row)

        self.same(lambda: self.app.insert(self.Task, status=self.words[state], **values), model)

    @precondition(lambda self: self.model.rows)
    @rule(
        number=st.one_of(some, some, some, st.none()),
        state=st.sampled_from([*LETTERS, None, None]),
        values=st.fixed_dictionaries({}, optional={**placed, "priority": priorities, "size": st.just(7)}),
    )
    def update(self, number: int | None, state: str | None, values: dict[str, Any]) -> None:
        """Another program's update of one row, or of all."""
        written = values if state is None else values | {"status": self.words[state]}
        known = values if state is None else values | {"state": state}
        keys = sorted(self.model.rows)
        keys = keys if number is None else [keys[number % len(keys)]]

        def model(_: Any) -> None:
            for key in keys:
                self.model.plain(key, known)

        def call() -> None:
            with self.app.atomic():
                for key in keys if written else ():
                    self.app.update(self.Task, key, **written)

        self.same(call, model)

    @precondition(lambda self: self.model.rows)
    @rule(number=some)
    def delete(self, number: int) -> None:
        key = sorted(self.model.rows)[number % len(self.model.rows)]
        self.app.delete(self.Task, key)
        self.model.write(key, None)

    @precondition(lambda self: self.instances())
    @rule(number=some)
    def save_what_was_handed_out(self, number: int) -> None:
        task, key = self.instances()[number % len(self.instances())]
        task.size = 9
        self.app.save(task, key in self.model.rows)
        if key in self.model.rows:
            self.model.plain(key, {"size": 9})

    # transactions of the application

    @rule(what=st.sampled_from(["begin", "commit", "roll back"]))
    def a_transaction(self, what: str) -> None:
        if what != "begin" and self.open:
            self.end(what == "commit")
        elif len(self.open) < 2:
            transaction = self.app.atomic()
            transaction.__enter__()
            self.open.append((transaction, self.model.snapshot(), {*self.listed}))

    def end(self, commit: bool) -> None:
        transaction, before, listed = self.open.pop()
        if commit:
            transaction.__exit__(None, None, None)
        else:
            transaction.__exit__(RuntimeError, RuntimeError("rolled back"), None)
            self.model.restore(before)
            if self.database in SERVERS:
                self.model.sessions |= {uuid: at for uuid, at in self.listed.items() if uuid not in listed}


def check_random_calls(application: Callable[[], Any], programs: int) -> None:
    """So many random programs, each on a fresh database."""
    faulthandler.cancel_dump_traceback_later()  # what fails is made smaller for up to five minutes
    machine: Any = lambda: QueueMachine(application())  # noqa: E731
    ours = os.environ.get("XQ_HYPOTHESIS_EXAMPLES")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(ours or programs),
            derandomize=ours is None,  # the same calls each time, unless asked for more
            stateful_step_count=40,
            deadline=None,
            phases=[phase for phase in Phase if phase is not Phase.explain],  # which takes minutes
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
