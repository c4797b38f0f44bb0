"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

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
from tests.steps import PATIENCE, another_process, bring, eventually, is_exact, processes, row, run_script, transitions
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


CALLS = {
    "put": lambda Task: Task.put({}),
    "put_many": lambda Task: Task.xq.put_many([{}, {}]),
    "take": lambda Task: Task.take(),
    "take_many": lambda Task: Task.xq.take_many(2),
    "ack": lambda Task: Task.ack(1),
    "release": lambda Task: Task.release(1),
    "bury": lambda Task: Task.bury(1),
    "dig": lambda Task: Task.dig(1),
    "plow": lambda Task: Task.plow(),
    "kill": lambda Task: Task.kill(1),
    "kill_many": lambda Task: Task.xq.kill_many([1, 2]),
    "snatch": lambda Task: Task.xq.snatch(1),
    "restart": lambda Task: Task.xq.restart(1),
    "switch": lambda Task: Task.xq.switch(1, "R"),
    "release_all": lambda Task: Task.xq.release_all(),
    "truncate": lambda Task: Task.xq.truncate(),
    "sweep": lambda Task: Task.xq.sweep(),
    "peek": lambda Task: Task.xq.peek(1),
    "by_state": lambda Task: Task.xq.by_state("R"),
    "count": lambda Task: Task.xq.count(),
    "taken": lambda Task: Task.xq.taken(),
    "sessions": lambda Task: Task.xq.sessions(),
    "stats": lambda Task: Task.stats(),
    "reset": lambda Task: Task.xq.reset(),
    "recount": lambda Task: Task.xq.recount(),
    "session": lambda Task: Task.xq.session(),
}


def test_a_queue_that_is_not_installed_says_which_call_installs_it(make, subtests):
    Task = upgraded(make, plain(make))
    for name, call in CALLS.items():
        with subtests.test(name):
            with pytest.raises(xq.NotInstalled, match=r"Task\.xq\.install\(\)") as missing:
                call(Task)
            assert missing.value.missing
    assert Task.select().count() == 3


def test_a_queue_without_a_table_says_so_as_well(make, subtests):
    Task = upgraded(make, make.model())
    advice = r"the table task is missing\): db\.create_tables\(\[Task\]\) creates a new table"
    for name, call in CALLS.items():
        with subtests.test(name):
            with pytest.raises(xq.NotInstalled, match=advice):
                call(Task)
    with pytest.raises(xq.NotInstalled, match=advice):
        Task.xq.install()


def test_a_call_that_failed_works_once_the_queue_is_installed(make):
    Task = upgraded(make, plain(make))
    with pytest.raises(xq.NotInstalled):
        Task.take()
    Task.xq.install()
    assert Task.take().name == "a"


def test_install_makes_tasks_of_the_rows_that_are_there(make):
    Task = upgraded(make, plain(make))
    assert Task.xq.check() != []
    Task.xq.install()
    assert Task.xq.check() == []
    assert Task.xq.count("R") == 3
    assert [Task.take().name for _ in range(3)] == ["a", "b", "c"]


def test_install_may_be_called_again_at_any_time(make):
    Task = upgraded(make, plain(make))
    for _ in range(3):
        Task.xq.install()
    bring(Task, "B")
    before = Task.stats()
    Task.xq.install()
    make.db.create_tables([Task])
    assert Task.stats() == before
    assert Task.xq.check() == []


def create_at_once(make, within):
    """Have six processes, connected already, create the tables of two queues with indexes of the application's."""
    indexed = {"size": pw.IntegerField(null=True, index=True)}
    queues = [upgraded(make, make.model(table_name=name, **indexed)) for name in ("task", "other")]

    def script():
        make.db.connect()
        yield "connected"
        with within():
            make.db.create_tables(queues)
        for Task in queues:
            Task.put(task())
        yield "done"

    with processes(make.db, *[script] * 6) as others:
        assert {next(other) for other in others} == {"connected"}
        for other in others:
            other.post("create")
        assert {other.hear() for other in others} == {"done"}
    assert [Task.xq.check() for Task in queues] == [[], []]
    assert [Task.xq.count("R") for Task in queues] == [6, 6]


def test_many_processes_may_create_the_tables_at_once(make_live):
    create_at_once(make_live, nullcontext)


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # MariaDB ends it, SQLite has one at a time
def test_many_processes_may_create_the_tables_at_once_within_transactions(make_live):
    create_at_once(make_live, make_live.db.atomic)


def test_create_tables_installs_and_drop_tables_takes_all_away(make):
    Task = make(FEATURES)
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


def test_tables_that_are_not_there_may_be_dropped(make):
    Task = upgraded(make, make.model())
    make.db.drop_tables([Task])
    assert "task" not in make.db.get_tables()


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


