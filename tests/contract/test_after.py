"""The feature after: tasks that wait for others to end."""

from __future__ import annotations

import math
import threading

import peewee as pw
import pytest

import xq
from tests.conftest import fresh, live
from tests.steps import next_release
from tests.support.console import visitor
from xq import serve

mariadb = fresh(["mariadb", "mysql"])
FEATURES = {"after": True, "delayed": True, "buried": True}
KEEPS = {**FEATURES, "keep": True}
ROLES = ("runat", "priority", "attempts")


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=ROLES).xq


def state(queue, task):
    key = getattr(task, "id", task)
    found = queue.parts.executor.run(queue.parts.executor.dialect.queries.look(), {"k0": key})
    return queue.parts.executor.dialect.state(found[0]) if found else "X"


def sql_of(queue):
    (mine,) = (each for each in queue.parts.executor.dialect.slices if each.tables == ("after",))
    return mine


def links(queue):
    (found,) = queue.parts.executor.run(f"SELECT COUNT(*) FROM {sql_of(queue).table}")
    return found[0]


def end(queue, task, how):
    """End a task by a call, or by SQL of another program; then a second passes."""
    if how in ("ack", "bury"):
        taken = queue.take()
        assert taken.id == task.id
        getattr(queue, how)(taken)
    elif how == "kill":
        queue.kill(task)
    else:
        queue.parts.store.change(how.format(f"task WHERE id = {task.id}", f"WHERE id = {task.id}"))
        queue.sweep()


def test_a_dependant_is_waiting_until_each_of_its_parents_has_ended_well(queue):
    a, b = queue.put_many([{"name": "a"}, {"name": "b"}])
    child = queue.put({"name": "child"}, after=[a, b.id])
    assert (child.status, child.runat, child.xq_after) == ("W", None, "hold")
    end(queue, a, "ack")
    assert state(queue, child) == "W"
    end(queue, b, "ack")
    taken = queue.take()
    assert (taken.id, taken.xq_after, links(queue)) == (child.id, None, 0)


def test_a_link_that_a_truncate_by_sql_has_left_is_replaced(queue):
    parent = queue.put({"name": "parent"})
    child = parent.id + 1  # MariaDB gives the keys out anew
    left = {"p0_0": parent.id, "k0_0": child, "v0": "X"}
    queue.parts.executor.run(sql_of(queue).insert(1), left)
    assert queue.put({"name": "child"}, after=parent).id == child
    assert links(queue) == 1
    end(queue, parent, "ack")
    assert queue.take().id == child


def test_looks_at_dependants_read_their_index_on_mariadb(mariadb):
    queue = live(mariadb)(FEATURES, roles=ROLES).xq
    links = sql_of(queue)
    mariadb.execute_sql(f"ALTER TABLE {links.table} STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")
    queue.put_many([{"name": str(i)} for i in range(3)], chain=True)
    mariadb.execute_sql(f"ANALYZE TABLE {links.table}")
    queue.put_many([{"name": str(i)} for i in range(1000)], chain=True)  # which the statistics do not know
    plan = queue.parts.executor.run(f"EXPLAIN {links.queries['first']}", {"n": 1000})
    assert {row[5] for row in plan if row[2] == "xq_b"} == {"k0"}


DELETE, TO_B = "DELETE FROM {0}", "UPDATE task SET status = 'B' {1}"


@pytest.mark.parametrize(("features", "how"), [(FEATURES, "ack"), (KEEPS, "ack"), ({**FEATURES, "zombie": 60}, "ack")])
def test_an_ack_is_a_good_end_whether_the_task_is_kept_or_not(make, features, how):
    queue = make(features, roles=ROLES).xq
    parent = queue.put({})
    child = queue.put({}, after=parent)
    end(queue, parent, how)
    assert state(queue, child) == "R"
    if "X" not in state(queue, parent):  # it has ended well, so nothing is left to wait for
        assert queue.put({}, after=[parent]).status == "R"


def test_another_program_may_end_a_parent_well(make):
    queue = make(KEEPS, roles=ROLES).xq
    parent = queue.put({})
    child = queue.put({}, after=parent)
    end(queue, parent, "UPDATE task SET status = 'D' {1}")
    assert state(queue, child) == "R"


