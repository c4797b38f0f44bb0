"""Databases, models and tiers for the tests. A test that takes `make` runs on every database of its tier."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import copy_context
from functools import wraps
from pathlib import Path
from typing import Any

# hypothesis: else its plugin imports it when all is over, and a thread that fails to connect just then is in the way:
# Python 3.11 takes no two calls of ast.parse at once, and pymysql makes one for each error.
import hypothesis.internal.conjecture.providers as providers
import peewee as pw
import pytest

pytest.register_assert_rewrite("tests.random_calls", "tests.storm")

# Else what it draws depends on the modules that are loaded, and so on the tests before: no run would be like another.
providers._get_local_constants = lambda: providers._local_constants

import xq  # noqa: E402
from tests import timing  # noqa: E402
from tests.servers import MariaDB, MySQL, Postgres, Server, shared  # noqa: E402
from tests.short_spark import variables  # noqa: E402
from tests.support.life import end_threads  # noqa: E402
from xq.testing import Clock  # noqa: E402

Database = Callable[[Path], AbstractContextManager[pw.Database]]

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test() -> Iterator[None]:
    yield
    end_threads()


@pytest.fixture(autouse=True)
def _only_timing_tests_take_time(request: pytest.FixtureRequest) -> None:
    timing.allow(request.node.stash[TIMING] or _tier(request.node) == "long")


@pytest.fixture(scope="session", autouse=True)
def _spark_is_for_short_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.update(variables(tmp_path_factory.mktemp("spark")))


def _sqlite(name: str) -> Database:
    """A file of that name, or memory."""

    @contextmanager
    def fresh(folder: Path) -> Iterator[pw.Database]:
        path = name if name == ":memory:" else str(folder / name)
        with closing(pw.SqliteDatabase(path, timeout=20)) as database:
            yield database
        end_threads()

    return fresh


def _on(kind: type[Server]) -> Database:
    """Create a database for one test and drop it afterwards.

    Advisory locks and notifications of one test cannot reach the next.
    """

    @contextmanager
    def fresh(folder: Path) -> Iterator[pw.Database]:
        with database_on(kind) as (server, name), closing(server.peewee(name)) as database:
            yield database

    return fresh


@contextmanager
def database_on(kind: type[Server]) -> Iterator[tuple[Server, str]]:
    """The one server of this kind, and the name of a database there, which is gone afterwards."""
    if reason := kind.missing():
        pytest.skip(reason)
    server, name = shared(kind), f"test_{next(_numbers)}"
    server.create(name)
    try:
        yield server, name
    finally:
        end_threads()
        server.drop(name)


# name -> a fresh database, cleared up afterwards. To test another one, name it here.
SERVERS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB, "mysql": MySQL}
DATABASES: Mapping[str, Database] = {
    "sqlite": _sqlite("app.db"),
    "memory": _sqlite(":memory:"),
    **{name: _on(kind) for name, kind in SERVERS.items()},
}
SHARED = [name for name in DATABASES if name != "memory"]  # those that another process can open


# tiers

TIERS = ("test", "rest", "more", "long")
ALL, SQLITE = set(DATABASES), {"sqlite"}
FAST = {"sqlite", "postgres"}  # MariaDB is slow to make tables and triggers

# folder or file -> the databases for `make test`, `make test-rest` and `make test-more`; the longest name counts.
# `make test-long` runs the other tests: of other folders and databases, and timing tests.
PLACES: Mapping[str, tuple[set[str], ...]] = {
    "unit": (ALL,),
    "guarantees": (ALL,),
    "guarantees/test_silence.py": (set(), set(), ALL),  # three minutes
    "guarantees/test_steps.py": (SQLITE, ALL),
    "guarantees/test_views.py": (set(), ALL),
    "contract": (SQLITE, FAST, ALL),
    "contract/core": (FAST, ALL),
    "contract/test_bad_values.py": (SQLITE, set(), SQLITE | {"memory"}),  # most is refused before a database is asked
    "contract/test_tubes_bad_values.py": (SQLITE, set(), SQLITE | {"memory"}),
    # What does not depend on the database, and takes long to show.
    **dict.fromkeys(map("contract/test_{}.py".format, ("batches", "cli", "console", "names")), (SQLITE, set(), ALL)),
    "contract/test_connections.py": (SQLITE, ALL),  # MariaDB has ways of its own
    "contract/test_after.py": (SQLITE, ALL),
    "contract/test_fair.py": (SQLITE, ALL),
    "contract/test_groups.py": (SQLITE, ALL),
    "contract/test_rate.py": (SQLITE, ALL),
    "contract/test_databases.py": (SQLITE, ALL),
    "contract/test_servers_fail.py": (SQLITE, ALL),
    "contract/test_time.py": (SQLITE, ALL),
    "contract/test_transactions.py": (SQLITE, ALL),
    "django": (SQLITE,),
    "django/test_random_calls.py": (set(), set(), SQLITE),
    "django/test_round_trips.py": (SQLITE, FAST, ALL),
    "django/test_tenants.py": (set(), ALL),  # half a minute of migrations
    "explore": (SQLITE, SQLITE, ALL),
    "inside": (set(), SQLITE),
    "inside/test_lease_steps.py": (SQLITE, ALL),
    "inside/test_unread.py": (set(), ALL),
    "inside/test_round_trips.py": (SQLITE, FAST, ALL),
    "random": (set(), SQLITE, ALL),
    "sqlalchemy": (SQLITE, FAST, ALL),
    "project/test_docs.py": (set(), SQLITE),
    "spark/core": (SQLITE,),
    "spark/core/test_round_trip.py": (set(), SQLITE),
}
# What MySQL shows as soon as the others do: the rest of it, which it shares with MariaDB, is for `make test-more`.
ON_MYSQL = ("test_death.py", "test_install.py", "test_once.py", "test_take.py")
# The same for the tests that are run on models of SQLAlchemy (--orm=sqlalchemy).
ON_SQLALCHEMY: Mapping[str, tuple[set[str], ...]] = {
    "contract": (set(), set(), SQLITE),
    "contract/core": (SQLITE, set(), set(SHARED)),
}
TIMED = ("guarantees", "spark/core")  # whose timing tests run there
TIMING = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=TIERS,
        action="append",
        help="run the tests of this tier: of `make test`, `make test-rest`, `make test-more` or `make test-long`; "
        "without it, all that the arguments name",
    )
    parser.addoption("--orm", choices=("peewee", "sqlalchemy"), default="peewee", help="whose models `make` upgrades")
    parser.addoption("--aio", metavar="DRIVER", help="with --orm=sqlalchemy: calls join a transaction of this driver's")


def pytest_configure(config: pytest.Config) -> None:
    if driver := config.getoption("--aio"):
        from tests.sqlalchemy.in_loop import have_calls_join

        os.environ["XQ_TEST_DB"] = have_calls_join(driver)


def _tier(item: pytest.Item) -> str:
    """Return the tier that a test belongs to: its folder, its databases and what it uses decide."""
    place, databases = item.path.relative_to(item.config.rootpath / "tests").as_posix(), _databases(item)
    places = PLACES if item.config.getoption("--orm") == "peewee" else ON_SQLALCHEMY
    while place and place not in places:
        place = place.rpartition("/")[0]
    if not place or (item.stash[TIMING] and not place.startswith(TIMED)):
        return "long"
    tier = next((tier for tier, on in zip(TIERS, places[place]) if on and databases <= on), "long")
    at_once = item.config.getoption("--orm") == "peewee" and item.path.name in ON_MYSQL
    return "more" if tier in TIERS[:2] and "mysql" in databases and not at_once else tier


def _databases(item: pytest.Item) -> set[str]:
    """Return the databases that the parameters of a test name."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    named = {value for value in values if isinstance(value, str)} & set(DATABASES)
    return named | {name for name, kind in SERVERS.items() if any(value is kind for value in values)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other tiers, and those of other databases where XQ_TEST_DB names one.

    A database in memory is SQLite's as in a file, but for what a file of tests says `IN_MEMORY = True` of.
    """
    tiers, only = config.getoption("--tier"), os.environ.get("XQ_TEST_DB")
    another = config.getoption("--orm") != "peewee"  # memory is for one connection
    foreign = ["of_peewee"] * another + ["apart"] * bool(config.getoption("--aio"))

    def is_wanted(item: pytest.Item) -> bool:
        databases = _databases(item)
        in_memory = getattr(getattr(item, "module", None), "IN_MEMORY", False) and not another
        if ("memory" in databases and not in_memory) or any(map(item.get_closest_marker, foreign)):
            return False
        return (not tiers or _tier(item) in tiers) and (not only or not databases or only in databases)

    wanted: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        item.stash[TIMING] = timing.is_timing(item)
        wanted[is_wanted(item)].append(item)
    config.hook.pytest_deselected(items=wanted[False])
    items[:] = wanted[True]


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """The session that a test enters and does not leave is current for no other test."""
    test = pyfuncitem.obj

    @wraps(test)
    def in_a_context(*args: Any, **kwargs: Any) -> Any:
        return copy_context().run(test, *args, **kwargs)

    pyfuncitem.obj = in_a_context
    yield
    pyfuncitem.obj = test


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Where everything is required, a test that cannot run has failed."""
    outcome: Any = yield
    report = outcome.get_result()
    # A lane sends its reports as UTF-8, which a test's log need not be.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    if report.skipped and os.environ.get("XQ_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is required: {report.longrepr}"


def fresh(kinds: Iterable[str]) -> Any:
    """Return a fixture: a fresh database, of each of these kinds in turn."""

    @pytest.fixture(params=list(kinds))
    def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pw.Database]:
        with DATABASES[request.param](tmp_path) as found:
            yield found

    return database


