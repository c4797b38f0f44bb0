"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker, database_on
from tests.factories import task, tasks
from tests.steps import PATIENCE, bring, eventually, is_exact, row, run_script, transitions, until_one_waits_for_a_lock
from tests.support.calls import CALLS, UPKEEP
from xq.testing import Clock

FEATURES = {"buried": True, "delayed": True, "zombie": 30}

ROLES = {"status": "status", "runat": "runat", "priority": "priority"}


def plain(make, **attributes):
    """A table that the application already has, with a few rows in it."""
    model = make.model(**attributes)
    make.db.create_tables([model])
    model.insert_many([{"name": name} for name in "abc"]).execute()
    return model


def upgraded(make, model, features=FEATURES, fields=ROLES, **options):
    """A queue that is not installed."""
    xq.upgrade(model, fields, features, clock=make.clock, **options)
    return model


def test_a_queue_that_is_not_installed_says_which_call_installs_it(make, subtests):
    Task = upgraded(make, plain(make), {**FEATURES, "ttr": 60})
    for name, call in CALLS.items():
        with subtests.test(name):
            with pytest.raises(xq.NotInstalled, match=r"Task\.xq\.install\(\)") as missing:
                call(Task.xq)
            assert any("xq_queue is missing" in what for what in missing.value.missing)
            assert all(what in str(missing.value) for what in missing.value.missing)
    assert Task.select().count() == 3
    Task.xq.install()
    assert Task.take().name == "a"


def test_a_queue_without_a_table_says_so_as_well(make, subtests):
    Task = upgraded(make, make.model(), {**FEATURES, "ttr": 60})
    advice = r"the table task is missing\): db\.create_tables\(\[Task\]\) creates a new table"
    for name, call in {**CALLS, "install": UPKEEP["install"]}.items():
        with subtests.test(name):
            with pytest.raises(xq.NotInstalled, match=advice):
                call(Task.xq)


def test_install_makes_tasks_of_the_rows_that_are_there_and_may_be_called_again_at_any_time(make):
    Task = upgraded(make, plain(make))
    assert Task.xq.check() != []
    for _ in range(3):
        Task.xq.install()
    assert Task.xq.check() == []
    assert Task.xq.count("R") == 3
    assert [Task.take().name for _ in range(3)] == ["a", "b", "c"]
    before = Task.stats()
    Task.xq.install()
    make.db.create_tables([Task])
    assert Task.stats() == before
    assert Task.xq.check() == []


def test_create_tables_installs_and_drop_tables_takes_all_away(make):
    Task = upgraded(make, make.model())
    make.db.drop_tables([Task])  # what is not there may be dropped
    Task.create_table()
    before = set(make.db.get_tables())
    bring(Task, "B")
    make.db.drop_tables([Task])
    assert [table for table in make.db.get_tables() if "task" in table] == []
    with pytest.raises(xq.NotInstalled):
        Task.put(task())
    make.db.create_tables([Task])
    assert set(make.db.get_tables()) == before
    assert Task.stats().transition == {}
    assert Task.put(task()).status == "R"
    Task.drop_table()
    Task.create_table()
    assert Task.xq.count() == 0


def test_two_queues_of_a_database_come_and_go_on_their_own(make):
    One = make(FEATURES)
    Two = make(FEATURES, model=make.model(table_name="other"))
    bring(Two, "T")
    One.xq.uninstall()
    assert Two.xq.check() == []
    assert Two.xq.count("T") == 1
    Two.xq.uninstall()
    One.xq.install()
    assert One.xq.check() == []


def test_two_queues_whose_long_table_names_begin_alike_have_each_its_own_history_and_counts(make):
    begin = "a" * 55  # with what is added longer than PostgreSQL and MariaDB let a name be
    features = {**FEATURES, "history": True}
    One, Two = (make(features, model=make.model(table_name=begin + end)) for end in ("one", "two"))
    One.put(task())
    Two.xq.put_many(tasks(2))
    assert [len(Task.xq.history()) for Task in (One, Two)] == [1, 2]
    assert (transitions(One), transitions(Two)) == ({"X-R": 1}, {"X-R": 2})
    One.xq.uninstall()
    assert Two.xq.check() == []
    assert Two.take() is not None
    assert is_exact(Two)


# ddl


def test_the_ddl_as_text_installs_as_well_and_may_be_run_twice(make):
    Task = upgraded(make, plain(make))
    text = Task.xq.ddl()
    run_script(make.db, text)
    assert Task.take().name == "a"
    assert transitions(Task) == {"R-T": 1}
    run_script(make.db, text)
    assert Task.stats().counts["R"] == 2
    assert transitions(Task) == {"R-T": 1}
    assert len(Task.xq.taken()) == 1
    Task.xq.install()
    assert Task.xq.check() == []
    assert Task.xq.ddl() == text