@pytest.mark.parametrize("how", ["kill", "bury", DELETE, TO_B])
@pytest.mark.parametrize(("on_failure", "becomes"), [(None, "W"), ("hold", "W"), ("kill", "X"), ("run", "R")])
def test_on_failure_says_what_a_bad_end_does_to_a_dependant(queue, how, on_failure, becomes):
    parent = queue.put({})
    child = queue.put({}, after=parent, on_failure=on_failure)
    end(queue, parent, how)
    assert state(queue, child) == becomes


@pytest.mark.parametrize("how", ["bury", "kill", DELETE])
def test_health_and_doctor_name_a_dependant_whose_parent_is_dead(queue, how):
    parent = queue.put({})
    child, _, other = queue.put_many([{}, {}, {}], after=parent, chain=True)
    queue.put({}, after=parent, on_failure="run")
    assert [*dict(queue.doctor())] == ["ready tasks: 1, and no process takes"]
    end(queue, parent, how)
    what = "buried (B)" if how == "bury" else "which is gone"
    told = f"dependants that wait for a dead parent: 1 ({child.id} for {parent.id}, {what})"
    health = queue.health(max_buried=1, max_age=math.inf)
    assert (health.state, told in health.sentence) == ("failing", True)
    assert told in dict(queue.doctor())
    queue.restart(child)
    assert not [what for what, _ in queue.doctor() if "parent" in what]
    assert state(queue, other) == "W", "it waits for a parent that lives"


@pytest.mark.parametrize("how", ["ack", "bury", "kill"])
@pytest.mark.parametrize("features", [FEATURES, KEEPS], ids=["deleted", "kept"])
def test_in_the_history_the_end_of_a_parent_comes_before_what_it_sets_off(make, how, features):
    queue = make({**features, "history": True}, roles=ROLES).xq
    parent = queue.put({})
    child = queue.put({}, after=parent, on_failure="kill")
    end(queue, parent, how)
    *_, first, second = [(int(row.key), row.event) for row in queue.history()]
    assert (first, second) == ((parent.id, how), (child.id, "after" if how == "ack" else "kill"))


def test_a_parent_that_expires_has_failed(make):
    queue = make({**FEATURES, "ttl": 5}, roles=ROLES).xq
    parent = queue.put({})
    child, last = queue.put({}, after=parent, on_failure="kill"), None
    last = queue.put({}, after=child, on_failure="run")
    queue.clock.tick(6)
    queue.sweep()
    assert (state(queue, parent), state(queue, child), state(queue, last)) == ("X", "X", "R")


def test_a_kill_kills_the_dependants_of_dependants(queue):
    tasks = queue.put_many([{} for _ in range(80)], chain=True, on_failure="kill")
    queue.kill(tasks[0])
    queue.sweep()
    assert [state(queue, task) for task in tasks] == ["X"] * 80
    assert links(queue) == 0


def test_with_run_the_dependant_waits_for_the_other_parents(queue):
    a, b = queue.put_many([{}, {}])
    child = queue.put({}, after=[a, b], on_failure="run")
    end(queue, a, "bury")
    assert state(queue, child) == "W"
    end(queue, b, "ack")
    assert state(queue, child) == "R"


def test_with_kill_the_first_failure_is_enough(queue):
    a, b = queue.put_many([{}, {}])
    child = queue.put({}, after=[a, b], on_failure="kill")
    end(queue, a, "bury")
    assert (state(queue, child), state(queue, b)) == ("X", "R")


def test_a_buried_parent_that_is_dug_and_acked_has_ended_well(queue):
    parent = queue.put({})
    child = queue.put({}, after=parent)
    end(queue, parent, "bury")
    queue.dig(parent)
    assert state(queue, child) == "W"
    end(queue, parent, "ack")
    assert state(queue, child) == "R"


@pytest.mark.parametrize(("on_failure", "becomes"), [("hold", "W"), ("kill", "X"), ("run", "R")])
def test_a_parent_that_is_buried_when_its_dependant_is_put_has_failed(queue, on_failure, becomes):
    parent = queue.put({})
    end(queue, parent, "bury")
    assert state(queue, queue.put({}, after=parent, on_failure=on_failure)) == becomes


def test_a_delay_counts_from_the_release(queue):
    parent = queue.put({})
    child = queue.put({}, after=parent, delay=5)
    queue.clock.tick(60)
    end(queue, parent, "ack")
    waiting = queue.peek(child)
    assert (waiting.status, waiting.runat, waiting.xq_after) == ("W", queue.clock.now + 5, None)
    assert queue.take() is None
    queue.clock.tick(5)
    assert queue.take().id == child.id