db = fresh(DATABASES)
shared_db = fresh(SHARED)  # that other processes and threads can open
sqlite_db = fresh(["sqlite", "memory"])  # for what only SQLite has; a file's fixture `db` may be this one


class Maker:
    """Makes queues on one database: `Task = make({"ttl": 10})`."""

    INSTALLS = True
    upgrade: Callable[..., Any] = staticmethod(xq.upgrade)

    def __init__(self, db: pw.Database, clock: Clock | None = None) -> None:
        self.db = db
        self.clock: Clock | None = clock or Clock()

    def model(self, key: pw.Field | None = None, **attributes: Any) -> type[pw.Model]:
        """A model with a field for every role, two fields of its own, and whatever `attributes` adds or replaces."""
        own = {"id": key} if key is not None else {}
        meta = {"database": self.db, "table_name": attributes.pop("table_name", "task")}
        meta |= attributes.pop("meta", {})
        fields = {
            "name": pw.TextField(null=True),
            "size": pw.IntegerField(default=0),
            "status": pw.CharField(default="R"),
            "runat": pw.DoubleField(null=True),
            "deadline": pw.DoubleField(null=True),
            "priority": pw.IntegerField(default=0, null=True),
            "tube": pw.TextField(null=True),
            "owner": pw.TextField(null=True),
            "attempts": pw.IntegerField(default=0),
            "ttl": pw.DoubleField(null=True),
            "ttr": pw.DoubleField(null=True),
            "job": pw.TextField(null=True),
            "utube": pw.CharField(null=True),
        }
        return type("Task", (pw.Model,), {**own, **fields, **attributes, "Meta": type("Meta", (), meta)})

    def __call__(
        self,
        features: Mapping[str, Any] | None = None,
        *,
        roles: tuple[str, ...] = ("runat", "deadline", "priority"),
        fields: Mapping[str, Any] | None = None,
        model: type[pw.Model] | None = None,
        key: pw.Field | None = None,
        attributes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """An upgraded, installed model. `roles` are mapped to the fields of their names (unique to `job`)."""
        model = model or self.model(key, **(attributes or {}))
        mapped = {role: "job" if role == "unique" else role for role in ("status", *roles)}
        self.upgrade(model, fields or mapped, features or {}, clock=self.clock, **options)
        if self.INSTALLS:
            self.create(model)
        return model

    def create(self, model: Any) -> None:
        self.db.create_tables([model])

    def close(self) -> None:
        return


@pytest.fixture
def make(request: pytest.FixtureRequest, db: pw.Database) -> Iterator[Maker]:
    """Makes queues whose clock is in the test's hand: `Task.xq.clock.tick(5)`."""
    with closing(_maker(request)(db)) as maker:
        yield maker


@pytest.fixture
def make_shared(request: pytest.FixtureRequest, shared_db: pw.Database) -> Iterator[Maker]:
    """Makes queues by a clock in the test's hand which other threads and processes can open."""
    with closing(_maker(request)(shared_db)) as maker:
        yield maker


def _maker(request: pytest.FixtureRequest) -> Callable[..., Maker]:
    if request.config.getoption("--orm") == "peewee":
        return Maker
    from tests.sqlalchemy.maker import SqlalchemyMaker

    return SqlalchemyMaker


@timing.is_for_timing
def live(db: pw.Database) -> Maker:
    """Makes queues by the database's own clock, for timing tests."""
    timing.timed("the database's own clock")
    made = Maker(db)
    made.clock = None
    return made


@pytest.fixture
@timing.is_for_timing
def takes_its_time() -> None:
    """For a test that is long and therefore left to `make test-long`."""


@pytest.fixture
@timing.is_for_timing
def make_live(shared_db: pw.Database) -> Maker:
    """Makes queues by the database's own clock which other threads and processes can open, for timing tests."""
    return live(shared_db)
