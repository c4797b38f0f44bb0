"""What is refused before any SQL runs: definitions of a queue, and calls."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.support.calls import BATCHES, CALLS, HISTORY, RETRY, TARGETS, UPKEEP, sequence
from xq import BadType, BadValue, FeatureOff

# definitions

MAPPED = {"status": "status", "runat": "runat"}
WORDED = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}
PAIR = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
FITS_NOT: dict[str, list[pw.Field]] = {  # role -> fields that cannot hold it
    "status": [field(null=True) for field in (pw.BooleanField, pw.DoubleField, pw.DateTimeField)],
    "runat": [
        *(field(null=True) for field in (pw.FloatField, pw.IntegerField, pw.TextField, pw.TimestampField)),
        pw.DoubleField(),
    ],
    "deadline": [pw.FloatField(null=True), pw.DateTimeField()],
    "priority": [field(null=True) for field in (pw.DateField, pw.BooleanField, pw.BlobField, pw.TextField)],
    "tube": [pw.IntegerField(null=True)],
    "owner": [pw.IntegerField(null=True), pw.CharField(max_length=20, null=True), pw.TextField()],
    "attempts": [pw.TextField()],
    "ttl": [pw.TextField(null=True), pw.DoubleField()],
    "ttr": [pw.DateTimeField(null=True)],
}
# a strategy for keys -> keys that it cannot make
MAKES_NOT: dict[str, list[dict[str, Any]]] = {
    "uuid": [
        {},
        {"id": pw.BigIntegerField(primary_key=True)},
        {"id": pw.CharField(max_length=10, primary_key=True)},
        PAIR,
    ],
    "time64": [{}, {"id": pw.UUIDField(primary_key=True)}],
    "auto_increment": [{"id": pw.CharField(primary_key=True)}, {"id": pw.UUIDField(primary_key=True)}],
}

NO_RATES = ("", "100", "0/m", "1/x", "-1/m", "1.5/m", "1/0s", 100, {"limit": 5}, ["1/m"])

# what stands in the error, what `make` is given
DEFINITIONS: list[tuple[str, dict[str, Any]]] = [
    *(
        (f"'{role}'", {"roles": () if role == "status" else (role,), "attributes": {role: field}})
        for role, fields in FITS_NOT.items()
        for field in fields
    ),
    ("Task.status is BooleanField", {"attributes": {"status": pw.BooleanField(null=True)}}),
    ("a feature stands in features=", {"fields": {"delayed": True}}),
    ("86400: it should be True or a valid timedelta, such as timedelta", {"features": {"keep": 86400}}),
    ("of takes, or {'n': 5, 'to': 'B'} .*, not {'n': 0}", {"features": {"max_takes": {"n": 0}}}),
    ("'max_takes' needs the feature 'buried', which is off", {"features": {"max_takes": 5}}),
    ("'60': it should be True or a valid number or a valid timedelta\n", {"features": {"ttr": "60"}}),
    ("DoubleField", {"attributes": {"runat": pw.FloatField(null=True)}}),  # with the way out
    *(
        ("id", {"features": {"id": strategy}, "attributes": key})
        for strategy, keys in MAKES_NOT.items()
        for key in keys
    ),
    ("primary key", {"attributes": {"meta": {"primary_key": False}}}),
    ("xq", {"attributes": {"xq": pw.TextField(null=True)}}),
    (r"kick(.|\n)*methods=False", {"attributes": {"kick": pw.TextField(null=True)}}),
    # roles to different fields of the model
    *(
        ("", {"fields": fields})
        for fields in (
            *(
                {"status": "nonsense"},
                {"status": None},
                {"status": 5},
                [("status", "status")],
                "status",
            ),
            {"status": "status", "nonsense": "name"},
            {"status": "status", "runat": "status"},
            {"status": "status", "owner": "job", "tube": "job"},
            {"status": "status", "attempts": "id"},
        )
    ),
    (r"unique.*role 'unique'", {"features": {"unique": True}, "roles": ("runat",)}),
    ("tube", {"tube_stats": ["a"]}),
    *(("rate", {"features": {"rate": wrong}}) for wrong in NO_RATES),
    ("limits by utube or by tube, not by 'name'", {"features": {"rate": {"limit": "1/m", "by": "name"}}}),
    ("knows limit, by, burst, window and of, not 'per'", {"features": {"rate": {"limit": "1/m", "per": "tube"}}}),
    ("window is True or False, not 0", {"features": {"rate": {"limit": "5/m", "window": 0}}}),
    ("burst is a number of tasks from 1 to 5, not 6", {"features": {"rate": {"limit": "5/m", "burst": 6}}}),
    ("needs the role 'tube'", {"features": {"rate": {"limit": "1/m", "by": "tube"}}}),
    *(
        (match, {"features": {"rate": {"limit": "1/m", "by": by, "of": of}}})
        for match, by, of in [
            ('of needs "by"', None, {"a": "1/m"}),
            ("of 'a' is a rate", "utube", {"a": 5}),
            ("takes a limit such as", "utube", {"a": "5"}),
            ("of is a mapping of texts, integers or UUIDs", "utube", {None: "5/m"}),
            ("of has at most 1,000 values, not 1,001", "utube", dict.fromkeys(range(1_001), "5/m")),
        ]
    ),
    *(
        (match, {"fields": {"utube": "name"}, "features": {"utube": wrong}})
        for match, wrong in [
            ("knows n, fair and of, not 'per'", {"per": 5}),
            ("fair is True or False, not 1", {"fair": 1}),
            ("takes a number of 1 to 1,000,000 tasks, not 0", {"n": 2, "of": {"a": 0}}),
        ]
    ),
    *(("tube_stats", {"roles": ("tube",), "tube_stats": wrong}) for wrong in ("a", [5], [None], [""], 5)),
    *(("methods", {"methods": wrong}) for wrong in (5, "put", ["put", "nonsense"])),
    # statuses: letters to different words
    *(
        ("status", {"features": WORDED, "statuses": wrong})
        for wrong in (
            *({"R": "same", "T": "same"}, {"R": "T"}, {"R": 5}, {"R": None}, {"R": True}, {"R": 1.5}),
            *({5: "new"}, [("R", "new")], "new"),
        )
    ),
    *((f"{letter!r}", {"statuses": {letter: "x"}}) for letter in ("?", "X", "S", "readily", 5)),
    ("given twice", {"statuses": {"R": "new", "ready": "old", "T": "busy"}}),
    (r"taken \(T\), waiting \(W\), buried", {"features": WORDED, "statuses": {"R": "new"}}),
    ("'keep'", {"statuses": {"R": "new", "T": "busy", "D": "done"}}),
    ("'keep'", {"statuses": {"R": "new", "T": "busy", "Z": "done"}}),
    *(
        ("status", {"features": WORDED, "attributes": {"status": pw.IntegerField(default=0)}, "statuses": statuses})
        for statuses in ({}, {"R": 0}, {"R": "0"}, {"R": 0, "T": 1, "W": 2, "B": 3, "D": "done"})
    ),
    (
        "later",
        {
            "features": WORDED,
            "attributes": {"status": pw.CharField(max_length=1)},
            "statuses": {**dict(zip("RTBD", "RTBD", strict=True)), "W": "later"},
        },
    ),
]


def test_a_definition_is_refused_and_leaves_the_model_as_it_was(make, subtests):
    for match, definition in DEFINITIONS:
        options = copy.deepcopy(definition)
        model = make.model(**options.pop("attributes", {}))
        with subtests.test(f"{match}: {definition}"):
            with pytest.raises(xq.ConfigurationError, match=match or None):
                make(**options, model=model)
            assert not isinstance(getattr(model, "xq", None), xq.Queue)
            assert not hasattr(model, "put")
            assert model.save is pw.Model.save  # which writes all, as it did


def test_what_is_no_model_no_clock_and_no_decorator_is_refused(make):
    for wrong in (None, 5, "Task", object, pw.Field):
        with pytest.raises(xq.ConfigurationError, match="Django, and xq.adapters.sqlalchemy.upgrade a mapped"):
            xq.upgrade(wrong, MAPPED)  # type: ignore[arg-type]
    with pytest.raises(xq.ConfigurationError, match="clock"):
        xq.upgrade(make.model(), MAPPED, clock="x")  # type: ignore[arg-type]
    decorator: Any = xq.queue
    with pytest.raises(xq.ConfigurationError, match=r"above Task with its arguments: write @queue\(fields="):
        decorator(make.model())
    with pytest.raises(xq.ConfigurationError, match="elsewhere"):
        xq.upgrade(make.model(), {"status": make.model(elsewhere=pw.CharField(default="R")).elsewhere})
    with pytest.raises(
        xq.ConfigurationError, match=r"Task is temporary .* only the connection that makes such a table"
    ):
        xq.upgrade(type("Task", (make.model(),), {"Meta": type("Meta", (), {"temporary": True})}), MAPPED)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("SqliteQueueDatabase", "no transactions"),
        ("APSWDatabase", "apsw"),
        ("AsyncDatabaseMixin", r"Model\.xq\.aio"),
        ("CockroachDatabase", "LISTEN"),
    ],
)
def test_a_class_of_playhouse_that_works_in_another_way_is_refused_by_name(base, words):
    mixin = type(base, (), {"__module__": "playhouse.other"})  # the modules need packages that are not installed
    db = type("Database", (mixin, pw.SqliteDatabase), {})("app.db")
    with pytest.raises(xq.ConfigurationError, match=f"Task is on Database, .*{words}"):
        Maker(db)()


def test_a_method_never_hides_what_the_model_or_a_base_has(make):
    class Mixin:
        def kill(self):
            return "mine"

    for attributes, bases in [({"kill": lambda self: "mine"}, ()), ({}, (Mixin,))]:
        model = type("Page", (*bases, make.model()), attributes)
        with pytest.raises(xq.ConfigurationError, match="kill"):
            xq.upgrade(model, MAPPED)
        xq.upgrade(model, MAPPED, methods=False)
        assert model().kill() == "mine"
    own = type("Page", (make.model(),), {"cancel": lambda self: "mine"})  # the method is newer than many a model
    assert callable(xq.upgrade(own, MAPPED).cancel)
    assert own().cancel() == "mine"
    model = make.model()
    reference = pw.ForeignKeyField(model, backref="touch")
    type("Note", (pw.Model,), {"page": reference, "Meta": type("Meta", (), {"database": make.db})})
    with pytest.raises(xq.ConfigurationError, match="touch"):
        xq.upgrade(model, MAPPED)


def test_a_method_that_only_the_queue_has_is_named_there_and_hides_nothing_either(make):
    Page = make({}, model=make.model())
    for where, name in [(Page, "put_many"), (Page(), "ack_many")]:
        with pytest.raises(AttributeError, match=rf"{Page.__name__}\.xq\.{name}\(\)$"):
            getattr(where, name)
    mine = type("Page", (make.model(),), {"put_many": lambda self: "mine"})
    assert make({}, model=mine)().put_many() == "mine"


def test_upgrade_touches_no_database(tmp_path):
    path = tmp_path / "never.db"
    databases: tuple[Any, ...] = (pw.SqliteDatabase(path), pw.SqliteDatabase(None), pw.DatabaseProxy())
    for database in databases:
        assert xq.upgrade(Maker(database).model(), MAPPED, {"keep": True}).machine.states == ("R", "T", "D")
    assert not path.exists()


def test_the_verbs_that_are_wanted_are_on_the_model(make):
    verbs = {"put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "stats", "queue_stats"}
    for methods, wanted in ((True, verbs), (("put", "ack"), {"put", "ack"}), (False, set())):
        Task = make({"buried": True}, model=make.model(), methods=methods)
        assert {name for name in verbs if hasattr(Task, name)} == wanted


# calls

Call = Callable[[Any], Any]
OWNED = {"buried": True, "keep": True, "ttr": 60}
DELAYED = {"delayed": True, "keep": True, "ttr": 60}
TIMED = {"zombie": 5, "buried": True, "delayed": True, "ttl": 5, "ttr": 5}
LIMITED = {"ttl": 10, "ttr": 10}
MOMENT = datetime(2027, 1, 1, tzinfo=UTC)
NOT_MANY = ("abc", b"abc", {"id": 1}, 5, None)
NO_NAMES: list[Any] = [None, 7, "url", [1], [[]]]
NO_MOMENTS = {True: BadType, "now": BadType, b"": BadType, math.nan: BadValue, math.inf: BadValue, 1e300: BadValue}


def ask(verb: str, *args: Any, **options: Any) -> Call:
    return lambda Task: getattr(Task.xq, verb)(*args, **options)


def put_a_sequence(name: str) -> Call:
    return lambda Task: Task.put(sequence(Task, **{"size": 1, name: 1}))


# the features, the error, what it tells, the calls
REFUSED: list[tuple[dict[str, Any], type[xq.Error], str, list[Call]]] = [
    ({}, BadValue, "nonsense", [ask("ack", 1, update={"nonsense": 1})]),
    ({}, BadType, "tube", [ask("take", tube=tube) for tube in (5, b"a", ["a"])]),
    ({}, BadType, "", [ask("put_many", wrong) for wrong in NOT_MANY]),
    ({}, BadType, "", [ask("put", wrong) for wrong in ("abc", b"abc", 5, None, {1, 2}, object())]),
    (LIMITED, BadType, "", [ask("put", wrong) for wrong in ({"ttl": "1"}, {"ttr": True}, {"tube": 5}, {"size": [1]})]),
    (LIMITED, BadValue, "", [ask("put", wrong) for wrong in ({"ttl": -1}, {"ttr": math.nan}, {"x": 1}, {1: 1}, [1])]),
    (BATCHES, BadType, "", [ask(many, wrong) for many in TARGETS for wrong in NOT_MANY]),
    *(({"ttl": 10}, BadValue, name, [put_a_sequence(name)]) for name in ("status", "runat", "attempts")),
    *(({"retry": RETRY}, BadValue, name, [ask("call", name, 1)]) for name in ("nonsense", "put", "switch")),
    ({"retry": RETRY}, BadType, "", [ask("call", 5, 1)]),
    (OWNED, BadValue, "", [ask("session", "abc"), ask("session", "")]),
    (OWNED, BadType, "", [ask("session", wrong) for wrong in (5, b"a", 1.5, ["a"], {"a": 1})]),
    *(
        (HISTORY, error, name, [ask("history", **{name: value})])
        for name in ("since", "until")
        for value, error in NO_MOMENTS.items()
    ),
    # a time is looked at before the task is looked for
    (TIMED, BadValue, "", [ask("dig", 999, ttl=-1), ask("touch", 999, -1), ask("ack", 999, update={"status": "R"})]),
    (WORDED, BadValue, "leave 'runat' out, .* use delay= or at=", [ask("put", runat=5), ask("put", {"runat": 5})]),
    (WORDED, BadType, r"\.ack\(\) goes without the key", [lambda Task: Task().ack(1), lambda Task: Task().ack({}, 1)]),
    # options that a call does not have, with those that it has
    ({"ttr": 5}, BadType, "take of Task has no option 'timout': it takes timeout, tube, ttr", [ask("take", timout=1)]),
    ({}, BadType, "ack of Task has no option 'updte': it takes update", [ask("ack", 1, updte={})]),
    (DELAYED, BadType, "put of Task has no option 'wiat': it takes wait, timeout, at, delay", [ask("put", {}, wiat=1)]),
    ({}, BadType, r"put takes a task of Task as a mapping: put\(\{'name': \.\.\.\}\)", [ask("put", name="a")]),
    ({"limit": 5}, BadType, "timeout", [ask("put_many", [{}], timeout=5)]),
    (WORDED, BadType, "nonsense", [ask(verb, nonsense=1) for verb in ("put", "take", "plow")]),
    (WORDED, BadType, "nonsense", [ask(verb, 1, nonsense=1) for verb in ("ack", "release", "dig")]),
    (WORDED, BadType, "update", [ask("put", update=5)]),
    (WORDED, BadValue, "not both", [ask("put", at=MOMENT, delay=5)]),
    (WORDED, BadValue, "time zone", [ask("put", at=datetime(2027, 1, 1)), ask("dig", 1, at=datetime(2027, 1, 1))]),
    (WORDED, BadType, "a datetime with a time zone, not", [ask("put", at=5), ask("put_many", [{}], at=MOMENT.date())]),
    (WORDED, BadValue, "act takes delay=", [ask("act", "dig", "state:buried", at=MOMENT)]),
    (WORDED, BadType, "timeout", [ask("release", 1, timeout=5)]),
    ({"history": True, "limit": 5}, BadValue, "no event 'history'", [ask("call", "history", 1)]),
    ({}, BadType, "on_change takes a function", [ask("on_change", None), ask("on_change", "print")]),
    ({}, BadValue, "", [ask("truncate", event) for event in ("", "a b", "x" * 65, "a-b", "\0")]),
    ({}, BadType, "", [ask("truncate", event) for event in (None, 5, b"kill")]),
    ({}, BadType, "a tube is named by text, not by 7", [ask("pause", 7), ask("resume", 7)]),
    ({}, BadValue, "a tube to pause has a name of at most 255 characters, not 256", [ask("pause", "a" * 256)]),
    ({}, BadValue, "session_ttr", [ask("configure", session_ttr=n) for n in (-1, math.nan, math.inf)]),
    ({}, BadType, "session_ttr", [ask("configure", session_ttr="5")]),
    ({}, BadValue, "", [ask("sql", "tkae")]),
    ({}, BadType, "", [ask("sql", "take", "dealy"), ask("sql", []), ask("sql", "put", [])]),
    ({}, BadType, "names", [ask("sql", event, update=n) for n in NO_NAMES for event in ("put", "ack")]),
    (OWNED, BadValue, "actor is", [ask("acting", actor) for actor in ("", "  ", "a" * 256, "a\0b")]),
    (OWNED, BadType, "actor is", [ask("acting", actor) for actor in (7, b"ann")]),
    (OWNED, BadValue, "act does one of dig, release, restart, cancel, kill to", [ask("act", "ack", "")]),
    (OWNED, BadValue, "act does one of", [ask("act", 7, "")]),
    (OWNED, BadType, "a filter is text", [ask("act", "dig", None)]),
    (OWNED, BadValue, "has the states", [ask("act", "dig", "state:Q")]),
    (OWNED, BadValue, "chunk is a number of tasks from 1 to 1,000", [ask("act", "dig", "", chunk=0)]),
    (OWNED, BadType, "a number of tasks is an integer", [ask("act", "dig", "", chunk="2")]),
    (OWNED, BadValue, "actor is a text", [ask("act", "dig", "", actor="")]),
    (OWNED, BadType, "reason is text", [ask("act", "dig", "", reason=7)]),
    (WORDED, BadValue, "delay", [ask("act", "dig", "", delay=-1)]),
    (WORDED, BadType, "no option 'speed'", [ask("act", "dig", "", speed=1)]),
    (WORDED, BadType, "no option 'delay'", [ask("act", "kill", "", delay=1)]),
    (WORDED, FeatureOff, "buried='any'", [ask("act", "bury", "")]),
    (OWNED, BadValue, "reason is a text", [ask("act", "dig", "", reason="a\x1fb")]),
]


def test_a_call_is_refused_before_any_sql_runs(make, subtests):
    for number, (features, error, match, calls) in enumerate(REFUSED):
        for which, call in enumerate(calls):
            with subtests.test(f"{number}, {which}: {error.__name__} {match}"):
                Task = make(features, roles=("runat", "tube", "attempts", "ttl", "ttr"))
                with pytest.raises(error, match=match or None):
                    call(Task)


LIVES = {"ttl", "lifetime"}

# the features, or roles, of which one is named, the calls
OFF: list[tuple[set[str], list[Call]]] = [
    ({"delayed"}, [ask("put", {}, delay=5), ask("put_many", [{}], delay=5), ask("snatch", 1, delay=5)]),
    ({"delayed"}, [ask("put", {}, at=MOMENT), ask("release", 1, at=MOMENT)]),
    ({"delayed"}, [ask("release", 1, delay=5), ask("release_many", [1], delay=5)]),
    (LIVES, [ask("put", {}, ttl=5), ask("release", 1, ttl=5), ask("switch", 1, "R", ttl=5)]),
    ({"ttr"}, [ask("put", {}, ttr=5), ask("take", ttr=5), ask("take_many", 1, ttr=5), ask("take_many", 0, ttr=5)]),
    ({"ttr"}, [ask("release", 1, ttr=5)]),
    ({"zombie"}, [ask("ack", 1, delay=5), ask("ack_many", [1], delay=5), ask("ack_many", [], delay=5)]),
    ({"buried"}, [ask("bury", 1), ask("bury_many", [1]), ask("dig", 1), ask("dig", n=1), ask("kick", 1), ask("plow")]),
    (LIVES | {"ttr"}, [ask("touch", 1, 5)]),
    ({"delayed", "keep", "zombie"}, [ask("restart", 1)]),
    ({"priority"}, [ask("reprioritise", 1, 2), ask("act", "reprioritise", "", priority=2)]),
    ({"unique"}, [ask("put", {}, on_conflict="skip")]),
    ({"history"}, [ask("history"), lambda Task: Task.xq.History, ask("timeline", 1)]),
    ({"error"}, [ask("find", "error:a"), ask("find", "failure:a"), ask("failures")]),
    ({"unique"}, [ask("find", "unique:a")]),
    ({"tube"}, [ask("take", tube="left"), ask("pause", "left"), ask("resume", "left")]),
]


def test_what_belongs_to_a_feature_that_is_off_or_to_a_role_that_is_not_mapped_names_it(make, subtests):
    Task = make({}, roles=())
    for features, calls in OFF:
        for number, call in enumerate(calls):
            with subtests.test(f"{sorted(features)} {number}"):
                with pytest.raises(FeatureOff) as off:
                    call(Task)
                assert {off.value.feature, off.value.role} & features
                assert any(feature in str(off.value) for feature in features)


def test_max_attempts_names_only_what_lacks(make):
    for features, roles, told in (
        ({}, ("attempts",), r"Task needs the feature 'buried' \("),
        ({"buried": True}, (), r"Task needs the role 'attempts' \(fields=\{'attempts': True\}, or a field\)\n"),
    ):
        with pytest.raises(xq.ConfigurationError, match=told):
            make(features, roles=roles).xq.worker(max_attempts=5)(print)


@pytest.mark.parametrize("database", [pw.PostgresqlDatabase("app", prefer_psycopg3=True), pw.MySQLDatabase("app")])
def test_a_driver_that_is_missing_is_named_with_its_extra(monkeypatch, database):
    for name in ("psycopg", "psycopg2", "mysql"):
        monkeypatch.setattr(pw, name, None)
    pages = xq.upgrade(Maker(database).model(), MAPPED)
    told = {"postgres": r"psycopg, .*'\.\[postgres\]'", "innodb": r"pymysql, .*'\.\[mariadb\]'"}
    needs = f"needs the driver {told[pages.parts.store.engine]} in the checkout"
    with pytest.raises(xq.ConfigurationError, match=needs):
        pages.take()


def test_django_that_is_missing_is_named_by_its_extra(monkeypatch):
    monkeypatch.setattr("xq.adapters.django.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs Django: pip install '\.\[django\]' in the checkout"):
        from xq.adapters.django import TaskFields  # noqa: F401


def test_a_call_before_there_is_a_database_says_so(make, subtests):
    model = make.model(meta={"database": pw.DatabaseProxy()})
    queue = xq.upgrade(model, MAPPED, {"buried": True, "keep": True, "ttr": 60})
    for name, call in {**CALLS, **UPKEEP}.items():
        with subtests.test(name):
            with pytest.raises(xq.ConfigurationError, match="no database yet"):
                call(queue)


def test_a_touch_by_nothing_names_its_two_arguments(make):
    Task = make({"ttr": 60})
    for call in (lambda: Task.touch(1), lambda: Task.xq.touch_many([1])):
        with pytest.raises(xq.BadType, match=r"touch needs increment=.* or update="):
            call()