@pytest.mark.parametrize(("mode", "odd"), [("", "'"), ("", "\\"), ("NO_BACKSLASH_ESCAPES", "'"), ("ANSI_QUOTES", '"')])
@pytest.mark.parametrize("run", [by_the_client, one_by_one, at_once])
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


def test_the_ddl_is_the_same_before_and_after(make):
    Task = upgraded(make, plain(make))
    before = Task.xq.ddl()
    Task.xq.install()
    Task.put(task())
    assert Task.xq.ddl() == before


def test_the_ddl_of_a_queue_with_rows_at_rest_counts_them(make):
    model = plain(make)
    model.update(status="B").where(model.name == "b").execute()
    Task = upgraded(make, model)
    run_script(make.db, Task.xq.ddl())
    assert Task.stats().counts == {"R": 2, "T": 0, "W": 0, "B": 1, "Z": 0}
    assert Task.stats().transition == {}


# the fingerprint

DIFFERENT: dict[str, Any] = {
    "features": {"features": {"buried": True, "delayed": True}},
    "buried any": {"features": FEATURES | {"buried": "any"}},
    "limit": {"features": FEATURES | {"limit": 5}},
    "roles": {"fields": ROLES | {"tube": "tube"}},
    "another field of a role": {"fields": ROLES | {"priority": "size"}},
    "statuses": {"statuses": {"B": "failed"}},
    "tube_stats": {"fields": ROLES | {"tube": "tube"}, "tube_stats": ["a"]},
}
NAMED = {
    "features": "feature 'zombie'",
    "buried any": "feature 'buried'",
    "limit": "feature 'limit'",
    "roles": "role 'tube'",
    "another field of a role": "role 'priority'",
    "statuses": "status of B",
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_a_process_that_is_configured_otherwise_is_told_the_difference(make, difference):
    Task = upgraded(make, make.model())
    Task.create_table()
    Task.put({"tube": "a"})
    Other = upgraded(make, make.model(), **DIFFERENT[difference])
    with pytest.raises(xq.NotInstalled, match=NAMED.get(difference, difference)):
        Other.put({})
    assert any(NAMED.get(difference, difference) in line for line in Other.xq.check())
    assert not any("recount" in line for line in Other.xq.check()), "install() counts"
    Other.xq.install()
    assert Other.xq.check() == []
    assert Other.put({}).status == "R"


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
        ({"zombie": 30}, {"zombie": 60}),
        ({"zombie": True}, {"zombie": 60}),
        ({"ttl": 5, "ttr": 5}, {"ttl": True, "ttr": 9.5}),
        ({"retval": "dict"}, {"retval": "tuple"}),
        ({}, {"retval": "dict"}),
        ({"id": lambda task: 1}, {"id": lambda task: 2}),
        ({"buried": True, "keep": False}, {"keep": None, "buried": True}),
        ({"unique": True}, {"unique": "TRW"}),
    ],
)
def test_durations_callables_and_what_methods_return_may_differ(make, one, two):
    fields = {"status": "status", "runat": "runat"} | ({"unique": "job"} if "unique" in one else {})
    upgraded(make, make.model(), one, fields).create_table()
    Other = upgraded(make, make.model(), two, fields)
    assert Other.xq.check() == []
    Other.put({})
    assert Other.xq.count("R") == 1


def test_roles_by_name_and_by_field_are_the_same(make):
    make(FEATURES)
    model = make.model()
    fields = {"status": model.status, "runat": model.runat, "deadline": model.deadline, "priority": model.priority}
    assert upgraded(make, model, fields=fields).xq.check() == []


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


def test_uninstall_may_be_called_again(make):
    Task = make(FEATURES)
    Task.xq.uninstall()
    Task.xq.uninstall()
    Task.xq.install()
    assert Task.put(task()).status == "R"
    assert Task.xq.check() == []


def test_counting_begins_anew_after_uninstall(make):
    Task = make(FEATURES)
    bring(Task, "B")
    Task.xq.uninstall()
    Task.update(status="R").execute()
    Task.xq.install()
    assert Task.stats().counts["R"] == 1
    assert Task.stats().transition == {}


def test_a_process_whose_queue_was_uninstalled_elsewhere_is_told(make_live):
    Task = make_live(FEATURES)
    Task.put(task())
    Task.take()

    def script():
        Task.xq.uninstall()
        yield "done"

    with another_process(make_live.db, script) as other:
        assert next(other) == "done"
        for call in (Task.stats, Task.take, lambda: Task.put(task())):
            with pytest.raises(xq.NotInstalled):
                call()


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


