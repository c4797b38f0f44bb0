"""What operators do: dig, kill, switch, snatch, restart, truncate, and looking without touching."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, is_exact, row, state, transitions
from tests.support.operators import RETRY

EVERY = {"buried": True, "delayed": True, "zombie": 30, "ttl": 10, "ttr": 20}


@pytest.fixture
def queue(make):
    """A queue with every state but D."""
    return make(EVERY, roles=("runat", "priority", "owner", "attempts"))


def buried(Task, n, **fields):
    """So many buried tasks."""
    Task.xq.put_many(tasks(n, **fields))
    return [Task.bury(taken) for taken in Task.xq.take_many(n)]


# dig


def test_a_dug_task_is_ready(queue):
    there = bring(queue, "B")
    dug = there.dig()
    assert (dug.id, dug.status, dug.runat) == (there.id, "R", queue.xq.clock.now + 10)


def test_a_task_dug_with_a_delay_waits(queue):
    dug = bring(queue, "B").dig(delay=5)
    assert (dug.status, dug.runat) == ("W", queue.xq.clock.now + 5)


def test_dig_takes_a_ttl_and_an_update(queue):
    dug = bring(queue, "B").dig(ttl=3, update={"name": "again"})
    assert (dug.runat, dug.name) == (queue.xq.clock.now + 3, "again")


def test_anyone_may_dig(queue):
    there = bring(queue, "B")
    with queue.xq.session():
        assert queue.dig(there.id).status == "R"


@pytest.mark.parametrize(
    "dig",
    [
        lambda Task: Task.dig(n=2),
        lambda Task: Task.kick(n=2),
        lambda Task: Task.plow(2),
        lambda Task: Task.plow(n=2),
        lambda Task: Task.xq.dig(n=2),
    ],
)
def test_the_n_oldest_are_dug(queue, dig):
    ids = [each.id for each in buried(queue, 4)]
    dug = dig(queue)
    assert [each.id for each in dug] == ids[:2]
    assert {each.status for each in dug} == {"R"}
    assert [each.id for each in queue.xq.by_state("B")] == ids[2:]


@pytest.mark.parametrize(
    "dig", [lambda Task: Task.dig(n=None), lambda Task: Task.plow(), lambda Task: Task.kick(n=None)]
)
def test_all_are_dug(queue, dig):
    ids = [each.id for each in buried(queue, 4)]
    assert [each.id for each in dig(queue)] == ids
    assert dig(queue) == []
    assert queue.stats().transition["B-R"] == 4


def test_the_oldest_are_those_of_the_lowest_priority(queue):
    for name, priority in [("c", 5), ("a", 1), ("b", 1)]:
        queue.bury(bring(queue, "T", task(name=name, priority=priority)))
    assert [each.name for each in queue.plow()] == ["a", "b", "c"]


def test_several_may_be_dug_with_a_delay_and_an_update(queue):
    buried(queue, 3)
    dug = queue.plow(2, delay=5, update={"name": "again"})
    assert {(each.status, each.runat, each.name) for each in dug} == {("W", queue.xq.clock.now + 5, "again")}


def test_kick_of_a_number_is_the_key_and_never_a_count(queue):
    first, second = buried(queue, 2)
    assert queue.kick(second.id).id == second.id
    assert state(queue, first) == "B"
    assert first.kick().status == "R"


def test_to_dig_none_digs_none(queue):
    buried(queue, 2)
    assert queue.dig(n=0) == queue.plow(0) == []
    assert queue.xq.count("B") == 2


@pytest.mark.parametrize("call", ["dig", "kick"])
def test_dig_takes_a_key_or_a_number(queue, call):
    with pytest.raises(xq.BadType):
        getattr(queue, call)()
    with pytest.raises(xq.BadType):
        getattr(queue, call)(1, n=2)


@pytest.mark.parametrize(("n", "error"), [(-1, xq.BadValue), (True, xq.BadType), ("2", xq.BadType), (1.5, xq.BadType)])
def test_a_number_of_tasks_is_a_whole_number(queue, n, error):
    with pytest.raises(error):
        queue.dig(n=n)
    with pytest.raises(error):
        queue.plow(n)


def test_thousands_are_dug_at_once(make):
    Task = make({"buried": True})
    ids = [each.id for each in Task.xq.put_many(tasks(2500))]
    Task.xq.bury_many(Task.xq.take_many(2500))
    assert [each.id for each in Task.plow()] == ids
    assert is_exact(Task)


# kill


@pytest.mark.parametrize("here", "RTWBZ")
def test_a_task_is_killed_in_any_state_and_whoever_owns_it(queue, here):
    there = bring(queue, here)
    with queue.xq.session():
        killed = queue.kill(there.id)
    assert killed.__data__ == there.__data__
    assert state(queue, there) == "X"
    assert queue.stats().transition[f"{here}-X"] == 1


def test_a_killed_task_is_gone_for_its_owner(queue):
    taken = bring(queue, "T")
    queue.kill(taken)
    with pytest.raises(xq.NotFound):
        taken.ack()
    with pytest.raises(xq.NotFound):
        taken.kill()


# snatch


def test_a_snatched_task_is_ready_whoever_held_it(queue):
    taken = bring(queue, "T")
    with queue.xq.session():
        snatched = queue.xq.snatch(taken.id)
    assert (snatched.status, snatched.owner, snatched.runat) == ("R", None, queue.xq.clock.now + 10)
    with pytest.raises(xq.WrongState):
        taken.ack()


def test_a_task_snatched_with_a_delay_waits(queue):
    assert queue.xq.snatch(bring(queue, "T"), delay=5).runat == queue.xq.clock.now + 5
    assert queue.xq.count("W") == 1


@pytest.mark.parametrize("here", "RWBZ")
def test_only_a_taken_task_can_be_snatched(queue, here):
    with pytest.raises(xq.WrongState):
        queue.xq.snatch(bring(queue, here))


# restart


@pytest.mark.parametrize("here", "WZ")
def test_a_waiting_or_finished_task_is_done_again(queue, here):
    there = bring(queue, here)
    again = queue.xq.restart(there)
    assert (again.status, again.runat) == ("R", queue.xq.clock.now + 10)
    assert queue.take().id == there.id


def test_a_done_task_is_done_again(make):
    Task = make({"keep": True, "delayed": True})
    there = bring(Task, "D")
    assert Task.xq.restart(there, delay=5).status == "W"
    assert Task.xq.restart(there).status == "R"


@pytest.mark.parametrize("here", "RTB")
def test_only_a_waiting_or_finished_task_can_be_restarted(queue, here):
    with pytest.raises(xq.WrongState) as wrong:
        queue.xq.restart(bring(queue, here))
    assert set(wrong.value.allowed) == {"W", "Z"}


# switch


@pytest.mark.parametrize("here", "RWBZ")
@pytest.mark.parametrize("there", "RBZ")
def test_a_task_that_nobody_holds_is_switched_to_another_state(queue, here, there):
    found = bring(queue, here)
    switched = queue.xq.switch(found, there)
    lasts = {"R": 10, "Z": 30}.get(there)
    assert (switched.status, switched.runat) == (there, lasts and queue.xq.clock.now + lasts)
    assert is_exact(queue)


@pytest.mark.parametrize("here", "RWBZ")
def test_to_switch_to_waiting_needs_a_delay(queue, here):
    found = bring(queue, here)
    with pytest.raises(xq.BadValue, match="delay"):
        queue.xq.switch(found, "W")
    assert queue.xq.switch(found, "W", delay=7).runat == queue.xq.clock.now + 7


def test_to_switch_to_zombie_takes_a_delay(queue):
    assert queue.xq.switch(bring(queue, "R"), "Z", delay=7).runat == queue.xq.clock.now + 7


def test_to_switch_to_ready_takes_a_ttl(queue):
    assert queue.xq.switch(bring(queue, "B"), "R", ttl=7).runat == queue.xq.clock.now + 7


def test_to_switch_to_done_is_for_queues_that_keep(make):
    Task = make({"keep": True})
    assert Task.xq.switch(Task.put(task()), "D").status == "D"


def test_a_taken_task_cannot_be_switched(queue):
    taken = bring(queue, "T")
    with pytest.raises(xq.WrongState):
        queue.xq.switch(taken, "R")
    assert taken.ack().status == "Z"


@pytest.mark.parametrize("to", ["D", "T", "X", "S", "Q", "", "ready", None, 5, ["R"]])
def test_a_task_can_be_switched_to_the_states_of_the_queue_only(queue, to):
    put = queue.put(task())
    with pytest.raises(xq.BadValue, match="R, W, B, Z|switch"):
        queue.xq.switch(put, to)
    assert state(queue, put) == "R"


def test_switch_takes_no_option_that_its_target_does_not(queue):
    put = queue.put(task())
    for to, option in [("B", "delay"), ("B", "ttl"), ("Z", "ttl")]:
        with pytest.raises((xq.BadValue, xq.BadType), match=option):
            queue.xq.switch(put, to, **{option: 5})
    assert state(queue, put) == "R"


# all at once


def test_release_all_gives_every_taken_task_back(queue):
    queue.xq.put_many(tasks(3))
    with queue.xq.session():
        taken = queue.xq.take_many(2)
        queue.xq.clock.tick(1)
        queue.xq.put_many(tasks(1))
        assert queue.xq.release_all() == 2
        with pytest.raises(xq.WrongState):
            taken[0].ack()
    assert queue.stats().transition["T-R"] == 2
    assert row(queue, taken[0]).runat == queue.xq.clock.now + 10
    assert queue.xq.release_all() == 0


def test_truncate_deletes_every_task_and_counts_it(queue):
    for here in "BZWTR":
        bring(queue, here)
    assert queue.xq.truncate() == 5
    assert queue.select().count() == queue.xq.count() == 0
    moved = transitions(queue)
    assert [moved[f"{here}-X"] for here in "BZWTR"] == [1, 1, 1, 1, 1]
    assert queue.xq.truncate() == 0


def test_thousands_are_released_and_truncated_at_once(queue):
    queue.xq.put_many(tasks(2500))
    queue.xq.take_many(2200)
    assert queue.xq.release_all() == 2200
    assert queue.xq.truncate() == 2500
    assert is_exact(queue)


PARK = xq.Feature(
    "park",
    needs=("runat",),
    transitions=(xq.Transition("T", "park", "P", fenced=True), xq.Transition("P", "drive", "R")),
    timers=(xq.Timer("P", "tow", "X", option="rest", default=100),),
)


def test_an_event_of_the_users_own_is_called(make):
    Task = make({"retry": RETRY})
    taken = bring(Task, "T")
    assert Task.xq.call("retry", taken, update={"name": "again"}).name == "again"
    assert Task.stats().transition["T-R"] == 1
    with pytest.raises(xq.WrongState):
        Task.xq.call("retry", taken)


def test_an_event_of_the_users_own_is_fenced_if_it_says_so(make):
    Task = make({"retry": RETRY})
    taken = bring(Task, "T")
    with Task.xq.session(), pytest.raises(xq.NotOwner):
        Task.xq.call("retry", taken.id)


def test_an_event_of_the_users_own_takes_the_delay_of_delayed(make):
    with_delay, without = (
        make({"retry": RETRY, "delayed": True}),
        make({"retry": RETRY}, model=make.model(table_name="b")),
    )
    assert with_delay.xq.call("retry", bring(with_delay, "T"), delay=5).status == "W"
    with pytest.raises((xq.FeatureOff, xq.BadType), match="delay"):
        without.xq.call("retry", bring(without, "T"), delay=5)


def test_a_state_of_the_users_own_is_a_state(make):
    Task = make({"park": PARK, "buried": True, "keep": True})
    now = Task.xq.clock.now
    parked = Task.xq.call("park", bring(Task, "T"))
    assert (parked.status, parked.runat) == ("P", now + 100)
    assert Task.xq.count("P") == 1
    assert [each.id for each in Task.xq.by_state("P")] == [parked.id]
    assert Task.xq.call("drive", parked.id).status == "R"
    assert Task.xq.call("park", Task.take(), rest=5).runat == now + 5
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    assert Task.stats().transition["P-X"] == 1
    assert is_exact(Task)


def test_a_column_of_the_users_own_follows_the_state(make):
    why = xq.Feature("why", columns=(xq.Column("error", at={"B": "given up"}, otherwise=None),))
    Task = make({"why": why, "buried": True}, fields={"status": "status", "error": "name"})
    assert bring(Task, "B", {}).name == "given up"
    assert Task.plow()[0].name is None


# looking


@pytest.mark.parametrize("here", "RTWBZ")
def test_peek_shows_a_task_and_changes_nothing(queue, here):
    there = bring(queue, here)
    seen = transitions(queue)
    for named in (there.id, there, {"id": there.id}):
        assert queue.xq.peek(named).__data__ == there.__data__
    assert transitions(queue) == seen


def test_peek_of_a_task_that_is_not_there_is_not_found(queue):
    with pytest.raises(xq.NotFound) as missing:
        queue.xq.peek(1)
    assert missing.value.key == 1


def test_by_state_lists_the_tasks_of_a_state_oldest_first(queue):
    bring(queue, "B", task(name="d"))
    queue.xq.put_many([task(name=name, priority=priority) for name, priority in [("b", 1), ("c", 2), ("a", None)]])
    assert [each.name for each in queue.xq.by_state("R")] == ["a", "b", "c"]
    assert [each.name for each in queue.xq.by_state("B")] == ["d"]
    assert queue.xq.by_state("Z") == []


def test_count_counts_a_state_or_the_queue(queue):
    for here in "BZWT":
        bring(queue, here)
    queue.xq.put_many(tasks(3))
    assert [queue.xq.count(here) for here in "BZWTR"] == [1, 1, 1, 1, 3]
    assert queue.xq.count() == 7


@pytest.mark.parametrize("letter", ["D", "X", "S", "ready", "", 5, ["R"]])
@pytest.mark.parametrize("call", ["by_state", "count"])
def test_the_states_are_those_of_the_queue(queue, call, letter):
    with pytest.raises(xq.BadValue):
        getattr(queue.xq, call)(letter)
