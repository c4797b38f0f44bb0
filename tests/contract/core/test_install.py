"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from contextlib import closing, nullcontext, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker, database_on
from tests.factories import task, tasks
from tests.steps import (
    Work,
    a_second_passes,
    bring,
    eventually,
    install_after_the_statements,
    install_anew,
    is_exact,
    row,
    run_script,
    transitions,
    until_one_waits_for_a_lock,
)
from tests.support.calls import CALLS
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
    make.upgrade(model, fields, features, clock=make.clock, **options)
    return model


@pytest.mark.parametrize(
    ("there", "advice"),
    [
        (plain, r"^Task\.xq\.install\(\) installs .* is missing; [0-9]+ more"),
        (
            lambda make: make.model(),
            r"^(db\.create_tables\(\[Task\]\)|Task\.metadata\.create_all.*) creates .*: the table task is missing",
        ),
    ],
    ids=["installed", "created"],
)
def test_a_queue_that_is_not_there_says_which_call_makes_it(make, subtests, there, advice):
    Task = upgraded(make, there(make), {**FEATURES, "ttr": 60})
    for name, call in CALLS.items():
        with subtests.test(name), pytest.raises(xq.NotInstalled, match=advice) as missing:
            call(Task.xq)
        assert all(what in str(missing.value) for what in missing.value.missing[:3])


def test_install_makes_tasks_of_the_rows_that_are_there_and_may_be_called_again_at_any_time(make):
    Task = upgraded(make, plain(make))
    assert Task.xq.check() != []
    for _ in range(3):
        Task.xq.install()
    assert Task.xq.check() == []
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
    model = plain(make)
    model.update(status="B").where(model.name == "b").execute()
    Task = upgraded(make, model, {**FEATURES, "history": True})
    text = Task.xq.ddl()
    run_script(make.db, text)
    assert Task.take().name == "a"
    adds_if_missing = not isinstance(make.db, pw.SqliteDatabase)
    run_script(make.db, text if adds_if_missing else Task.xq.ddl())
    assert Task.stats().counts == {"R": 1, "T": 1, "W": 0, "B": 1, "Z": 0}
    assert transitions(Task) == {"R-T": 1}
    assert [row.event for row in Task.xq.history()] == ["take"]
    assert len(Task.xq.taken()) == 1
    Task.xq.install()
    assert Task.xq.check() == []
    assert (Task.xq.ddl() == text) is adds_if_missing


def test_the_statements_of_the_ddl_install_as_well_when_a_driver_that_takes_one_at_a_time_runs_them(make):
    Task = upgraded(make, plain(make), {**FEATURES, "history": True, "utube": True}, {**ROLES, "utube": "name"})
    statements = Task.xq.ddl(split=True)
    text = re.sub("^DELIMITER .*\n", "", Task.xq.ddl().replace(";;\nDELIMITER ;", ";"), flags=re.MULTILINE)
    assert [*text.split(";\n\n")] == [*statements, ""]
    prepared = {"prepare": True} if isinstance(make.db, pw.PostgresqlDatabase) else {}  # psycopg else takes several
    with closing(make.db.connection().cursor()) as cursor:
        for sql in statements:
            cursor.execute(sql, **prepared)
            assert not re.search(r"(?<![:\w\\]):\w+(?!:)", sql), "Alembic's op.execute() would take it for a parameter"
    Task.xq.install()
    assert Task.xq.check() == []
    assert Task.take().name == "a"


def test_the_ddl_to_uninstall_leaves_the_plain_table_and_changes_nothing_by_itself(make):
    model = plain(make)
    before = made(make.db)
    features = {**FEATURES, "history": True, "unique": True, "utube": True}
    Task = upgraded(make, model, features, {"unique": "job", "utube": "utube", "tube": "tube"})
    Task.xq.install()
    Task.xq.put_many(tasks(2))
    text, statements = Task.xq.ddl(uninstall=True), Task.xq.ddl(uninstall=True, split=True)
    assert [*text.split(";\n\n")] == [*statements, ""]
    assert Task.xq.check() == []
    run_script(make.db, text)
    assert {table for table in make.db.get_tables() if "xq" in table} == {t for t in made(make.db)[0] if t[:3] == "xq_"}
    assert (made(make.db)[1:], model.select().count()) == (before[1:], 5)
    Task.xq.parts.maintenance.leave()  # as in a process that starts
    with pytest.raises(xq.NotInstalled, match="it was never installed here"):
        Task.take()
    run_script(make.db, Task.xq.ddl())
    assert (Task.xq.check(), Task.stats().transition) == ([], {})