def test_the_feature_needs_no_other(make):
    queue = make({"after": True}, roles=()).xq
    parent = queue.put({})
    child = queue.put({}, after=parent)
    assert queue.call("after", queue.put({}, after=child)).status == "R"
    queue.kill(queue.take())
    assert state(queue, child) == "W"


def test_a_release_is_the_event_after(make):
    queue = make({**FEATURES, "history": True, "events": True}, roles=ROLES).xq
    parent, other = queue.put_many([{}, {}])
    ready, late = queue.put({}, after=parent), queue.put({}, after=parent, delay=9)
    killed = queue.put({}, after=other, on_failure="kill")
    queue.ack(queue.take())
    queue.kill(other)
    moves = {task.id: [(move.event, move.target) for move in queue.history(task)][1:] for task in (ready, late, killed)}
    assert moves == {ready.id: [("after", "R")], late.id: [("after", "W")], killed.id: [("kill", "X")]}
    assert [move.event for move in queue.history(parent)] == ["put", "take", "ack"]
    assert queue.stats().events["after"] == 2


def test_restart_releases_a_held_dependant(queue):
    parent = queue.put({})
    child = queue.put({}, after=parent)
    end(queue, parent, "kill")
    assert (queue.restart(child).status, links(queue)) == ("R", 0)


def test_links_die_with_their_dependant_and_an_ended_parents_key_may_be_used_again(queue):
    parent = queue.put({"id": 7})
    child = queue.put({"id": 8}, after=parent)
    end(queue, parent, "kill")
    again = queue.put({"id": 7})  # another task
    end(queue, again, "ack")
    assert state(queue, child) == "W"
    queue.kill(child)
    assert links(queue) == 0
    assert queue.put({"id": 8}).status == "R"


def test_a_rollback_undoes_what_an_end_has_set_off(queue):
    parent = queue.put({})
    child = queue.put({}, after=parent)

    def fails():
        with queue.parts.store.atomic():
            end(queue, parent, "ack")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    queue.sweep()
    assert (state(queue, child), links(queue)) == ("W", 1)


def test_a_chain_runs_in_order(queue):
    queue.put({"name": "other"})
    queue.put_many([{"name": str(n), "priority": -n} for n in range(300)], chain=True)
    assert queue.stats().counts["W"] == 299
    done = []
    while task := queue.take():
        done.append(task.name)
        queue.ack(task)
    assert [name for name in done if name != "other"] == [str(n) for n in range(300)]


def test_a_chain_may_wait_for_tasks_itself(queue):
    parent = queue.put({})
    first, second = queue.put_many([{}, {}], after=parent, chain=True, delay=3)
    end(queue, parent, "ack")
    queue.clock.tick(3)
    end(queue, first, "ack")
    queue.clock.tick(2)
    assert queue.take() is None
    queue.clock.tick(1)
    assert queue.take().id == second.id


def test_a_fan_in_of_many_is_ready_after_the_last(queue):
    parents = queue.put_many([{} for _ in range(300)])
    child = queue.put({}, after=parents)
    others = queue.put_many([{}] * 2, after=parents[0])
    taken = queue.take_many(300)
    queue.ack_many(taken[1:])
    assert state(queue, child) == "W"
    queue.ack(taken[0])
    assert [state(queue, task) for task in (child, *others)] == ["R"] * 3


def test_two_last_parents_that_end_at_once_release_the_dependant(make_shared):
    """Each is acked in a transaction that does not see the other's."""
    queue = make_shared(FEATURES, roles=ROLES).xq
    parents = queue.put_many([{}, {}])
    child, (a, b) = queue.put({}, after=parents), queue.take_many(2)
    acked = threading.Event()

    def ack_other():
        queue.ack(b)
        acked.set()
        queue.parts.store.disconnect()

    other = threading.Thread(target=ack_other)
    with queue.parts.store.atomic():
        queue.ack(a)
        other.start()
        acked.wait(0.5)  # it is done, or waits: on PostgreSQL for the row of the dependant
    other.join()
    assert state(queue, child) == "R"


def test_compound_and_text_keys_have_dependants(make):
    class Pair(pw.Model):
        a, b, status = pw.IntegerField(), pw.CharField(), pw.CharField(default="R")

        class Meta:
            database, primary_key = make.db, pw.CompositeKey("a", "b")

    queue = make({"after": True}, model=Pair, roles=()).xq
    _, two = queue.put_many([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}])
    queue.put({"a": 2, "b": "it's"}, after=[(1, "x"), two])
    queue.put({"a": 3, "b": ""}, after=(1, "x"))
    queue.ack_many(queue.take_many(2))
    assert [(task.a, task.b) for task in queue.take_many(5)] == [(2, "it's"), (3, "")]