def by_the_client(server, name, mode, text):
    """As an administrator runs a file."""
    where = [f"--host={server.host}", f"--port={server.port}", f"--user={server.USER}", "--protocol=tcp", "--skip-ssl"]
    command = [server.program("mariadb", "mysql"), "--no-defaults", *where, "--default-character-set=utf8mb4", name]
    run = subprocess.run(command, input=f"{mode};\n{text}", capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def one_by_one(server, name, mode, text):
    with closing(server.peewee(name, init_command=mode, charset="utf8mb4")) as db:
        for sql in text.splitlines():
            db.cursor().execute(sql.removesuffix(";"))


def at_once(server, name, mode, text):
    with closing(server.peewee(name, init_command=mode, charset="utf8mb4")) as db:
        run_script(db, text)


RUNS = [
    (by_the_client, "", "\\"),
    (by_the_client, "NO_BACKSLASH_ESCAPES", "'"),
    (by_the_client, "ANSI_QUOTES", '"'),
    (one_by_one, "", "'"),
    (at_once, "NO_BACKSLASH_ESCAPES", "'"),
]


@pytest.mark.parametrize(("run", "mode", "odd"), RUNS)
@pytest.mark.parametrize("kind", ["mariadb"])
def test_the_ddl_of_mariadb_is_run_by_its_client_and_by_what_runs_one_line_after_the_other(kind, run, mode, odd):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        make = Maker(db, Clock())
        options = {"statuses": {"R": f"it{odd};", "T": odd, "D": f"{odd}'"}, "tube_stats": [f"%_;'{odd}"]}
        features, roles = {"history": 60, "keep": True, "unique": True}, {"status": "status", "tube": "tube"}
        model = make.model(job=pw.TextField(null=True, column_name='"; `\\" größe'), table_name=f"it;{odd} x")
        db.create_tables([model])
        Task = upgraded(make, model, features, roles | {"unique": "job"}, **options)
        sql_mode = f"SET SESSION sql_mode = CONCAT(@@sql_mode, ',{mode}')"
        run(server, name, sql_mode, Task.xq.ddl())
        db.close()
        db.init(db.database, **{**db.connect_params, "init_command": sql_mode})
        assert Task.xq.check() == []
        Task.put({"tube": f"%_;'{odd}", "job": "a"})
        assert Task.take(tube=f"%_;'{odd}").ack().status == f"{odd}'"
        assert Task.stats().tube[f"%_;'{odd}"].transition == {"X-R": 1, "R-T": 1, "T-D": 1}
        assert [row.event for row in Task.xq.history()] == ["put", "take", "ack"]
        assert Task.xq.check() == []


def test_the_ddl_of_a_queue_with_rows_at_rest_counts_them(make):
    model = plain(make)
    model.update(status="B").where(model.name == "b").execute()
    Task = upgraded(make, model)
    run_script(make.db, Task.xq.ddl())
    assert Task.stats().counts == {"R": 2, "T": 0, "W": 0, "B": 1, "Z": 0}
    assert Task.stats().transition == {}


# the fingerprint


def parking(event):
    park = (xq.Transition("R", event, "P"), xq.Transition("P", "fetch", "R"))
    return xq.Feature("parked", transitions=park)


DEFINED: dict[str, Any] = {**FEATURES, "limit": 5, "parked": parking("park")}

# what is different, all that is said of it
DIFFERENT: list[tuple[dict[str, Any], list[str]]] = [
    ({"features": {**DEFINED, "keep": True, "zombie": None}}, ["'keep' is off there and on", "'zombie' is on there"]),
    ({"features": {**DEFINED, "buried": "any"}}, ["the feature 'buried' is on there and 'any' here"]),
    ({"features": {**DEFINED, "limit": None}}, ["the feature 'limit' is 5 there and off here"]),
    (
        {"features": {**DEFINED, "parked": parking("leave")}},
        ["the feature 'parked' has other transitions, timers or columns there than here"],
    ),
    ({"fields": ROLES | {"tube": "tube"}}, ["role 'tube'"]),
    ({"fields": ROLES | {"priority": "size"}}, ["role 'priority'"]),
    (
        {"fields": {"status": "status", "runat": "runat"}},
        ["the role 'priority' is the column 'priority' there and mapped to no field here"],
    ),
    ({"statuses": {"B": "failed", "R": "ready"}}, ["B is 'B' there and 'failed'", "R is 'R' there and 'ready'"]),
    ({"fields": ROLES | {"tube": "tube"}, "tube_stats": ["a"]}, ["role 'tube'", "tube_stats"]),
]


def test_a_process_that_is_configured_otherwise_is_told_the_difference_and_nothing_else(make, subtests):
    Task = upgraded(make, make.model(), DEFINED)
    Task.create_table()
    Task.put({"tube": "a"})
    for different, said in DIFFERENT:
        Task.xq.install()
        Other = upgraded(make, make.model(), **{"features": DEFINED, **different})
        with subtests.test(" ".join(said)):
            with pytest.raises(xq.NotInstalled) as raised:
                Other.put({})
            told = [line for line in raised.value.missing if "missing" not in line]
            assert len(told) == len(said), told
            assert all(words in line for words, line in zip(said, told, strict=True)), told
            assert all(any(words in line for line in Other.xq.check()) for words in said)
            assert not any("recount" in line for line in Other.xq.check()), "install() counts"
        if "statuses" not in different:  # else what is there is not the queue's
            Other.xq.install()
            assert Other.xq.check() == []
            assert Other.put({}).status == "R"
            Other.xq.truncate()


def test_an_installation_of_another_version_is_told(make):
    Task = upgraded(make, make.model())
    Task.create_table()
    make.db.execute_sql("UPDATE xq_queue SET version = 'older'")
    with pytest.raises(xq.NotInstalled, match="version"):
        Task.put({})
    Task.xq.install()
    assert Task.put({}).status == "R"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"zombie": 30, "retval": "dict"}, {"zombie": 60, "retval": "tuple"}),
        ({"zombie": True}, {"zombie": 60}),
        ({"ttl": 5, "ttr": 5}, {"ttl": True, "ttr": 9.5}),
        ({"id": lambda task: 1}, {"id": lambda task: 2, "retval": "dict"}),
        ({"buried": True, "keep": False, "unique": True}, {"keep": None, "buried": True, "unique": "TRW"}),
    ],
)
def test_durations_callables_and_what_methods_return_may_differ(make, one, two):
    fields = {"status": "status", "runat": "runat"} | ({"unique": "job"} if "unique" in one else {})
    upgraded(make, make.model(), one, fields).create_table()
    Other = upgraded(make, make.model(), two, fields)
    assert Other.xq.check() == []
    Other.put({})
    assert Other.xq.count("R") == 1