@pytest.mark.parametrize("database", [pw.PostgresqlDatabase, pw.MySQLDatabase])
def test_the_ddl_needs_no_server_but_the_one_that_tells_mysql_from_mariadb(database):
    db = database("app", host="127.0.0.1", port=1)
    model: Any = type("Task", (pw.Model,), {"Meta": type("Meta", (), {"database": db})})
    queue = xq.upgrade(model, {}, {})
    if database is pw.MySQLDatabase:
        with pytest.raises(Exception, match="Can't connect"):
            queue.ddl()
    else:
        assert all("task_xq_count" in queue.ddl(uninstall=uninstall) for uninstall in (False, True))


def test_the_ddl_of_other_features_drops_what_the_earlier_ones_had(make):
    Task = make({"history": True, "unique": True, "utube": True}, roles=("unique", "utube"))
    Task.put(task(job="a"))
    Next = upgraded(make, make.model(), {"history": True}, {**Task.xq.roles})
    text = Next.xq.ddl()
    run_script(make.db, text)
    for _ in range(2):
        Next.put(task(job="a"))
    assert (Next.xq.check(), Next.stats().transition, len(Next.xq.history())) == ([], {"X-R": 3}, 3)
    assert is_exact(Next)


def test_the_ddl_refuses_what_install_refuses(make):
    Task = make({**FEATURES, "history": True})
    bring(Task, "B")
    for features, why in (({"history": True}, r"1 buried \(B\)"), (FEATURES, "rows are in task_xq_history")):
        Other = upgraded(make, make.model(), features)
        with make.db.atomic(), pytest.raises(xq.ConfigurationError, match=why):
            Other.xq.ddl()
        with pytest.raises(xq.ConfigurationError, match=why):
            Other.xq.install()
    assert (Task.xq.check(), Task.xq.count("B")) == ([], 1)
    assert "task_xq_count" in upgraded(make, make.model(), FEATURES | {"history": True, "limit": 5}).xq.ddl()


@pytest.mark.parametrize(
    ("kind", "mode", "odd"),
    [
        ("mariadb", "", "\\"),
        ("mariadb", "NO_BACKSLASH_ESCAPES", "'"),  # MySQL itself reads its own text of a column wrong in this mode
        ("mariadb", "ANSI_QUOTES", '"'),
        ("mysql", "", "\\"),
        ("mysql", "ANSI_QUOTES", '"'),
    ],
)
def test_the_ddl_of_mariadb_and_mysql_is_run_by_the_client_whatever_the_quotes_of_a_session_are(kind, mode, odd):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        make = Maker(db, Clock())
        options = {"statuses": {"R": f"it{odd};", "T": odd, "D": f"{odd}'"}, "tube_stats": [f"%_;'{odd}"]}
        model = make.model(
            job=pw.TextField(null=True, column_name='"; `\\" größe'),
            table_name=f"it;{odd} x",
        )
        db.create_tables([model])
        roles = {"status": "status", "tube": "tube", "unique": "job"}
        Task = upgraded(make, model, {"history": 60, "keep": True, "unique": True}, roles, **options)
        sql_mode = f"SET SESSION sql_mode = CONCAT(@@sql_mode, ',{mode}')"
        where = [f"--host={server.host}", f"--port={server.port}", f"--user={server.USER}", "--protocol=tcp"]
        command = [SERVERS["mariadb"].program("mariadb", "mysql"), "--no-defaults", *where, "--skip-ssl", name]
        command.append("--default-character-set=utf8mb4")
        subprocess.run(command, input=f"{sql_mode};\n{Task.xq.ddl()}", check=True, text=True)
        db.close()
        db.init(db.database, **{**db.connect_params, "init_command": sql_mode})
        assert Task.xq.check() == []
        Task.put({"tube": f"%_;'{odd}", "job": "a"})
        assert Task.take(tube=f"%_;'{odd}").ack().status == f"{odd}'"
        assert Task.stats().tube[f"%_;'{odd}"].transition == {"X-R": 1, "R-T": 1, "T-D": 1}
        assert [row.event for row in Task.xq.history()] == ["put", "take", "ack"]
        assert Task.xq.check() == []


