"""Random calls on a queue and on a model of it: after each, both hold the same.

XQ_HYPOTHESIS_EXAMPLES=5000 looks for longer.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import uuid
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, settings
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
from tests.conftest import DATABASES, Maker, _chosen
from tests.model import Model, Refused
from xq import sessions
from xq.testing import Clock

NAP = xq.Feature(
    "nap",
    needs=("runat",),
    transitions=(
        xq.Transition("R", "nap", "P"),
        xq.Transition("P", "wake", "R"),
        xq.Transition("T", "retry", "R", fenced=True),
    ),
    timers=(xq.Timer("P", "nap", "R", option="nap", default=30.0),),
)
KEYS: Mapping[str, Callable[[], pw.Field | None]] = {
    "auto": lambda: None,
    "time64": lambda: pw.BigIntegerField(primary_key=True),
    "uuid": lambda: pw.UUIDField(primary_key=True),
    "text": lambda: pw.TextField(primary_key=True),
    "required": lambda: pw.IntegerField(primary_key=True),
    "callable": lambda: pw.IntegerField(primary_key=True),
    "composite": lambda: None,
}
TIMES = {"double": pw.DoubleField, "bigint": pw.BigIntegerField, "datetime": pw.DateTimeField}
WORDS: list[Mapping[str, Any]] = [
    {},
    {"R": "new", "T": "processing", "B": "it's failed", "D": "done", "Z": "W", "W": "later"},
    {"R": 0, "T": 1, "W": -2, "B": 3, "Z": 4, "D": 2**40, "P": 6},
]
OPTIONAL = ("priority", "tube", "owner", "attempts", "ttl", "ttr")
NEEDED = dict.fromkeys(("delayed", "zombie", "ttl", "ttr", "nap"), "runat") | {
    "lifetime": "deadline",
    "unique": "unique",
}
EPOCH = dt.datetime(1970, 1, 1)

durations = st.one_of(st.integers(1, 30), st.just(True))
some_features = st.fixed_dictionaries(
    {},
    optional={
        "buried": st.sampled_from([True, "any"]),
        "delayed": st.just(True),
        "ends": st.one_of(st.just({"keep": True}), durations.map(lambda n: {"zombie": n})),
        "lives": st.one_of(durations.map(lambda n: {"ttl": n}), durations.map(lambda n: {"lifetime": n})),
        "ttr": durations,
        "not_check_session": st.just(True),
        "unique": st.sampled_from(["WRTP", "WRTBP", "WRTBZDP"]),
        "limit": st.integers(1, 6),
        "nap": st.just(True),
        "retval": st.sampled_from(["dict", "tuple"]),
    },
)


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    """Any features that can be composed, in any order."""
    drawn = draw(some_features)
    chosen = {name: value for name, value in drawn.items() if name not in ("ends", "lives")}
    chosen |= drawn.get("ends", {}) | drawn.get("lives", {})
    if "ttr" not in chosen:
        chosen.pop("not_check_session", None)
    if "unique" in chosen and "nap" not in chosen and draw(st.booleans()):
        chosen["unique"] = True
    return {name: chosen[name] for name in draw(st.permutations(sorted(chosen)))}


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    """Everything that upgrade is told."""
    roles = [role for role in OPTIONAL if draw(st.booleans())]
    words = draw(st.sampled_from(WORDS))
    return {
        "features": draw(features()),
        "later": draw(features()),
        "roles": roles,
        "key": draw(st.sampled_from(list(KEYS))),
        "time": draw(st.sampled_from(list(TIMES))),
        "statuses": words,
        "tube_stats": ["a", "b's"] if "tube" in roles and draw(st.booleans()) else [],
        "odd": draw(st.booleans()),
    }


seconds = st.one_of(st.integers(0, 40), st.sampled_from([math.inf, math.inf, 10**10, -1.0, math.nan, "5", True, 2e10]))
options = st.fixed_dictionaries({}, optional={"delay": seconds, "ttl": seconds, "ttr": seconds})
tubes = st.sampled_from([None, "a", "b's", "c"])
jobs = st.sampled_from([None, None, "j", "k"])
own_fields = st.fixed_dictionaries({}, optional={"name": st.sampled_from([None, "n'", "ü"]), "size": st.integers(0, 3)})
numbers = st.integers(0, 40)  # of a key or a task among those there are, and a few that there are not
careful = st.sampled_from([True, True, True, True, True, False])  # leaves out the options that cannot be
tasks = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([None, "n'", "ü"]),
        "size": st.integers(0, 3),
        "priority": st.sampled_from([None, -1, 0, 1]),
        "tube": tubes,
        "job": jobs,
        "ttl": st.sampled_from([None, 0, 5, 20, math.inf]),
        "ttr": st.sampled_from([None, 0, 5, 20, math.inf]),
    },
)


class QueueMachine(RuleBasedStateMachine):
    """One queue, its model, the sessions that use it and the task objects that were handed out."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__()
        self.clock = Clock()
        self.db = DATABASES[kind](folder)
        self.open: list[tuple[Any, Any]] = []  # transactions, each with the model as it was before
        self.callables = itertools.count(1000, -1)
        self.others = itertools.count(1)

    @initialize(setup=setups())
    def upgrade(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self.unit = 1 if setup["time"] == "bigint" else 0.25
        self.words = {letter: setup["statuses"].get(letter, letter) for letter in "RTWBZDP"}
        on, later = setup["features"], setup["later"]
        self.roles = [*setup["roles"], *dict.fromkeys(NEEDED[name] for name in {**on, **later} if name in NEEDED)]
        ints = isinstance(self.words["R"], int)
        names = iter(['"order', "b;--", "c 'd", "ü😀"]) if setup["odd"] else iter(())
        attributes: dict[str, Any] = {
            "status": (pw.BigIntegerField if ints else pw.CharField)(
                default=self.words["R"], column_name=next(names, None)
            ),
            "runat": TIMES[setup["time"]](null=True, column_name=next(names, None)),
            "deadline": TIMES[setup["time"]](null=True, column_name=next(names, None)),
            "table_name": next(names, "task"),
        }
        if setup["key"] == "composite":
            attributes |= {"a": pw.IntegerField(), "b": pw.TextField()}
            attributes["meta"] = {"primary_key": pw.CompositeKey("a", "b")}
        made = Maker(self.db, self.clock)
        self.id = {"id": lambda task: next(self.callables)} if setup["key"] == "callable" else {}
        self.Task = made(
            self.configured(on),
            roles=tuple(self.roles),
            key=KEYS[setup["key"]](),
            attributes=attributes,
            statuses=setup["statuses"],
            tube_stats=setup["tube_stats"],
        )
        self.queue = self.Task.xq
        self.model = Model(on, self.roles, setup["tube_stats"], self.clock.now)
        self.fields = [field.name for field in self.Task._meta.sorted_fields]
        self.key_names = [field.name for field in self.Task._meta.get_primary_keys()]
        self.contexts: dict[str, Context] = {}  # of sessions that are open, by uuid; the first is the process's own
        self.entered: dict[str, xq.Session] = {}
        own = sessions.of(self.db).current().uuid
        self.contexts[own] = copy_context()
        self.handed: list[tuple[Any, Any, int | None]] = []  # (what was handed out, its key, the number of its take)

    def configured(self, on: Mapping[str, Any]) -> dict[str, Any]:
        """What upgrade is given: the user's own feature for its name, and where keys come from."""
        return {name: NAP if name == "nap" else value for name, value in on.items()} | self.id

    def teardown(self) -> None:
        while self.open:
            self.end(False)
        for session in getattr(self, "entered", {}).values():
            session.close()
        self.db.close()

    # comparing

    def moment(self, value: Any) -> float | None:
        return (value - EPOCH).total_seconds() if isinstance(value, dt.datetime) else value

    def read(self, task: Any) -> dict[str, Any]:
        """A task in whatever shape it came, by field names; of the owner only whether there is one."""
        if isinstance(task, pw.Model):
            assert not task.is_dirty()
            values = dict(task.__data__)
        else:
            values = dict(task) if isinstance(task, dict) else dict(zip(self.fields, task, strict=True))
        values |= {name: self.moment(values[name]) for name in ("runat", "deadline")}
        return values | {"owner": bool(values["owner"])}

    def told(self, key: Any, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the model as `read` gives it."""
        values = {name: value for name, value in row.items() if name not in ("state", "holder")}
        values["status"] = self.status(row["state"])
        values["owner"] = bool(row["holder"]) and "owner" in self.roles
        return values | dict(zip(self.key_names, key if isinstance(key, tuple) else (key,), strict=True))

    def key_of(self, values: Mapping[str, Any]) -> Any:
        parts = tuple(values[name] for name in self.key_names)
        return parts if len(parts) > 1 else parts[0]

    def given(self, task: Any, key: Any, row: dict[str, Any]) -> None:
        """A task that a call returned is the one that the model returned; it may be used later."""
        shape = {"dict": dict, "tuple": tuple}.get(self.model.on.get("retval", ""), self.Task)
        assert type(task) is shape
        assert self.read(task) == self.told(key, row)
        holds = row["state"] == "T" and row["holder"] and isinstance(task, pw.Model)
        if holds or len(self.handed) < 10:
            self.handed.append((task, key, row["holder"][1] if holds else None))

    def same(self, call: Callable[[], Any], model: Callable[[Any], Any], session: str | None = None) -> Any:
        """Run both. Returns both results, None when both refused for the same reason."""
        self.model.now = self.clock.now
        before = self.model.snapshot()
        context = self.contexts[session] if session else copy_context()
        error: Exception | None = None
        refused: Refused | None = None
        result = expected = None
        try:
            result = context.run(call)
        except (xq.Error, pw.PeeweeException) as raised:
            error = raised
        try:
            expected = model(result)
        except Refused as raised:
            refused = raised
            self.model.restore(before)
        if refused is not None:
            assert error is not None, f"{refused.errors} expected, but it returned {result!r}"
            told = (type(error).__name__, getattr(error, "state", ""))
            assert told in {(name, refused.state if name == "WrongState" else "") for name in refused.errors}, repr(
                error
            )
            return None
        if error is not None:
            raise error
        return result, expected

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "contexts"):
            return
        model, queue = self.model, self.queue
        rows = {self.key_of(row): row for row in map(self.read, self.Task.select().dicts())}
        assert rows == {key: self.told(key, row) for key, row in model.rows.items()}
        assert queue.check() == []
        stats = queue.stats()
        for tube, numbers in {"": stats, **stats.tube}.items():
            held = [model.state(row) for row in model.rows.values() if tube in ("", row["tube"])]
            assert numbers.counts == {state: held.count(state) for state in model.states}
            assert numbers.transition == {name: n for (at, name), n in model.seen.items() if at == tube}
        assert set(stats.tube) == set(model.tubes)
        holders = {
            key: (row["holder"] or (None, None, None))[::2] for key, row in model.rows.items() if row["state"] == "T"
        }
        assert {key: (session, since) for key, session, since in queue.taken()} == holders
        assert dict(queue.sessions()) == model.sessions

    # choosing

    def session(self, number: int) -> str:
        names = list(self.contexts)
        return names[number % len(names)]

    def scaled(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Whole numbers become what a time of this queue holds exactly."""
        return {name: value * self.unit if type(value) is int else value for name, value in options.items()}

    def fitting(self, event: str, options: Mapping[str, Any], careful: bool, to: str = "") -> dict[str, Any]:
        found = self.scaled(options)
        if not careful:
            return found
        fine: dict[str, Any] = {}
        for name, value in found.items():
            more = fine | {name: value}
            if not self.model.problems(event, more, to) - self.model.problems(event, fine, to):
                fine = more
        return fine

    def pick(self, number: int) -> tuple[Any, Any, int | None]:
        """Something that names a task: one that was handed out, or a key, alone or in a mapping."""
        keys = sorted(self.model.rows)
        gone = {"uuid": uuid.UUID(int=1), "text": "gone", "composite": (-99, "gone")}.get(self.setup["key"], -99)
        named: list[tuple[Any, Any, int | None]] = [(key, key, None) for key in [*keys, gone]]
        found = [*reversed(self.handed), *named]
        task, key, token = found[number % len(found)]
        if number > 30 and task is key:
            task = dict(zip(self.key_names, key if isinstance(key, tuple) else (key,), strict=True)) | {"more": 1}
        return task, key, token

    def allowed(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """A task's own ttl and ttr, where they are roles, are seconds; elsewhere they are just fields."""
        return dict(task)

    def with_key(self, task: Mapping[str, Any], number: int) -> dict[str, Any]:
        """The task with a key where it needs one, and sometimes where it does not."""
        kind = self.setup["key"]
        if kind == "composite":
            return dict(task) | {"a": number % 4, "b": "xyz"[number % 3]}
        if kind == "required" or (kind == "auto" and number % 7 == 6):
            return dict(task) | {"id": -1 - number % 6}  # below zero no key is made
        return dict(task)

    # producers

    def put_all(self, brought: list[Any], values: list[dict[str, Any]], call: Callable[[], Any], options: Any) -> None:
        options, on_conflict = dict(options), options.get("on_conflict")
        options.pop("on_conflict", None)

        def model(result: Any) -> Any:
            if any(key is None and self.setup["key"] in ("required", "composite") for key in map(self.own_key, values)):
                raise Refused("BadValue")
            made = [object() for _ in values] if result is None else [self.key_of(self.read(task)) for task in result]
            keys = [key if own is None else own for key, own in zip(made, map(self.own_key, values), strict=True)]
            known = [{n: v for n, v in task.items() if n not in self.key_names} for task in values]
            return self.model.put(keys, known, options, on_conflict)

        both = self.same(call, model)
        if both is not None:
            for task, (key, row) in zip(*both, strict=True):
                self.given(task, key, row)

    def own_key(self, task: Mapping[str, Any]) -> Any:
        return None if any(task.get(name) is None for name in self.key_names) else self.key_of(task)

    @rule(
        task=tasks,
        options=options,
        careful=careful,
        key=numbers,
        shape=st.sampled_from(["mapping", "mapping", "instance", "sequence"]),
        on_conflict=st.sampled_from([None, None, "raise", "skip", "replace"]),
    )
    def put(
        self, task: dict[str, Any], options: Any, careful: bool, key: int, shape: str, on_conflict: str | None
    ) -> None:
        options = self.fitting("put", options, careful)
        if on_conflict is not None and ("unique" in self.model.on or not careful):
            options["on_conflict"] = on_conflict
        values = self.with_key(task, key)
        argument: Any = values
        if shape != "mapping":
            values = {
                "name": None,
                "size": 0,
                "priority": 0,
                "tube": None,
                "job": None,
                "ttl": None,
                "ttr": None,
            } | values
            argument = self.Task(**values)
        if shape == "sequence":
            managed = [
                role for role in ("status", "runat", "deadline", "owner", "attempts") if role in (*self.roles, "status")
            ]
            argument = [None if name in managed else getattr(argument, name) for name in self.fields]
        self.put_all([argument], [values], lambda: [self.Task.put(argument, **options)], options)

    @rule(
        brought=st.lists(st.tuples(tasks, numbers), max_size=5),
        options=options,
        careful=careful,
        on_conflict=st.sampled_from([None, None, "raise", "skip", "replace"]),
    )
    def put_many(
        self, brought: list[tuple[dict[str, Any], int]], options: Any, careful: bool, on_conflict: str | None
    ) -> None:
        options = self.fitting("put", options, careful)
        if on_conflict is not None and ("unique" in self.model.on or not careful):
            options["on_conflict"] = on_conflict
        values = [self.with_key(task, 0 if self.setup["key"] == "auto" else number) for task, number in brought]
        self.put_all(values, values, lambda: self.queue.put_many(iter(values), **options), options)

    @rule(number=numbers)
    def put_again_what_was_handed_out(self, number: int) -> None:
        task, _, _ = self.pick(number)
        if isinstance(task, self.Task):
            managed = {"status", "runat", "deadline", "owner", "attempts"} & {"status", *self.roles}
            values = {name: value for name, value in task.__data__.items() if name not in managed}
            if "attempts" not in self.roles and "attempts" in values and values["attempts"] is None:
                return
            self.put_all([task], [values], lambda: [self.Task.put(task)], {})

    # consumers

    @rule(who=numbers, tube=tubes, options=options, careful=careful)
    def take(self, who: int, tube: str | None, options: Any, careful: bool) -> None:
        self.take_some(who, 1, tube, options, careful)

    @rule(who=numbers, n=st.integers(0, 4), tube=tubes, options=options, careful=careful)
    def take_many(self, who: int, n: int, tube: str | None, options: Any, careful: bool) -> None:
        self.take_some(who, n, tube, options, careful, many=True)

    def take_some(self, who: int, n: int, tube: str | None, options: Any, careful: bool, many: bool = False) -> None:
        options = self.fitting("take", {name: value for name, value in options.items() if name == "ttr"}, careful)
        if "tube" not in self.roles and careful:
            tube = None
        session = self.session(who)

        def call() -> Any:
            if many:
                return self.queue.take_many(n, tube=tube, **options)
            task = self.Task.take(tube=tube, **options)
            return [] if task is None else [task]

        both = self.same(call, lambda _: self.model.take(session, n, options, tube), session)
        if both is not None:
            assert len(both[0]) == len(both[1])
            for task, (key, row) in zip(*both, strict=True):
                self.given(task, key, row)

    @rule(
        event=st.sampled_from(
            ["ack"] * 3 + ["release", "bury", "touch"] * 2 + ["dig", "kick", "kill", "snatch", "restart"]
        ),
        number=numbers,
        who=numbers,
        options=options,
        increment=seconds,
        update=st.one_of(st.just({}), own_fields),
        careful=careful,
        way=st.sampled_from(["class", "instance", "handle", "call"]),
    )
    def move(
        self, event: str, number: int, who: int, options: Any, increment: Any, update: Any, careful: bool, way: str
    ) -> None:
        takes = {"release": ("delay", "ttl", "ttr"), "ack": ("delay",), "snatch": ("delay",), "restart": ("delay",)}
        takes |= {"dig": ("delay", "ttl"), "kick": ("delay", "ttl")}
        given = {name: value for name, value in options.items() if name in takes.get(event, ())}
        if event == "touch":
            given = {"increment": increment}
        if event not in ("ack", "release", "bury", "dig", "kick"):
            update = {}
        name, event = event, "dig" if event == "kick" else event
        given = self.fitting(event, given, careful)
        if event == "touch" and not given:
            given = {"increment": 4 * self.unit}
        session = self.session(who)
        task, key, token = self.pick(number)
        more = {"update": update} if update else {}

        def call() -> Any:
            if way == "call" and event != "touch":
                return self.queue.call(event, task, **given, **more)
            if way == "instance" and isinstance(task, pw.Model) and hasattr(task, name):
                return getattr(task, name)(**given, **more)
            return getattr(self.Task if hasattr(self.Task, name) else self.queue, name)(task, **given, **more)

        both = self.same(
            call, lambda _: self.model.move(event, key, token, session, given, self.row_update(update)), session
        )
        if both is not None:
            self.given(both[0], key, both[1])

    def row_update(self, update: Mapping[str, Any]) -> dict[str, Any]:
        return dict(update)

    @rule(number=numbers, to=st.sampled_from([*"RWBZDP", "T", "X"]), options=options, careful=careful)
    def switch(self, number: int, to: str, options: Any, careful: bool) -> None:
        given = {name: value for name, value in options.items() if name == "delay"}
        given = self.fitting("switch", given, careful, to)
        task, key, token = self.pick(number)
        both = self.same(
            lambda: self.queue.switch(task, to, **given),
            lambda _: self.model.move("switch", key, token, "", given, {}, to),
        )
        if both is not None:
            self.given(both[0], key, both[1])

    @precondition(lambda self: "nap" in self.model.on)
    @rule(
        event=st.sampled_from(["nap", "wake", "retry"]), number=numbers, who=numbers, options=options, careful=careful
    )
    def an_event_of_the_users_own(self, event: str, number: int, who: int, options: Any, careful: bool) -> None:
        given = dict(options)
        given.pop("ttr", None)
        if event == "nap":
            given = {"nap": given["ttl"]} if "ttl" in given else {}
        given = self.fitting(event, given, careful)
        session = self.session(who)
        task, key, token = self.pick(number)
        both = self.same(
            lambda: self.queue.call(event, task, **given),
            lambda _: self.model.move(event, key, token, session, given, {}),
            session,
        )
        if both is not None:
            self.given(both[0], key, both[1])

    @rule(
        event=st.sampled_from(["ack", "release", "bury", "kill"]),
        numbers=st.lists(numbers, max_size=4),
        who=numbers,
        options=options,
        update=st.one_of(st.just({}), own_fields),
        careful=careful,
    )
    def move_many(self, event: str, numbers: list[int], who: int, options: Any, update: Any, careful: bool) -> None:
        takes = {"release": ("delay", "ttl", "ttr"), "ack": ("delay",)}
        given = {name: value for name, value in options.items() if name in takes.get(event, ())}
        given = self.fitting(event, given, careful)
        more = {"update": update} if update and event != "kill" else {}
        session = self.session(who)
        picked = [self.pick(number) for number in numbers]

        def model(_: Any) -> Any:
            problems = self.model.problems(event, given)
            if len({key for _, key, _ in picked}) < len(picked):
                problems.add("BadValue")
            if problems:
                raise Refused(*problems)
            # Which of several that cannot be moved is named is not said.
            for _, key, token in picked:
                self.model.find(event, key, token, session)
            return [
                (key, self.model.move(event, key, token, session, given, dict(more.get("update", {}))))
                for _, key, token in picked
            ]

        both = self.same(
            lambda: getattr(self.queue, f"{event}_many")([task for task, _, _ in picked], **given, **more),
            model,
            session,
        )
        if both is not None:
            for task, (key, row) in zip(*both, strict=True):
                self.given(task, key, row)

    @rule(
        n=st.one_of(st.none(), st.integers(0, 3)),
        way=st.sampled_from(["dig", "kick", "plow"]),
        options=options,
        update=st.one_of(st.just({}), own_fields),
        careful=careful,
    )
    def dig_the_oldest(self, n: int | None, way: str, options: Any, update: Any, careful: bool) -> None:
        given = {name: value for name, value in options.items() if name in ("delay", "ttl")}
        given = self.fitting("dig", given, careful)
        more = {"update": update} if update else {}

        def model(_: Any) -> Any:
            if problems := self.model.problems("dig", given):
                raise Refused(*problems)
            if n != 0:
                self.model.sweep()
            keys = self.model.oldest("B")[:n]
            return [(key, self.model.move("dig", key, None, "", given, dict(update))) for key in keys]

        both = self.same(lambda: getattr(self.Task, way)(n=n, **given, **more), model)
        if both is not None:
            for task, (key, row) in zip(*both, strict=True):
                self.given(task, key, row)

    # operators

    @rule()
    def release_all(self) -> None:
        both = self.same(self.queue.release_all, lambda _: self.model.release_all())
        assert both is None or both[0] == both[1]

    @rule()
    def truncate(self) -> None:
        both = self.same(self.queue.truncate, lambda _: self.model.truncate())
        assert both[0] == both[1]

    @rule()
    def reset(self) -> None:
        self.queue.reset()
        self.model.seen.clear()

    @rule(state=st.sampled_from("RTWBZDPX"), n=st.one_of(st.none(), st.integers(0, 3)), number=numbers)
    def look(self, state: str, n: int | None, number: int) -> None:
        def by_state(_: Any) -> Any:
            if state not in self.model.states:
                raise Refused("BadValue")
            return [(key, self.model.rows[key]) for key in self.model.oldest(state)[:n]]

        both = self.same(lambda: self.queue.by_state(state, n), by_state)
        if both is not None:
            assert [self.read(task) for task in both[0]] == [self.told(*one) for one in both[1]]
            assert self.queue.count(state) == len(self.model.oldest(state))
        assert self.queue.count() == sum(self.model.state(row) != "X" for row in self.model.rows.values())
        task, key, token = self.pick(number)
        both = self.same(
            lambda: self.queue.peek(task), lambda _: self.model.find("kill", key, token, "")
        )  # kill moves every state
        if both is not None:
            self.given(both[0], key, both[1] | {"holder": both[1]["holder"] and (*both[1]["holder"][:1], None)})

    @precondition(lambda self: not self.open)
    @rule(features=st.one_of(features(), st.none()), to=st.sampled_from(["", "R", "D", "X"]))
    def reconfigure(self, features: dict[str, Any] | None, to: str) -> None:
        features = self.setup["later"] if features is None else features
        if not {NEEDED[name] for name in features if name in NEEDED} <= set(self.roles):
            return
        after = Model(features, (), (), 0)
        lost = [state for state in self.model.states if state not in after.states]
        move = dict.fromkeys(lost, to) if to in (*after.states, "X") else {}
        both = self.same(
            lambda: self.queue.reconfigure(self.configured(features), move),
            lambda _: self.model.reconfigured(features, move),
        )
        if both is not None:
            self.model = both[1]

    @precondition(lambda self: not self.open)
    @rule(write=st.sampled_from([None, "R", "T", "?"]))
    def install_anew(self, write: str | None) -> None:
        self.queue.uninstall()
        with pytest.raises(xq.NotInstalled):
            self.queue.stats()
        if write is not None:
            self.insert(write, {}, 3)
        self.queue.install()
        self.model.seen.clear()
        self.model.sessions.clear()
        for row in self.model.rows.values():
            row["holder"] = row["holder"] if "owner" in self.roles else None

    # time

    @rule(seconds=st.one_of(st.integers(0, 60), st.integers(-8, -1)))
    def tick(self, seconds: int) -> None:
        self.clock.tick(seconds * self.unit)

    @rule()
    def sweep(self) -> None:
        both = self.same(self.queue.sweep, lambda _: self.model.sweep())
        assert both[0] == both[1]

    # sessions

    @precondition(lambda self: len(self.contexts) < 4)
    @rule()
    def open_a_session(self) -> None:
        session = self.queue.session()
        self.model.sessions[session.uuid] = self.clock.now
        self.enter(session)

    def enter(self, session: xq.Session) -> None:
        context = copy_context()
        context.run(session.__enter__)
        self.contexts[session.uuid] = context
        self.entered[session.uuid] = session

    @rule(number=numbers)
    def join_a_session(self, number: int) -> None:
        known = [*self.model.sessions, str(uuid.UUID(int=7))]
        name = known[number % len(known)]

        def model(_: Any) -> str:
            if name not in self.model.sessions:
                raise Refused("UnknownSession")
            return name

        both = self.same(lambda: self.queue.session(uuid.UUID(name) if number % 2 else name.upper()), model)
        if both is not None:
            assert both[0].uuid == name
            if name not in self.contexts:
                self.enter(both[0])

    @precondition(lambda self: self.entered)
    @rule(number=numbers, leave=st.booleans())
    def close_a_session(self, number: int, leave: bool) -> None:
        name = list(self.entered)[number % len(self.entered)]
        session = self.entered.pop(name)
        context = self.contexts.pop(name)
        both = self.same(
            lambda: context.run(session.__exit__, None, None, None) if leave else session.close(),
            lambda _: self.model.close(name),
        )
        assert both is not None
        if not leave:
            with pytest.raises(xq.UnknownSession):
                context.run(self.queue.take)

    # another program

    @rule(
        state=st.sampled_from(["R", "T", "W", "B", "Z", "D", "P", "?"]),
        task=tasks,
        number=numbers,
    )
    def insert(self, state: str, task: dict[str, Any], number: int) -> None:
        task = {name: value for name, value in task.items() if name not in ("ttl", "ttr")}
        values = self.with_key(task, number)
        key = self.own_key(values)
        if key is None:
            fresh = max((k for k in [0, *self.model.rows] if isinstance(k, int)), default=0) + 1
            key = {"uuid": uuid.UUID(int=number), "text": f"{number}"}.get(self.setup["key"], fresh)
            values["id"] = key
        empty = dict.fromkeys(("name", "tube", "runat", "deadline", "ttl", "ttr", "job", "holder"))
        row = empty | {"size": 0, "priority": 0, "attempts": 0, "state": state} | task

        def model(_: Any) -> None:
            if key in self.model.rows:
                raise Refused("IntegrityError")
            self.model.write(key, row)

        self.same(lambda: self.Task.insert(status=self.status(state), **values).execute(), model)

    def status(self, state: str) -> Any:
        """What the field holds in a state; in "?" something that no queue means."""
        return self.words.get(state, 77 if isinstance(self.words["R"], int) else "another")

    @rule(
        number=numbers,
        state=st.sampled_from(["R", "T", "W", "B", "Z", "D", "P", "?", None, None]),
        values=st.fixed_dictionaries(
            {}, optional={"tube": tubes, "job": jobs, "priority": st.sampled_from([None, 2]), "size": st.just(7)}
        ),
        every=st.booleans(),
    )
    def update(self, number: int, state: str | None, values: dict[str, Any], every: bool) -> None:
        written = dict(values)
        if state is not None:
            written["status"] = self.status(state)
        if not written or not self.model.rows:
            return
        keys = sorted(self.model.rows)
        keys = keys if every and "job" not in values else [keys[number % len(keys)]]
        known = values if state is None else values | {"state": state}

        def model(_: Any) -> None:
            for key in keys:
                self.model.plain(key, known)

        def call() -> None:
            with self.db.atomic():
                for key in keys:
                    found = self.Task.update(**written).where(self.Task._meta.primary_key == key).execute()
                    assert found == 1

        self.same(call, model)

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        if self.model.rows:
            key = sorted(self.model.rows)[number % len(self.model.rows)]
            self.Task.delete().where(self.Task._meta.primary_key == key).execute()
            self.model.write(key, None)

    @rule(number=numbers)
    def save_what_was_handed_out(self, number: int) -> None:
        task, key, _ = self.pick(number)
        if isinstance(task, self.Task):
            task.size = 9
            task.save()
            if key in self.model.rows:
                self.model.plain(key, {"size": 9})

    # transactions of the application

    @precondition(lambda self: len(self.open) < 2)
    @rule()
    def begin(self) -> None:
        transaction = self.db.atomic()
        transaction.__enter__()
        self.open.append((transaction, self.model.snapshot()))

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        transaction, before = self.open.pop()
        if commit:
            transaction.__exit__(None, None, None)
        else:
            transaction.__exit__(RuntimeError, RuntimeError("rolled back"), None)
            self.model.restore(before)


@pytest.mark.parametrize("kind", _chosen)
def test_random_calls_leave_what_the_model_says(kind, tmp_path_factory):
    examples = int(os.environ.get("XQ_HYPOTHESIS_EXAMPLES", "40"))
    run_state_machine_as_test(
        lambda: QueueMachine(kind, tmp_path_factory.mktemp("model")),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
