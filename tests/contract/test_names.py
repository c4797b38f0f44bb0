"""Tables, columns, tubes and words of any name: they are quoted, or refused by name."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, is_exact, row, state, transitions
from tests.support import names as support
from tests.support.names import NAMES, is_possible

db = support.db

FEATURES = {
    "buried": True,
    "delayed": True,
    "keep": True,
    "ttl": 10,
    "ttr": 20,
    "unique": True,
    "limit": 100,
    "history": 60,
}
ROLES = {"status": "status", "runat": "runat", "priority": "priority", "tube": "tube", "unique": "job"}


def works(Task):
    """Whether a queue does what queues do."""
    first = bring(Task, "B", task(tube="a", job="a"))
    assert Task.dig(first, update={"name": "dug"}).name == "dug"
    taken = Task.take(tube="a")
    assert taken.touch(5).release(delay=5).status == "W"
    Task.xq.clock.tick(5)
    (held,) = Task.xq.take_many(5)
    assert [each.get_id() for each in Task.xq.ack_many([held])] == [first.get_id()]
    Task.put({"name": "b", "job": "b"})
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    with Task.xq.session():
        bring(Task, "T", task(job="c"))
    assert transitions(Task)["T-R"] == 1
    assert Task.put({"job": "c", "name": "d"}, on_conflict="replace").name == "d"
    assert is_exact(Task)
    events = [row.event for row in Task.xq.history(first)]
    assert events == ["put", "take", "bury", "dig", "take", "release", "delay", "take", "ack"]
    assert {row.tube for row in Task.xq.history(first)} == {"a"}
    Task.xq.install()
    assert Task.xq.truncate() == 2
    Task.xq.uninstall()
    assert Task.xq.check() != []
    return True


def test_a_table_may_have_any_name(make, subtests):
    for name in NAMES:
        with subtests.test(name):
            model = make.model(table_name=name)
            if is_possible(make.db, name, of_table=True):
                assert works(make(FEATURES, fields=ROLES, model=model))
                continue
            with pytest.raises(xq.ConfigurationError, match=f"M(ariaDB .* U\\+FFFF.*|ySQL .*){name}"):
                make(FEATURES, fields=ROLES, model=model)


@pytest.mark.parametrize("first", range(0, len(NAMES), 7))  # eight names at a time
def test_columns_may_have_any_names(make, first):
    names = [name for name in [*NAMES[first:], *NAMES[:first]] if is_possible(make.db, name)]
    kinds = {
        "id": pw.AutoField(column_name=names[0]),
        "status": pw.CharField(default="R", column_name=names[1]),
        "runat": pw.DoubleField(null=True, column_name=names[2]),
        "priority": pw.IntegerField(default=0, null=True, column_name=names[3]),
    }
    texts = zip(("tube", "job", "owner", "name"), names[4:], strict=False)
    texts_of = {field: pw.TextField(null=True, column_name=name) for field, name in texts}
    owner = {"owner": "owner"} if first % 2 else {}
    assert works(make(FEATURES, fields=ROLES | owner, model=make.model(**kinds, **texts_of)))


def test_a_tube_may_have_any_name(make, subtests):
    Task = make({"keep": True}, roles=("runat", "tube"), tube_stats=[*NAMES, "other"])
    for name in NAMES:
        with subtests.test(name):
            Task.put(task(tube=name))
            Task.put(task(tube=name + name))
            assert Task.take(tube=name).ack().tube == name
            assert Task.take(tube=name) is None
            Task.update(tube="other").where(Task.status == "D").execute()
            assert Task.stats().tube[name].transition == {"X-R": 1, "R-T": 1, "T-D": 1, "D-S": 1}
    assert is_exact(Task)


def test_a_status_may_be_any_word(make, subtests):
    for name in NAMES[::3]:
        with subtests.test(name):
            statuses = {"R": name, "T": f"{name}t", "W": f"w{name}", "B": f"{name}{name}"}
            Task = make({"buried": True, "delayed": True, "ttr": 20, "limit": 5}, statuses=statuses)
            there = bring(Task, "B")
            assert there.status == name + name
            assert Task.dig(there).status == name
            taken = Task.take()
            assert Task.update(status=name).execute() == 1
            assert Task.xq.count("R") == 1
            assert Task.take().id == taken.id
            Task.xq.clock.tick(20)
            assert Task.xq.sweep() == 1
            assert state(Task, there) == name
            assert Task.xq.check() == []
            Task.drop_table()


def test_a_unique_value_and_a_text_key_may_be_any_text(make, subtests):
    Task = make({"unique": True, "keep": True}, roles=("unique",), key=pw.CharField(primary_key=True))
    for name in NAMES:
        with subtests.test(name):
            Task.put({"id": name, "job": name, "name": name})
            assert Task.put({"job": name}, on_conflict="skip").id == name
            assert Task.take().ack(update={"name": name + name}).name == name + name
            assert Task.xq.peek(name).job == row(Task, name).job == name


# To SQLite they are one table, and to MySQL one trigger; a name on MariaDB cannot end with a space.
DIFFER = [("postgres", "Task"), ("postgres", "task "), ("mariadb", "Task")]


@pytest.mark.parametrize(("db", "name"), DIFFER, indirect=["db"])
def test_queues_whose_tables_differ_by_case_or_a_space_do_not_mix(make, name):
    features = {"keep": True, "history": True}
    One, Two = (make(features, model=make.model(table_name=table)) for table in ("task", name))
    One.put(task())
    Two.xq.put_many(tasks(3))
    assert Two.take()
    assert (len(One.xq.taken()), len(Two.xq.taken())) == (0, 1)
    assert (transitions(One), transitions(Two)) == ({"X-R": 1}, {"X-R": 3, "R-T": 1})
    assert (len(One.xq.history()), len(Two.xq.history())) == (1, 4)
    One.xq.uninstall()
    assert Two.take().ack().status == "D"
    assert is_exact(Two)


def test_a_field_may_have_any_name_that_python_allows(make):
    names = ("now", "n", "k0", "f1", "session", "tube")  # of values in SQL as well
    fields = {"größe": pw.CharField(default="R"), "delay": pw.DoubleField(null=True)}
    fields |= {name: pw.TextField(null=True) for name in names}
    model = type("Task", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": make.db})})
    Task = make({"delayed": True, "keep": True}, model=model, fields={"status": "größe", "runat": "delay"})
    put = Task.put({name: f"{name} 1" for name in names}, delay=5)
    assert [getattr(put, name) for name in names] == [f"{name} 1" for name in names]
    Task.xq.clock.tick(5)
    done = Task.take().ack(update={name: f"{name} 2" for name in names})
    assert [getattr(done, name) for name in names] == [f"{name} 2" for name in names]