# the fingerprint


def parking(event):
    park = (xq.Transition("R", event, "P"), xq.Transition("P", "fetch", "R"))
    return xq.Feature("parked", transitions=park)


DEFINED: dict[str, Any] = {**FEATURES, "parked": parking("park")}

# what is different, all that is said of it
DIFFERENT: list[tuple[dict[str, Any], list[str]]] = [
    ({"features": {**DEFINED, "keep": True, "zombie": None}}, ["'keep' is off there and on", "'zombie' is on there"]),
    ({"features": {**DEFINED, "buried": "any"}}, ["the feature 'buried' is on there and 'any' here"]),
    ({"features": {**DEFINED, "parked": parking("leave")}}, ["'parked' has other transitions, timers or columns"]),
    ({"fields": ROLES | {"priority": "size"}}, ["role 'priority'"]),
    ({"statuses": {**dict(zip("RTWDZP", "RTWDZP", strict=True)), "B": "failed"}}, ["B is 'B' there and 'failed'"]),
    ({"fields": ROLES | {"tube": "tube"}, "tube_stats": ["a"]}, ["role 'tube'", "tube_stats"]),
]


def test_a_process_that_is_configured_otherwise_is_told_the_difference_and_nothing_else(make, subtests):
    Task = upgraded(make, make.model(), DEFINED)
    Task.create_table()
    Task.put({"tube": "a"})
    for different, said in DIFFERENT:
        Task.xq.install(downgrade=True)
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


def test_durations_callables_and_what_methods_return_may_differ(make):
    fields = {"status": "status", "runat": "runat", "unique": "job"}
    one = {"delayed": True, "zombie": True, "ttl": 5, "ttr": 5, "unique": True, "id": lambda task: 1}
    two = one | {"zombie": 60, "ttl": True, "ttr": 9.5, "unique": "TRW", "id": lambda task: 2, "retval": "dict"}
    upgraded(make, make.model(), one, fields).create_table()
    Other = upgraded(make, make.model(), two, fields)
    assert Other.xq.check() == []
    assert Other.put({})["id"] == 2


# older definitions


def test_an_older_definition_replaces_a_newer_one_only_if_it_is_told_to(make):
    Old, New = (
        upgraded(make, make.model(), features) for features in ({"keep": True}, {"keep": True, "history": True})
    )
    Old.create_table()
    Old.put({})
    text = Old.xq.ddl()
    Old.xq.install()
    New.xq.install()
    Old.xq.parts.maintenance.leave()  # as in a process that starts
    with pytest.raises(xq.NotInstalled, match="start the newer program.*'history' is on there") as told:
        Old.take()
    said = [str(told.value), *(f"{what} {do}" for what, do in Old.xq.doctor()), Old.xq.install(plan=True)]
    for call in (Old.xq.install, Old.create_table, Old.xq.ddl, lambda: Old.xq.install(drop_history=True)):
        with pytest.raises(
            xq.ConfigurationError, match=r"another one has replaced it .*install\(downgrade=True\)"
        ) as refused:
            call()
        said.append(str(refused.value))
    assert not re.search("drop_history|xq install(?! --downgrade)", " ".join(said))
    with pytest.raises(xq.ConfigurationError):
        Old.xq.install(online=True)
    assert (New.xq.check(), New.xq.count()) == ([], 1)
    New.xq.install()
    Old.xq.install(downgrade=True, drop_history=True)
    assert Old.xq.check() == []
    with pytest.raises(xq.ConfigurationError, match=r"it is withdrawn, as .* xq install.*forward=True"):
        New.xq.install()
    New.xq.install(downgrade=True)
    run_script(make.db, text)  # what a migration runs is meant
    with pytest.raises(xq.ConfigurationError, match="it is withdrawn"):
        New.xq.install()
    Old.xq.uninstall()
    New.xq.install()  # begins anew


def test_no_definition_is_older_than_a_table_that_was_dropped_by_sql_and_made_anew(make):
    for features in ({"keep": True}, {"keep": True, "delayed": True}, {"keep": True}):
        Task = upgraded(make, make.model(), features)
        Task.create_table()
        Task.xq.install()
        assert (Task.put({}).status, Task.xq.check()) == ("R", [])
        Task.xq.parts.maintenance.leave()
        make.db.execute_sql("DROP TABLE task")