def test_why_names_the_parents(queue):
    a, b, c = queue.put_many([{"id": 1}, {"id": 2}, {"id": 3}])
    child = queue.put({"id": 4}, after=[a, b, c], delay=5)
    end(queue, a, "bury")
    queue.kill(b)
    gone, buried, ready = queue.why(child)
    assert ["2 is gone" in gone, "1 is buried" in buried, "3, which is ready" in ready] == [True] * 3


def test_why_follows_a_chain_to_what_it_waits_for(queue):
    first, second, _, last = queue.put_many([{"id": n} for n in (1, 2, 3, 4)], chain=True)
    waits = "it waits for its parent 3, which is waiting (W)", "task 3 waits, in the end, for task 1, which is "
    assert queue.why(last) == [waits[0], f"{waits[1]}ready (R)"]
    assert len(queue.why(second)) == 1
    end(queue, first, "bury")
    assert queue.why(last)[1] == f"{waits[1]}buried (B)"
    queue.kill(first)
    assert queue.why(last)[1] == f"{waits[1]}gone: killed, expired or deleted"
    queue.restart(second, delay=60)
    assert queue.why(last)[1] == f"{waits[1].replace('task 1', 'task 2')}waiting (W)"


def test_a_group_shows_its_members_and_what_they_wait_for(make):
    queue = make({**FEATURES, "groups": True}, roles=ROLES).xq
    parent = queue.put({"id": 9})
    with queue.group("import") as group:
        first = group.put({"id": 1}, after=parent)
        group.put({"id": 2}, after=[first, parent])
    assert group.graph().splitlines() == [
        "graph TD",
        '    t0["1 waiting (W)"]',
        '    t1["2 waiting (W)"]',
        '    t2["9 ready (R)"]',
        "    t0 --> t1",
        "    t2 --> t0",
        "    t2 --> t1",
    ]
    here = visitor(serve.app([queue]))
    page = here.get("/q/Task/group", params={"name": "import"}).text
    assert [page.count(each) for each in ("<rect", "<line", "9 ready", "2 waiting")] == [3, 3, 1, 1]
    assert "group?name=import" in here.get("/q/Task/task", params={"key": "1"}).text
    assert here.get("/q/Task/group", params={"name": "other"}).status_code == 404
    end(queue, parent, "kill")
    assert '"9 gone"' in group.graph()


def test_what_cannot_be_is_refused(queue):
    parent = queue.put({"id": 1})
    for options in ({"after": 99}, {"after": [parent, 99]}):
        with pytest.raises(xq.NotFound, match="99 .* in one transaction, or use the feature keep"):
            queue.put({}, **options)
    with pytest.raises(xq.NotFound, match="5"):
        queue.put({"id": 5}, after=5)
    with pytest.raises(xq.BadValue, match="hold, kill, run"):
        queue.put({}, after=parent, on_failure="ignore")
    with pytest.raises(xq.BadValue, match="after="):
        queue.put({}, on_failure="kill")
    with pytest.raises(xq.BadType, match="chain"):
        queue.put({}, chain=True)
    with pytest.raises(xq.BadType):
        queue.put({}, after="one")
    with pytest.raises(xq.BadValue, match="xq_after"):
        queue.put({"xq_after": "hold"})
    assert queue.stats().counts["W"] == 0


def test_a_release_without_the_feature_or_with_other_words_is_refused_while_tasks_wait_for_others(make):
    Task = make(FEATURES, roles=ROLES)
    parent = Task.xq.put({"name": "parent"})
    Task.xq.put({"name": "dependant"}, after=parent)
    release = next_release(Task, features={"delayed": True, "buried": True})
    with pytest.raises(xq.ConfigurationError, match="wait for others, which need the feature 'after': 1; let them end"):
        release.install()
    words = {"R": "ready", "T": "T", "W": "W", "B": "B"}
    with pytest.raises(xq.ConfigurationError, match="wait for others, made with other words of statuses: 1; let them"):
        next_release(Task, statuses=words).install()
    Task.xq.kill_many(Task.xq.by_state("W"))
    release.install()


def test_without_the_feature_after_is_refused(make):
    queue = make({"delayed": True}).xq
    for put in (lambda: queue.put({}, after=1), lambda: queue.put_many([{}], chain=True)):
        with pytest.raises(xq.FeatureOff, match="after"):
            put()