# uninstall


def test_uninstall_leaves_the_plain_table(make):
    model = plain(make)
    tables, indexes = make.db.get_tables(), make.db.get_indexes("task")
    Task = upgraded(make, model)
    Task.xq.install()
    Task.put(task(name="d"))
    Task.take()
    before = [each.__data__ for each in Task.select()]
    Task.xq.uninstall()
    assert (make.db.get_tables(), make.db.get_indexes("task")) == (tables, indexes)
    assert [each.__data__ for each in Task.select()] == before
    Task.insert(name="e").execute()
    Task.update(status="B").execute()
    Task.delete().execute()
    with pytest.raises(xq.NotInstalled):
        Task.put(task())


def test_after_uninstall_counting_begins_anew_and_sessions_are_known_again(make):
    Task = make({**FEATURES, "history": True})
    bring(Task, "B")
    Task.xq.uninstall()
    Task.xq.uninstall()
    assert not [name for name in make.db.get_tables() if "xq" in name]
    Task.update(status="R").execute()
    Task.xq.install()
    assert Task.stats().counts["R"] == 1
    assert (Task.stats().transition, Task.xq.sessions()) == ({}, [])
    taken = Task.take()
    ((_, holder, _),) = Task.xq.taken()
    assert [uuid for uuid, _ in Task.xq.sessions()] == [holder]
    assert Task.xq.session(holder).uuid == holder
    assert Task.ack(taken).status == "Z"
    assert is_exact(Task)


# reconfigure


def test_other_features_change_what_a_queue_does(make):
    Task = make({})
    Task.put(task())
    with pytest.raises(xq.FeatureOff):
        Task.bury(1)
    Task.xq.reconfigure({"buried": True, "keep": True, "ttr": 20})
    assert Task.take().runat == Task.xq.clock.now + 20
    assert Task.bury(1).status == "B"
    assert Task.dig(1).status == "R"
    assert Task.take().ack().status == "D"
    assert transitions(Task) == {"X-R": 1, "R-T": 2, "T-B": 1, "B-R": 1, "T-D": 1}
    assert is_exact(Task)