def test_a_version_of_xq_does_not_replace_a_newer_one_and_replaces_an_older_one(make):
    Task = make(FEATURES)
    ((mine,),) = make.db.execute_sql("SELECT version FROM xq_queue").fetchall()
    for version, is_older in ((int(mine) + 1, True), (int(mine) - 1, False), (int(mine) + 1, True)):
        make.db.execute_sql(f"UPDATE xq_queue SET version = '{version}'")
        Task.xq.parts.maintenance.leave()  # as in a process that starts
        with pytest.raises(xq.NotInstalled, match="start the newer program" if is_older else "install"):
            Task.put({})
        with pytest.raises(xq.ConfigurationError, match="a newer version of xq") if is_older else nullcontext():
            Task.xq.install()
    Task.xq.install(downgrade=True)
    assert Task.put({}).status == "R"


# uninstall


def made(db):
    """What there is of the table of the tasks, and beside it."""
    return db.get_tables(), db.get_indexes("task"), db.get_columns("task")


ONCE = xq.Feature("once", guards=(xq.Guard("once", "unique", states="RT", checks="single"),))


@pytest.mark.parametrize(
    "features",
    [FEATURES, {"history": True}, {"unique": True}, {"once": ONCE}, {"utube": True}, {"limit": 5}],
    ids=lambda features: " ".join(features),
)
def test_uninstall_leaves_the_plain_table(make, features):
    model = plain(make)
    before = made(make.db)
    Task = upgraded(make, model, features, ROLES | {"unique": "job", "utube": "utube"})
    Task.xq.install()
    Task.put(task(name="d"))
    assert Task.take().release()
    rows = [each.__data__ for each in make.model().select()]
    Task.xq.uninstall()
    assert made(make.db) == before
    assert [each.__data__ for each in make.model().select()] == rows
    Task.insert(name="e").execute()
    Task.update(status="B").execute()
    with pytest.raises(xq.NotInstalled):
        Task.put(task())
    Task.update(status="R").execute()
    Task.xq.uninstall()
    Task.xq.install()  # begins anew
    assert (Task.stats().counts["R"], Task.stats().transition, Task.xq.sessions()) == (5, {}, [])
    assert Task.take().ack()
    assert is_exact(Task)


def test_the_record_has_the_durations_of_the_last_install(make):
    for ttr in (5, 7):
        Task = make({"keep": True, "delayed": True, "ttr": ttr})
        Task.xq.install()
        ((record,),) = make.db.execute_sql("SELECT fingerprint FROM xq_queue").fetchall()
        assert json.loads(record)["durations"] == {"ttr": ttr}
    other = make({"keep": True, "delayed": True, "ttr": True})
    assert other.xq.check() == []


def test_what_other_features_have_left_behind_is_uninstalled_as_well(make):
    plain(make)
    before = made(make.db)
    roles = {"status": "status", "unique": "job", "utube": "utube"}
    Task = upgraded(make, make.model(), {"unique": True, "utube": True}, roles)
    Task.xq.install()
    for features in ({}, {"unique": True}, {}):  # of the next releases of the application
        install_anew(Task, features, downgrade=True)
    Task.xq.uninstall()
    assert made(make.db) == before


# other features


def test_features_may_not_go_while_tasks_are_in_their_states(make):
    Task = make(FEATURES)
    for here in "ZZB":
        bring(Task, here)
    held = bring(Task, "T")
    before = Task.stats()
    Second = upgraded(make, make.model(), {"keep": True})
    for lose, told in (
        (Second.xq.install, r"1 buried \(B\), 2 zombie \(Z\): move them where you want them"),
        (Second.create_table, r"1 buried \(B\), 2 zombie \(Z\)"),
    ):
        with pytest.raises(xq.ConfigurationError, match=r"1 buried") as refused:
            lose()
        assert re.search(told, str(refused.value))
        assert Task.stats() == before
        assert Task.xq.check() == []
    for here in "BZ":
        Task.xq.kill_many(Task.xq.by_state(here))
    Second.xq.install()
    assert Second.xq.machine.states == ("R", "T", "D")
    assert Second.release(held.id).status == "R"
    assert is_exact(Second)


DELETES = [({}, 1, 1), ({}, 0, 0), ({"keep": True}, 1, 0), ({"keep": True, "ttl": 60}, 1, 1)]