def test_a_task_that_is_held_stays_held(make):
    Task = make({"keep": True})
    taken = bring(Task, "T")
    Task.xq.reconfigure({"keep": True, "buried": True})
    assert taken.ack().status == "D"


def test_features_may_go_while_no_task_is_in_their_states(make):
    Task = make(FEATURES)
    bring(Task, "B").kill()
    Task.put(task())
    Task.xq.reconfigure({})
    assert Task.xq.machine.states == ("R", "T")
    assert Task.xq.check() == []
    assert Task.take().ack()


def test_features_may_not_go_while_tasks_are_in_their_states(make):
    Task = make(FEATURES)
    bring(Task, "Z")
    bring(Task, "Z")
    bring(Task, "B")
    before = Task.stats()
    with pytest.raises(xq.ConfigurationError, match=r"1 buried.*2 zombie|2 zombie.*1 buried") as refused:
        Task.xq.reconfigure({"keep": True})
    assert "move" in str(refused.value)
    assert Task.stats() == before
    assert Task.xq.check() == []
    assert Task.plow()[0].status == "R"


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


def test_a_move_is_all_or_nothing(make):
    Task = make(FEATURES)
    bring(Task, "Z")
    bring(Task, "B")
    with pytest.raises(xq.ConfigurationError, match="1 buried"):
        Task.xq.reconfigure({"keep": True}, move={"Z": "D"})
    assert Task.xq.count("Z") == 1


@pytest.mark.parametrize("move", [{"Z": "Z"}, {"Z": "Q"}, {"Z": "T"}, {"Z": "S"}, {"Z": None}, {"R": "D"}, {"Q": "D"}])
def test_a_move_is_from_a_lost_state_to_one_that_there_will_be(make, move):
    Task = make(FEATURES)
    bring(Task, "Z")
    with pytest.raises(xq.ConfigurationError, match="move"):
        Task.xq.reconfigure({"keep": True}, move=move)
    assert Task.xq.count("Z") == 1


@pytest.mark.parametrize("features", [{"nonsense": True}, {"unique": True}, {"keep": True, "zombie": True}, {"ttl": 0}])
def test_features_that_do_not_fit_change_nothing(make, features):
    Task = make(FEATURES)
    bring(Task, "B")
    with pytest.raises(xq.ConfigurationError):
        Task.xq.reconfigure(features)
    assert Task.xq.check() == []
    assert Task.plow()[0].status == "R"


def test_a_process_that_still_has_the_old_features_is_told(make):
    Task = make(FEATURES)
    Task.xq.reconfigure({"keep": True})
    with pytest.raises(xq.NotInstalled, match="feature 'buried'"):
        upgraded(make, make.model()).put({})
    assert upgraded(make, make.model(), {"keep": True}, {**ROLES, "deadline": "deadline"}).put({}).status == "R"


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


def test_a_history_without_rows_is_dropped_by_installing(make):
    make({"history": True})
    Other = upgraded(make, make.model(), {})
    Other.xq.install()
    assert Other.xq.check() == []


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


def test_statuses_and_tubes_stay_as_they_were(make):
    Task = make({"zombie": 30}, roles=("runat", "tube"), statuses={"Z": "zombie", "D": "done"}, tube_stats=["a"])
    bring(Task, "Z", task(tube="a"))
    Task.xq.reconfigure({"keep": True}, move={"Z": "D"})
    assert Task.get().status == "done"
    assert Task.stats().tube["a"].counts["D"] == 1


def test_rows_that_are_not_the_queues_are_not_moved(make):
    Task = make({"zombie": 30})
    foreign = Task.create(status="archived")
    bring(Task, "Z")
    Task.xq.reconfigure({}, move={"Z": "X"})
    assert row(Task, foreign).status == "archived"
    assert Task.select().count() == 1


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


def test_limits_and_uniqueness_hold_from_then_on(make):
    Task = make({}, roles=("runat", "unique"))
    Task.put({"job": "a"})
    Task.xq.reconfigure({"limit": 2, "unique": True})
    with pytest.raises(xq.Duplicate):
        Task.put({"job": "a"})
    Task.put({"job": "b"})
    with pytest.raises(xq.Full):
        Task.put({"job": "c"})
    Task.xq.reconfigure({})
    Task.put({"job": "a"})
    assert Task.xq.count() == 3


def test_uniqueness_that_the_rows_do_not_have_cannot_be_asked_for(make):
    Task = make({}, roles=("runat", "unique"))
    Task.xq.put_many([{"job": "a"}, {"job": "a"}])
    with pytest.raises((xq.Error, pw.IntegrityError)):
        Task.xq.reconfigure({"unique": True})
    assert Task.xq.check() == []
    assert Task.put({"job": "a"}).status == "R"