def test_features_may_go_while_no_task_is_in_their_states(make):
    Task = make(FEATURES)
    bring(Task, "B").kill()
    held = bring(Task, "T")
    Task.xq.reconfigure({})
    assert Task.xq.machine.states == ("R", "T")
    assert Task.xq.check() == []
    assert held.release().status == "R"


def test_features_may_not_go_while_tasks_are_in_their_states(make):
    Task = make(FEATURES)
    for here in "ZZB":
        bring(Task, here)
    before = Task.stats()
    Second = upgraded(make, make.model(), {"keep": True})
    for lose, told in (
        (lambda: Task.xq.reconfigure({"keep": True}), "move"),
        (lambda: Task.xq.reconfigure({"keep": True}, move={"Z": "D"}), r"1 buried \(B\)"),
        (Second.xq.install, r"1 buried \(B\), 2 zombie \(Z\)"),
        (Second.create_table, r"1 buried \(B\), 2 zombie \(Z\)"),
    ):
        with pytest.raises(xq.ConfigurationError, match=r"1 buried") as refused:
            lose()
        assert re.search(told, str(refused.value))
        assert Task.stats() == before
        assert Task.xq.check() == []
    assert Task.plow()[0].status == "R"
    assert is_exact(Task)
    Task.xq.truncate()
    Second.xq.install()
    assert Second.put({}).status == "R"
    assert is_exact(Second)


def test_tasks_are_moved_where_they_are_told_to_go(make):
    Task = make(FEATURES)
    for here in "ZZBW":
        bring(Task, here)
    Task.xq.reconfigure({"keep": True, "ttl": 10}, move={"Z": "D", "B": "X", "W": "R"})
    assert Task.stats().counts == {"R": 1, "T": 0, "D": 2}
    moved = transitions(Task)
    assert (moved["Z-D"], moved["B-X"], moved["W-R"]) == (2, 1, 1)
    assert {each.runat for each in Task.xq.by_state("D")} == {None}
    assert Task.xq.by_state("R")[0].runat == Task.xq.clock.now + 10
    assert is_exact(Task)


def test_thousands_of_tasks_are_moved(make):
    Task = make({"zombie": True}, roles=("runat", "tube"), tube_stats=["a"])
    Task.xq.put_many(tasks(1200, tube="a"))
    Task.xq.put_many(tasks(1300))
    Task.xq.ack_many(Task.xq.take_many(2500))
    Task.xq.reconfigure({"keep": True}, move={"Z": "D"})
    assert transitions(Task)["Z-D"] == 2500
    assert Task.stats().tube["a"].transition["Z-D"] == 1200
    assert is_exact(Task)


WRONG: list[tuple[Any, Any]] = [  # features, and where tasks are to go
    *(({"keep": True}, {here: there}) for here, there in ("ZZ", "ZQ", "ZT", "ZS", ("Z", None), "RD", "QD")),
    *((wrong, None) for wrong in ({"nonsense": True}, {"unique": True}, {"keep": True, "zombie": True}, {"ttl": 0})),
]


def test_what_reconfigure_refuses_changes_nothing(make, subtests):
    Task = make(FEATURES)
    bring(Task, "Z")
    for features, move in WRONG:
        with subtests.test(f"{features} {move}"):
            with pytest.raises(xq.ConfigurationError, match="move" if move else None):
                Task.xq.reconfigure(features, move=move)
            assert Task.xq.check() == []
            assert Task.xq.count("Z") == 1
    with make.db.atomic(), pytest.raises(xq.ConfigurationError, match="transaction"):
        Task.xq.reconfigure({}, move={"Z": "X"})
    assert Task.xq.check() == []
    Task.xq.reconfigure({}, move={"Z": "X"})
    assert Task.xq.count() == 0


def test_a_program_without_the_history_does_not_drop_it_by_installing(make):
    Task = make({"keep": True, "history": True})
    bring(Task, "D")
    Other = upgraded(make, make.model(), {"keep": True})
    with pytest.raises(xq.NotInstalled, match="feature 'history' is on there and off here") as told:
        Other.put({})
    assert "xq.install()" not in str(told.value)
    assert "give this process the feature 'history'" in str(told.value)
    for install in (Other.xq.install, Other.create_table):
        with pytest.raises(xq.ConfigurationError, match="rows are in task_xq_history"):
            install()
    assert [row.event for row in Task.xq.history()] == ["put", "take", "ack"]
    assert is_exact(Task)
    Task.xq.reconfigure({"keep": True})
    assert Task.xq.check() == []