@pytest.mark.parametrize(("features", "rows", "warned"), DELETES, ids=str)
def test_a_table_with_rows_that_an_ack_or_a_timer_deletes_is_warned_of_once(make, features, rows, warned, caplog):
    model = make.model()
    make.db.create_tables([model])
    for _ in range(rows):
        model.create(status="new")
    Task = upgraded(make, model, features)
    Task.xq.install()
    Task.create()
    upgraded(make, make.model(), features | {"limit": 5}).xq.install()
    assert caplog.text.count("deletes the row of its task; ") == warned


WORDS = {"R": "new", "T": "busy", "W": "later", "D": "done"}


def worded(make, *constraints, rows=1, **status):
    """An application's table, and the queue on it, which is not installed."""
    meta = {"constraints": [pw.SQL(each) for each in constraints]}
    table = make.model(status=pw.CharField(**status), size=pw.IntegerField(null=True), meta=meta)
    make.db.create_tables([table])
    table.insert_many([{"status": "new"}] * rows).execute()
    features: dict[str, Any] = {"delayed": True, "keep": True, "ttr": 60, "history": True}
    return upgraded(make, make.model(size=pw.IntegerField(null=True)), features, statuses=WORDS)


KNOWN = "CHECK (status IN ('new', 'busy', 'done'))"
LIMITS: dict[str, dict[str, Any]] = {
    "column": {"constraints": [pw.SQL(KNOWN)]},
    "table": {},
    "length": {"max_length": 4},
}


@pytest.mark.parametrize("rows", [0, 1], ids=["empty", "with rows"])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_status_that_the_table_refuses_is_named_before_anything_is_made(make, limit, rows):
    column = {} if limit == "length" and isinstance(make.db, pw.SqliteDatabase) else LIMITS[limit]
    Task = worded(make, *[f"CONSTRAINT known {KNOWN}"] * (not column), rows=rows, **column)
    before = made(make.db)
    refused = r"the column task\.status refuses 'later', the status of the state W: "
    for call in (Task.xq.ddl, Task.xq.install):
        with pytest.raises(xq.ConfigurationError, match=rf"cannot be installed: .*{refused}.*Extend the CHECK") as told:
            call()
    assert "refuses 'busy'" not in str(told.value)
    assert made(make.db) == before
    assert [line for line in Task.xq.check() if re.search(refused, line)]
    assert [task.status for task in make.model().select()] == ["new"] * rows


@pytest.mark.parametrize("but", ["'a(b'", "'don''t'", "''"])
def test_a_check_is_understood_whatever_texts_are_in_it(make, but):
    Task = worded(make, f"CHECK (((status IN ({but}, 'new'))) OR lower(status) = 'busy')", rows=0)
    with pytest.raises(xq.ConfigurationError, match=r"refuses 'later'.*refuses 'done'") as told:
        Task.xq.install()
    assert "refuses 'busy'" not in str(told.value)


def test_the_doctor_names_a_status_that_the_table_refuses_since_and_looking_leaves_no_trace(make):
    Task = worded(make)
    Task.xq.install()
    before = (Task.stats(), Task.get().status, make.db.execute_sql("SELECT * FROM task_xq_history").fetchall())
    assert Task.xq.check() == []
    if isinstance(make.db, pw.SqliteDatabase):
        return  # which adds no CHECK
    make.db.execute_sql(f"ALTER TABLE task ADD CONSTRAINT known {KNOWN}")
    (found,) = (found for found in Task.xq.doctor() if "refuses" in found.what)
    assert "known" in found.what
    assert "leave out the feature" in found.do
    assert (Task.stats(), Task.get().status, make.db.execute_sql("SELECT * FROM task_xq_history").fetchall()) == before


@pytest.mark.parametrize("name", ["", "CONSTRAINT sized "])
def test_a_check_that_reads_other_columns_too_refuses_no_status(make, name):
    Task = worded(make, f"{name}CHECK ((status = 'later') = (size IS NOT NULL))")
    Task.xq.install()
    assert Task.xq.check() == []
    assert Task.put({"size": 5}, delay=9).status == "later"


@pytest.mark.parametrize("features", [{}, {"ttr": True}, {"ttr": 60}], ids=str)
@pytest.mark.parametrize("early", [True, False], ids=["before the queue is there", "later"])
def test_a_row_that_another_program_makes_taken_returns_by_the_ttr_of_the_queue_or_a_call(
    make, features, early, caplog
):
    model = make.model()
    make.db.create_tables([model])
    begun = model.create(status="T") if early else None
    roles, returns = ("runat",) if early else ("runat", "owner"), features.get("ttr") == 60
    Task = make(features, model=model, roles=roles)
    begun = begun or Task.create(status="T")
    (line,) = Task.xq.check()
    assert line.startswith("tasks that are taken (T) and have no owner")
    assert ("release_all()" in line, line in caplog.text) == (True, early)
    found = dict(Task.xq.doctor())
    assert ("release_all()" in found.pop(line), [*found] == [] or early) == (
        True,
        True,
    )  # early: advises the role owner
    until = "when the ttr of the queue passes" if returns else "never returns to ready"
    why = "its ttr ends in 60 s, unless its worker prolongs it" if early and returns else until
    assert (until in line, why in Task.xq.why(begun.id)[-1]) == (True, True)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(60)
    assert (Task.xq.sweep(), Task.xq.release_all()) == ((1, 0) if returns else (0, 1))
    assert Task.take().id == begun.id
    assert Task.xq.check() == []


@pytest.mark.parametrize("more", [{}, {"history": True}], ids=["", "history"])
def test_the_refusal_of_lost_states_has_the_statements_that_move_their_tasks_and_the_old_triggers_count_it(make, more):
    words = {"R": "new", "T": "busy", "W": "later", "B": "failed", "Z": "zombie", "D": "done"}
    Task = make(FEATURES | more, roles=("runat", "tube"), statuses=words, tube_stats=["a"])
    foreign = Task.create(status="archived")
    Task.xq.put_many(tasks(1_500, tube="a"))
    Task.xq.ack_many(Task.xq.take_many(1_500))
    for here in "ZBW":
        bring(Task, here)
    install_after_the_statements(Task, {"keep": True, "ttl": 10} | more)
    assert Task.stats().counts == {"R": 2, "T": 0, "D": 1_501}
    moved = transitions(Task)
    assert [moved[each] for each in ("Z-X", "B-R", "W-R")] == [1_501, 1, 1]
    assert Task.stats().tube["a"].counts["D"] == 1_500
    assert {(each.status, each.runat) for each in Task.select().where(Task.status << ["done", "new"])} == {
        ("done", None),
        ("new", None),
    }
    assert row(Task, foreign).status == "archived"
    assert Task.xq.check() == []


def test_rows_with_a_renamed_word_and_finished_ones_that_an_ack_would_delete_have_statements_too(make):
    Task = make({"keep": True}, statuses={"R": "new", "T": "busy", "D": "done"})
    Task.xq.put_many(tasks(3))
    first = Task.take().id
    Task.take().ack()
    with pytest.raises(xq.ConfigurationError) as refused:
        upgraded(make, make.model(), {}, statuses={"R": "open", "T": "busy"}).xq.install()
    run_script(make.db, str(refused.value).partition("\n")[2])
    Next = upgraded(make, make.model(), {}, statuses={"R": "open", "T": "busy"})
    Next.xq.install()
    assert {each.id: each.status for each in Next.select()} == {first: "busy", first + 1: "archived", first + 2: "open"}
    assert (Next.xq.check(), Next.xq.count()) == ([], 2)


def test_the_guard_refuses_the_statements_of_taken_tasks_until_the_definition_before_logs_only(make):
    words = {"R": "new", "T": "busy", "W": "later", "Z": "ended", "B": "failed"}
    features = {"zombie": 30, "buried": True, "delayed": True, "ttr": 60}
    Task = make(features | {"guard": True}, statuses=words)
    keys = [bring(Task, state).id for state in "ZBW"]
    Next = upgraded(make, make.model(), features, statuses={state: f"{word}!" for state, word in words.items()})
    with pytest.raises(xq.ConfigurationError, match=r"The installed triggers count it:\n"):  # the guard lets these go
        Next.xq.install()
    keys.append(bring(Task, "T").id)
    with pytest.raises(xq.ConfigurationError, match="install the earlier definition with 'guard': 'log' first") as told:
        Next.xq.install()
    with pytest.raises(Exception, match="feature guard"):
        run_script(make.db, str(told.value).partition("\n")[2])
    install_anew(Task, features | {"guard": "log"})
    run_script(make.db, str(told.value).partition("\n")[2])
    Next.xq.install()
    Next.xq.sweep()
    rows, now = [row(Next, key) for key in keys], make.clock.now  # each has its time, but that the ttr begins anew
    times = [("ended!", now + 30), ("failed!", None), ("later!", now + 5), ("busy!", now + 60)]
    assert [(each.status, each.runat) for each in rows] == times
    assert Next.xq.stats().counts == {"R": 0, "T": 1, "W": 1, "B": 1, "Z": 1}