@pytest.mark.parametrize("within", [nullcontext, lambda db: db.atomic()], ids=["alone", "in a transaction"])
def test_a_running_process_whose_definition_was_overtaken_is_told_within_a_second_or_so(make, within):
    Task, Other = (upgraded(make, make.model()) for _ in range(2))
    Task.create_table()
    Task.put({})
    held = Task.take()
    Other.xq.reconfigure({"keep": True})

    def is_told() -> bool:
        with suppress(xq.NotInstalled), within(make.db):
            Task.take()
            return False
        return True

    eventually(is_told)
    for call in (held.ack, held.release, lambda: Task.put({}), lambda: Task.xq.put_many([{}])):
        with pytest.raises(xq.NotInstalled, match="feature 'buried'"):
            call()
    assert Other.xq.count("T") == 1
    assert Other.xq.release_all() == 1
    assert is_exact(Other)


def test_statuses_tubes_and_rows_that_are_not_the_queues_stay_as_they_were(make):
    Task = make({"zombie": 30}, roles=("runat", "tube"), statuses={"Z": "zombie", "D": "done"}, tube_stats=["a"])
    foreign = Task.create(status="archived")
    there = bring(Task, "Z", task(tube="a"))
    Task.xq.reconfigure({"keep": True}, move={"Z": "D"})
    assert (row(Task, there).status, row(Task, foreign).status) == ("done", "archived")
    assert Task.stats().tube["a"].counts["D"] == 1


def test_tasks_that_a_move_would_make_hold_one_value_are_not_moved(make):
    Task = make({"zombie": 30}, roles=("runat", "unique"))
    for _ in range(2):
        bring(Task, "Z", task(job="a"))
    with pytest.raises(xq.ConfigurationError, match="two tasks hold 'a'"):
        Task.xq.reconfigure({"keep": True, "unique": "RTWD"}, move={"Z": "D"})
    assert Task.xq.count("Z") == 2
    assert is_exact(Task)
    Task.xq.reconfigure({"keep": True, "unique": True}, move={"Z": "D"})
    assert Task.xq.count("D") == 2


def test_a_queue_is_reconfigured_beside_those_who_put(make_live):
    Task = make_live({"keep": True, "limit": 10**9})
    db, over = Task._meta.database, threading.Event()

    def put() -> None:
        with db.connection_context():
            while not over.is_set():
                Task.put({})

    with ThreadPoolExecutor(2) as threads:
        putting = [threads.submit(put) for _ in range(2)]
        try:
            eventually(Task.xq.count)
            for features in ({"keep": True, "limit": 10**9, "delayed": True}, {"keep": True, "limit": 10**9}) * 2:
                Task.xq.reconfigure(features)
        finally:
            over.set()
        for each in putting:
            each.result(PATIENCE)


def test_uniqueness_that_the_rows_do_not_have_cannot_be_asked_for(make):
    Task = make({"keep": True}, roles=("runat", "unique"))
    Task.xq.put_many([{"job": "a"}, {"job": "a"}])
    Second = upgraded(make, make.model(), {"keep": True, "unique": True}, {**Task.xq.roles})
    unique = lambda: Task.xq.reconfigure({"keep": True, "unique": True})  # noqa: E731
    for ask in (unique, Second.xq.install, Second.create_table):
        with pytest.raises(xq.ConfigurationError, match="two tasks hold|twice"):
            ask()
        assert Task.xq.check() == []
    assert Task.take().ack().status == "D"
    assert is_exact(Task)
    Second.xq.install()  # holds from then on
    with pytest.raises(xq.Duplicate):
        Second.put({"job": "a"})
    assert Second.take().job == "a"
    Second.xq.reconfigure({"keep": True, "limit": 1})
    with pytest.raises(xq.Full):
        Second.put({"job": "a"})
    Second.xq.reconfigure({"keep": True})
    assert Second.put({"job": "a"}).status == "R"


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # others install within no transaction
@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_queue_is_installed_as_the_last_other_one_is_taken_away(make_live, begun):
    db = make_live.db
    Other = make_live(model=make_live.model(table_name="other"))
    Task: Any = make_live.model()
    db.create_tables([Task])
    xq.upgrade(Task, {"status": "status"})
    errors: list[BaseException] = []

    def install() -> None:
        try:
            with db.connection_context():
                Task.xq.install()
        except BaseException as error:
            errors.append(error)

    installing = threading.Thread(target=install)
    with db.atomic():
        if begun == "after":
            Other.xq.uninstall()
        else:
            make_live(model=make_live.model(table_name="third")).xq.uninstall()  # nobody else installs from here on
        installing.start()
        until_one_waits_for_a_lock(db)
        Other.xq.uninstall()
    installing.join(PATIENCE)
    assert errors == []
    assert Task.xq.check() == []
    Task.put({})
    assert Task.take()