def test_a_task_keeps_its_time_under_each_renamed_word_and_not_when_it_leaves_the_queue_later(make):
    words, features = {"R": "new", "T": "busy"}, {"ttl": 60}
    key = make(features, statuses=words).put(task()).id
    for word in ("open", "paid"):
        Next = upgraded(make, make.model(), features, statuses=words | {"R": word})
        with pytest.raises(xq.ConfigurationError) as told:
            Next.xq.install()
        run_script(make.db, str(told.value).partition("\n")[2])
        Next.xq.install()
        assert (row(Next, key).status, row(Next, key).runat) == (word, make.clock.now + 60)
    Next.update(status="draft").execute()
    assert row(Next, key).runat is None


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # others count from the keys in the table
def test_keys_go_on_above_those_that_a_replica_has_brought(make_shared):
    Task = make_shared({"history": True})
    Task.xq.put_many(tasks(5))
    assert Task.xq.check() == []
    Task.kill(5)
    db, ids = Task._meta.database, "pg_get_serial_sequence('task', 'id')"
    db.execute_sql(f"SELECT setval({ids}, 2)")
    behind = "the sequence public.task_id_seq of the key has given 2, and the table has keys up to 4, so that puts fail"
    assert Task.xq.check() == [f"{behind}: recount() repairs it"]
    with pytest.raises(pw.IntegrityError, match="duplicate key"):
        Task.put(task())
    Task.xq.recount()
    assert (Task.xq.check(), Task.put(task()).id) == ([], 6)


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # MariaDB ends the transaction
def test_other_features_are_installed_beside_a_transaction_that_reads_and_then_writes(make_live):
    Task = make_live({"keep": True, "delayed": True, "ttl": 60}, roles=("runat",))
    Task.put(task())
    with make_live.db.atomic():
        assert Task.select().count() == 1
        later = Work(make_live.db, lambda: install_anew(Task, {"keep": True}))
        until_one_waits_for_a_lock(make_live.db)
        another = Task.create(status="R")
    later.result()
    assert (row(Task, another).status, Task.select().count()) == ("R", 2)


def test_other_features_leave_the_indexes_that_they_do_not_change(make):
    Task, Next = (
        make(FEATURES),
        upgraded(make, make.model(), {**FEATURES, "history": True, "keep": True, "zombie": False}),
    )
    bring(Task, "W")
    plan = Next.xq.install(plan=True)
    assert ("_xq_oldest_R" in plan, "count each write" in plan) == (False, True)
    Next.xq.install()
    assert (Next.xq.check(), Next.xq.parts.executor.installation.changed()) == ([], {})
    bring(Next, "D")
    assert is_exact(Next)


WRONG: list[Any] = [{"keep": True}, {"nonsense": True}, {"unique": True}, {"keep": True, "zombie": True}, {"ttl": 0}]


def test_what_install_refuses_changes_nothing(make, subtests):
    Task = make(FEATURES)
    bring(Task, "Z")
    for features in WRONG:
        with subtests.test(f"{features}"):
            with pytest.raises(xq.ConfigurationError):
                install_anew(Task, features)
            assert Task.xq.check() == []
            assert Task.xq.count("Z") == 1
    Task.xq.kill_many(Task.xq.by_state("Z"))
    Next = upgraded(make, make.model(), {})
    with suppress(xq.ConfigurationError), make.db.atomic() as transaction:  # MariaDB refuses that
        Next.xq.install()
        transaction.rollback()
    assert is_exact(Task)


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
    Other.xq.install(drop_history=True)
    assert Other.xq.check() == []
    assert Other.xq.count("D") == 1


def test_a_running_process_whose_definition_was_overtaken_is_told_within_a_second_or_so(make):
    Task, Next = (upgraded(make, make.model(), features) for features in (FEATURES, {"keep": True}))
    Task.create_table()
    Task.put({})
    held = Task.take()
    Next.xq.install()

    def is_told() -> bool:
        with suppress(xq.NotInstalled):
            return Task.take() is not None
        return True

    eventually(is_told)
    for call in (held.ack, held.release, lambda: Task.put({}), lambda: Task.xq.put_many([{}])):
        with pytest.raises(xq.NotInstalled, match="feature 'buried'"):
            call()
    assert Next.xq.count("T") == Next.xq.release_all() == 1
    assert is_exact(Next)


WRITES = {
    "put": lambda queue, key: queue.put({}),
    "put_many": lambda queue, key: queue.put_many([{}, {}]),
    "put(wait=)": lambda queue, key: queue.put({}, wait=0),
    "dig": lambda queue, key: queue.dig(key),
    "kill_many": lambda queue, key: queue.kill_many([key]),
}


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("write", WRITES)
def test_a_process_that_takes_nothing_is_told_of_another_definition_before_it_writes(make, write, within, monkeypatch):
    words = {"R": "paid", "B": "failed", "T": "packing"}, {"R": "open", "B": "failed", "T": "packing"}
    Task, Next = (upgraded(make, make.model(), {"buried": True}, statuses=each) for each in words)
    Task.create_table()
    key = Task.put({}).take().bury().id
    Next.xq.install()
    a_second_passes(monkeypatch)
    with make.db.atomic() if within else nullcontext():
        with pytest.raises(xq.NotInstalled, match="the status of R is 'open' there and 'paid' here"):
            WRITES[write](Task.xq, key)
        Next.insert({"name": "goes on", "status": "draft"}).execute()  # in the same transaction, which goes on
    assert [each.status for each in Next.select().order_by(Next.id)] == ["failed", "draft"]


def test_a_renamed_column_of_the_status_is_named_as_the_cause_until_install_follows_it(make):
    Task, Next = upgraded(make, make.model(), {"keep": True}), make.model(state=pw.CharField(default="R"), status=None)
    upgraded(make, Next, {"keep": True}, {**ROLES, "status": "state"})
    Task.create_table()
    Task.put({})
    make.db.execute_sql("ALTER TABLE task RENAME COLUMN status TO state")
    told = "the column task.status, which the installed triggers may name, is gone"
    with pytest.raises(xq.NotInstalled, match=told):
        Task.put({})
    for queue, remedy in ((Task.xq, "mend the table, then xq install TARGET"), (Next.xq, "xq install TARGET")):
        ((what, do),) = queue.doctor()
        assert (told in what, do) == (True, remedy)
    Next.xq.install()
    Next.insert({"name": "by the application"}).execute()
    assert (Next.xq.count("R"), Next.xq.doctor()) == (2, [("ready tasks: 2, and no process takes", "start a worker")])


@pytest.mark.parametrize(
    ("field", "value"), [(pw.TextField, "a"), (pw.IntegerField, 1), (pw.UUIDField, uuid.UUID(int=1))]
)
def test_uniqueness_that_the_rows_do_not_have_cannot_be_asked_for(make, field, value):
    attributes = {"job": field(null=True)}
    Task = make({"keep": True}, roles=("runat", "unique"), attributes=attributes)
    Task.xq.put_many([{"job": value}, {"job": value}])
    Second = upgraded(make, make.model(job=field(null=True)), {"keep": True, "unique": True}, {**Task.xq.roles})
    for ask in (Second.xq.install, Second.create_table):
        with pytest.raises(xq.ConfigurationError, match="twice"):
            ask()
        assert Task.xq.check() == []
    assert Task.take().ack().status == "D"
    assert is_exact(Task)
    Second.xq.install()  # holds from then on
    with pytest.raises(xq.Duplicate):
        Second.put({"job": value})
    install_anew(Second, {"keep": True}, downgrade=True)
    assert Second.put({"job": value}).status == "R"


def test_a_view_is_refused_by_name(make):
    View = make.model(table_name="shown")
    make.db.create_tables([make.model(table_name="behind")])
    make.db.execute_sql("CREATE VIEW shown AS SELECT * FROM behind")
    xq.upgrade(View, {"status": "status"}, {"keep": True})
    with pytest.raises(xq.ConfigurationError, match="shown is a view: make the table behind it the queue"):
        View.xq.install()
    make.db.execute_sql("DROP VIEW shown")
