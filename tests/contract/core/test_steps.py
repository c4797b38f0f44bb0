"""Durable steps: a worker's function goes on where it was, and what a task waits for."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import is_exact, next_release, row, state
from xq import BadValue, ConfigurationError, FeatureOff, NotFound, NotOwner, WrongState
from xq.testing import run_pending

FEATURES = {"steps": True, "delayed": True, "buried": True, "keep": True, "ttr": 60, "history": True}
ROLES = ("runat", "attempts", "error")
DAYS = 86_400


class Failed(Exception):
    pass


class Calls(list[str]):
    """What the steps of a function have called, in order."""

    def __call__(self, name: str, value: Any = None, fails: int = 0) -> Any:
        self.append(name)
        if self.count(name) <= fails:
            raise Failed(name)
        return value


@pytest.fixture
def calls() -> Calls:
    return Calls()


def queue(make: Any, features: Any = FEATURES, **options: Any) -> Any:
    options = {"roles": ROLES, "attributes": {"error": pw.TextField(null=True)}, **options}
    return make(features, **options)


def works(Task: Any, function: Callable[[Any], Any], **options: Any) -> Callable[[], int]:
    """Put a task, and return what runs this function for all that is ready."""
    Task.xq.handlers.clear()
    worker = Task.xq.worker(function, **{"max_attempts": 3, "backoff": 1, **options})
    if not Task.xq.count():
        Task.put(task(size=0))
    return lambda: run_pending(worker)


def lines(Task: Any, key: Any = 1) -> list[tuple[str, str]]:
    """The kinds and the names of a task's records and signals."""
    found = (row(Task, key).xq_steps or "").split("\n")[1:]
    return [next(iter(json.loads(line).items())) for line in found]


# steps


def test_a_step_is_called_once_and_returns_its_record_in_the_next_attempts(make, calls):
    Task, seen = queue(make), list[Any]()

    def work(found: Any) -> None:
        seen.append((xq.step("a", calls, "a", 1), xq.step("b", calls, "b", [2]), xq.step("c", calls, "c", 3, fails=1)))

    run = works(Task, work)
    assert (run(), state(Task, 1), calls, seen) == (1, "W", ["a", "b", "c"], [])
    assert lines(Task) == [("step", "a"), ("step", "b")]
    Task.xq.clock.tick(2)
    assert (run(), calls, seen) == (1, ["a", "b", "c", "c"], [(1, [2], 3)])
    assert (state(Task, 1), row(Task, 1).xq_steps, is_exact(Task)) == ("D", None, True)


def test_a_value_is_what_json_gives_back_from_the_first_attempt_on(make, calls):
    Task, seen = queue(make), list[Any]()
    values = [None, "", {"a": [{"b": 1.5}]}, 2**63, "é\0\ud800\n", (1, (2,)), True]

    def work(found: Any) -> None:
        seen.append([xq.step(f"step {n}", calls, f"{n}", value) for n, value in enumerate(values)])
        xq.step("fails", calls, "fails", fails=1)

    run = works(Task, work)
    run()
    Task.xq.clock.tick(2)
    run()
    assert seen == [[None, "", {"a": [{"b": 1.5}]}, 2**63, "é\0\ud800\n", [1, [2]], True]] * 2
    assert [*map(type, seen[0])] == [*map(type, seen[1])]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"when": [datetime(2026, 1, 1)]}, r"\['when'\]\[0\] is .*datetime"),
        ([1.0, float("nan")], r"\[1\] is nan"),
        ({"a": {7: 1}}, r"the key 7 of \['a'\] is no text"),
    ],
)
def test_a_value_that_json_cannot_hold_buries_the_task_at_once_with_its_place(make, calls, value, told):
    Task = queue(make)
    run = works(Task, lambda found: xq.step("charge", calls, "charge", value))
    assert (run(), state(Task, 1), lines(Task)) == (1, "B", [])
    with pytest.raises(AssertionError, match=f"the step 'charge' cannot be recorded.*{told}"):
        raise AssertionError(row(Task, 1).error)


def test_records_have_32768_octets_and_one_more_buries_the_task_while_signals_still_arrive(make, calls):
    Task = queue(make)
    at = len(str(round(Task.xq.clock.now * 1_000_000)))
    size = 32_768 - 2 * (len('\n{"step":"a","at":,"value":""}') + at)

    def work(found: Any, more: int = 0) -> None:
        xq.step("a", calls, "a", "x" * (size - 5))
        xq.step("b", calls, "b", "x" * (5 + more))

    assert (works(Task, work)(), state(Task, 1)) == (1, "D")
    Task.put(task())
    works(Task, lambda found: work(found, 1))()
    assert (state(Task, 2), len(row(Task, 2).xq_steps)) == (
        "B",
        32_768 - 5 - len('\n{"step":"b","at":,"value":""}') - at,
    )
    assert all(number in row(Task, 2).error for number in ("32,769", "32,768"))
    assert Task.xq.signal(2, "approved", "y" * 8_000) is True


def test_a_new_record_begins_the_attempts_anew_and_a_failure_counts_from_there(make, calls):
    Task, numbers = queue(make), list[int]()

    def work(found: Any) -> None:
        numbers.append(found.attempts)
        xq.step("a", calls, "a", fails=2)
        xq.step("b", calls, "b", fails=2)

    run = works(Task, work)
    for _ in range(6):
        run()
        Task.xq.clock.tick(2)
    assert (numbers, calls, state(Task, 1)) == ([1, 2, 3, 2, 3], ["a"] * 3 + ["b"] * 3, "D")


def test_between_attempts_steps_are_reordered_added_and_removed(make, calls, caplog):
    Task = queue(make)

    def old(found: Any) -> None:
        for name in "abc":
            xq.step(name, calls, name, name)
        raise Failed

    def new(found: Any) -> None:
        assert [xq.step(name, calls, name, name.upper()) for name in "cdb"] == ["c", "D", "b"]

    works(Task, old)()
    Task.xq.clock.tick(2)
    caplog.clear()
    works(Task, new)()
    assert (calls, state(Task, 1)) == (["a", "b", "c", "d"], "D")
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "task 1 has ended without steps that are recorded: 'a'"
    ]


def test_a_name_twice_in_an_attempt_is_a_bad_value_and_a_step_that_raised_may_be_called_again(make, calls):
    Task = queue(make)

    def twice(found: Any) -> None:
        xq.step("a", calls, "a", 1)
        xq.step("a", calls, "a", 2)

    works(Task, twice)()
    assert (calls, lines(Task)) == (["a"], [("step", "a")])
    assert "BadValue" in "".join(str(each.error) for each in Task.select()) or state(Task, 1) == "W"

    def again(found: Any) -> Any:
        try:
            return xq.step("b", calls, "b", fails=1)
        except Failed:
            return xq.step("b", calls, "b", 3)

    Task.xq.clock.tick(2)
    works(Task, lambda found: calls.append(again(found)))()
    assert calls == ["a", "b", "b", 3]


def test_who_has_lost_the_task_gets_not_owner_and_its_transaction_is_undone(make, calls):
    for lose in ("snatch", "kill", "delete"):
        Task = queue(make, model=make.model(table_name=f"task_{lose}", error=pw.TextField(null=True)))
        errors = list[Any]()

        def work(found: Any, Task: Any = Task, lose: str = lose, errors: list[Any] = errors) -> None:
            def effect() -> None:
                Task.update(size=7).where(Task.id == found.id).execute()
                if lose == "delete":
                    Task.delete().where(Task.id == found.id).execute()
                else:
                    getattr(Task.xq, lose)(found.id)

            try:
                with make.db.atomic():
                    xq.step("a", effect)
            except NotOwner as error:
                errors.append(error)
                raise

        works(Task, work)()
        assert [type(each) for each in errors] == [NotOwner], lose
        assert (row(Task, 1).size, lines(Task)) == (0, []), lose


def test_a_step_in_a_transaction_is_part_of_it(make, calls):
    Task = queue(make)

    def adds(found: Any) -> None:
        Task.update(size=Task.size + 1).where(Task.id == found.id).execute()

    def work(found: Any) -> None:
        with make.db.atomic():
            xq.step("add", adds, found)
            calls("after", fails=1)

    run = works(Task, work)
    run()
    assert (row(Task, 1).size, lines(Task), row(Task, 1).attempts) == (0, [], 1)
    Task.xq.clock.tick(2)
    run()
    assert (row(Task, 1).size, state(Task, 1), calls) == (1, "D", ["after", "after"])


# waits


def test_a_sleep_holds_no_worker_and_counts_no_attempt(make, calls):
    Task, numbers = queue(make), list[int]()

    def work(found: Any) -> None:
        numbers.append(found.attempts)
        xq.step("a", calls, "a")
        xq.sleep("cool off", timedelta(days=3))
        xq.step("b", calls, "b")

    run = works(Task, work)
    run()
    found = row(Task, 1)
    assert (found.status, found.owner, found.runat) == ("W", None, Task.xq.clock.now + 3 * DAYS)
    assert (found.attempts, found.xq_awaits) == (1, "")
    Task.xq.clock.tick(3 * DAYS - 1)
    assert run() == 0
    Task.xq.clock.tick(1)
    assert (run(), calls, numbers, state(Task, 1)) == (1, ["a", "b"], [1, 1], "D")
    events = [each.event for each in Task.xq.history(1)]
    assert (events, is_exact(Task)) == (["put", "take", "sleep", "delay", "take", "ack"], True)


def test_a_sleep_ends_at_a_moment_and_what_has_passed_is_over_at_once(make, calls):
    Task = queue(make)
    now = datetime.fromtimestamp(Task.xq.clock.now, UTC)

    def work(found: Any) -> None:
        xq.sleep("zero", 0)
        xq.sleep("yesterday", at=now - timedelta(days=1))
        xq.sleep("tomorrow", at=now + timedelta(days=1))

    run = works(Task, work)
    run()
    assert (row(Task, 1).runat, lines(Task)) == (
        Task.xq.clock.now + DAYS,
        [("sleep", "zero"), ("sleep", "yesterday"), ("sleep", "tomorrow")],
    )
    Task.xq.clock.tick(DAYS)
    assert (run(), state(Task, 1)) == (1, "D")


def test_a_restart_ends_a_sleep_and_no_wait(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        xq.sleep("cool off", 3 * DAYS)
        try:
            xq.wait_for("approved", timeout=2 * DAYS)
        except TimeoutError:
            calls("late")

    run = works(Task, work)
    run()
    Task.xq.restart(1)
    run()
    until = Task.xq.clock.now + 2 * DAYS
    assert (row(Task, 1).runat, row(Task, 1).xq_awaits) == (until, "approved")
    Task.xq.clock.tick(DAYS)
    Task.xq.restart(1)
    assert row(Task, 1).xq_awaits is None
    run()
    assert (row(Task, 1).runat, row(Task, 1).xq_awaits) == (until, "approved")
    Task.xq.clock.tick(DAYS)
    assert (run(), calls, state(Task, 1)) == (1, ["late"], "D")


@pytest.mark.parametrize("when", ["before", "delayed", "taken", "waiting", "buried"])
def test_a_signal_is_kept_in_each_state_and_readies_the_task_that_awaits_it(make, when):
    Task, said, again = queue(make), list[Any](), list[Any]()

    def work(found: Any) -> None:
        if when == "taken" and not again:
            again.append(Task.xq.signal(1, "approved", {"by": "ann"}))
        if when == "buried" and not again:
            again.append(True)
            raise xq.Bury("first")
        said.append(xq.wait_for("approved"))

    if when == "delayed":
        Task.put(task(), delay=50)
    run = works(Task, work)
    if when in ("before", "delayed"):
        runat = row(Task, 1).runat
        assert Task.xq.signal(1, "approved", {"by": "ann"}) is True
        assert (row(Task, 1).runat, state(Task, 1)) == (runat, "W" if when == "delayed" else "R")
        Task.xq.clock.tick(50)
    run()
    if when == "waiting":
        assert (state(Task, 1), row(Task, 1).runat, row(Task, 1).xq_awaits) == ("W", None, "approved")
        assert Task.xq.signal(1, "another", 1) is True
        assert state(Task, 1) == "W"
        assert Task.xq.signal(1, "approved", {"by": "ann"}) is True
        assert (state(Task, 1), row(Task, 1).xq_awaits) == ("R", None)
        run()
        moves = [f"{each.source}-{each.target} {each.event}" for each in Task.xq.history(1)]
        assert moves[2:5] == ["T-W wait", "W-W signal", "W-R signal"]  # the first of these is another one
    if when == "buried":
        assert Task.xq.signal(1, "approved", {"by": "ann"}) is True
        assert state(Task, 1) == "B"
        Task.dig(1)
        run()
    run()
    assert (said, state(Task, 1), is_exact(Task)) == ([{"by": "ann"}], "D", True)


def test_the_first_signal_of_a_name_counts(make):
    Task, said = queue(make), list[Any]()
    run = works(Task, lambda found: said.append(xq.wait_for("a")))
    run()
    assert [Task.xq.signal(1, "a", n) for n in range(3)] == [True, False, False]
    assert Task.stats().transition["W-R"] == 1
    run()
    assert (said, state(Task, 1)) == ([0], "D")


def test_names_of_signals_are_compared_byte_by_byte(make):
    Task, said = queue(make), list[Any]()
    run = works(Task, lambda found: said.append(xq.wait_for('Ärger "1"\\')))
    run()
    others = ['ärger "1"\\', 'Arger "1"\\', 'Ärger "1"', 'Ärger "1"\\ ']
    assert [Task.xq.signal(1, name) for name in others] == [True] * 4
    assert state(Task, 1) == "W"
    assert (Task.xq.signal(1, 'Ärger "1"\\', 1), run(), said) == (True, 1, [1])


def test_a_timeout_is_recorded_and_a_later_signal_changes_nothing(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        for name in ("first", "second"):
            try:
                calls(str(xq.wait_for(name, timeout=DAYS)))
            except TimeoutError:
                calls("late")
        calls("end", fails=1)

    run = works(Task, work)
    run()
    Task.xq.clock.tick(DAYS)
    run()
    assert Task.xq.signal(1, "first", 1) is False
    assert Task.xq.signal(1, "second", 2) is True
    run()
    Task.xq.clock.tick(2)
    run()
    assert (calls, state(Task, 1)) == (["late", "late", "2", "end", "late", "2", "end"], "D")


def test_a_wait_without_time_left_is_late_at_once_unless_its_signal_is_there(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        try:
            calls(str(xq.wait_for("a", timeout=0)))
        except TimeoutError:
            calls("late")

    run = works(Task, work)
    Task.xq.signal(1, "a", 1)
    Task.put(task())
    run()
    assert (calls, row(Task, 1).status, row(Task, 2).status) == (["1", "late"], "D", "D")


def test_an_attempt_waits_once_for_a_name(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        for _ in range(2):
            try:
                xq.wait_for("answer", timeout=0)
            except TimeoutError:
                calls("late")

    run = works(Task, work, max_attempts=1)
    assert (run(), calls, state(Task, 1)) == (1, ["late"], "B")
    assert "has waited for 'answer' already: another wait has a name of its own" in row(Task, 1).error


def test_a_signal_beside_the_wait_that_has_just_begun_is_not_lost(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        try:
            calls(str(xq.wait_for("approved", timeout=DAYS)))
        finally:
            if not calls:  # the function unwinds, and the row has not moved
                Task.xq.signal(1, "approved", "in between")
                calls("unwound")

    run = works(Task, work)
    assert (run(), calls, state(Task, 1), row(Task, 1).attempts) == (2, ["unwound", "in between"], "D", 1)


def test_a_signal_is_part_of_its_callers_transaction(make):
    Task = queue(make)
    run = works(Task, lambda found: xq.wait_for("a"))
    run()
    with make.db.atomic() as transaction:
        assert Task.xq.signal(1, "a") is True
        transaction.rollback()
    assert (state(Task, 1), lines(Task)) == ("W", [("wait", "a")])
    with make.db.atomic():
        Task.xq.signal(1, "a")
    assert (run(), state(Task, 1)) == (1, "D")


def test_a_signal_has_limits_and_a_task_that_has_ended_takes_none(make):
    Task = queue(make)
    run = works(Task, lambda found: xq.wait_for("end"))
    with pytest.raises(BadValue, match=r"'a' has 8,\d+ octets as a line, and may have 8,192"):
        Task.xq.signal(1, "a", "x" * 8_192)
    assert [Task.xq.signal(1, f"s{n}", "x" * 8_100) for n in range(4)] == [True] * 4
    with pytest.raises(BadValue, match="32,768"):
        Task.xq.signal(1, "s4", "x" * 500)
    with pytest.raises(BadValue, match="the value of the signal 'a'"):
        Task.xq.signal(1, "a", {1: 2})
    assert len(lines(Task)) == 4
    Task.xq.signal(1, "end")
    run()
    with pytest.raises(WrongState, match="cannot signal task 1: it is done"):
        Task.xq.signal(1, "end")
    with pytest.raises(NotFound):
        Task.xq.signal(99, "end")
    with pytest.raises(FeatureOff, match="signal needs the feature 'steps'"):
        make(FEATURES | {"steps": False}, model=make.model(table_name="off"), roles=("runat",)).xq.signal(1, "a")


def test_a_function_that_swallows_the_suspension_meets_it_again_and_its_return_is_no_ack(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        try:
            xq.sleep("cool off", DAYS)
            calls("slept")
        except BaseException:
            calls("swallowed")
        finally:
            calls(f"is {state(Task, 1)}")
        if len(calls) == 2:
            xq.step("next", calls, "next")

    run = works(Task, work)
    run()
    assert (calls, state(Task, 1)) == (["swallowed", "is T"], "W")
    Task.xq.clock.tick(DAYS)
    run()
    assert (calls[2:], state(Task, 1)) == (["slept", "is T"], "D")


def test_a_cancelled_sleeper_is_gone_and_a_running_function_records_nothing_more(make, calls):
    Task, errors = queue(make), list[Any]()

    def work(found: Any) -> None:
        if found.id == 1:
            xq.sleep("cool off", DAYS)
        xq.step("a", calls, "a")
        Task.xq.cancel(found.id, to="B")
        try:
            xq.step("b", calls, "b")
        except NotOwner as error:
            errors.append(str(error))

    run = works(Task, work)
    Task.put(task())
    run()
    Task.xq.cancel(1)
    assert (row(Task, 1), lines(Task, 2), calls) == (None, [("step", "a")], ["a", "b"])
    assert "Its take is over, and nothing is recorded" in errors[0]


# what keeps records, and what drops them


def test_records_stay_with_the_task_until_it_goes_on_in_another_tube_or_ends(make, calls):
    Task = queue(make, roles=(*ROLES, "tube"))

    def work(found: Any) -> None:
        xq.step("a", calls, "a")
        calls("raised")
        raise {1: xq.Retry(0), 2: xq.Bury("why"), 3: xq.Next("other"), 4: xq.Bury("end")}[calls.count("raised")]

    run = works(Task, work)
    run()
    assert (state(Task, 1), lines(Task)) == ("B", [("step", "a")])
    Task.xq.dig(1, fresh=True)
    Task.xq.signal(1, "kept")
    Task.xq.snatch(Task.take())
    run()
    assert calls == ["a", "raised", "raised", "raised", "a", "raised"]  # in the other tube all is new
    assert (row(Task, 1).tube, lines(Task)) == ("other", [("signal", "kept"), ("step", "a")])


def test_dig_again_forgets_a_step_and_what_is_recorded_after_it_but_no_signals(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        for name in "abc":
            xq.step(name, calls, name)
        xq.sleep("d", 0)
        if calls.count("c") < 2:
            raise xq.Bury("look")

    run = works(Task, work)
    run()
    Task.xq.signal(1, "kept")
    with pytest.raises(BadValue, match="no step 'x' to do again: it has 'a', 'b', 'c', 'd'"):
        Task.xq.dig(1, again="x")
    assert state(Task, 1) == "B"
    Task.xq.dig(1, again="b")
    with pytest.raises(WrongState, match="cannot dig task 1: it is ready"):
        Task.xq.dig(1, again="b")
    assert lines(Task) == [("step", "a"), ("signal", "kept")]
    run()
    assert (calls, state(Task, 1)) == (["a", "b", "c", "b", "c"], "D")
    with pytest.raises(FeatureOff, match=r"dig\(again=\) needs the feature 'steps'"):
        make(FEATURES | {"steps": False}, model=make.model(table_name="off"), roles=("runat",)).xq.dig(1, again="a")


# coroutines


def test_in_an_async_def_steps_are_awaited_and_run_side_by_side(make, calls):
    Task, seen = queue(make), list[Any]()

    async def later(name: str) -> Any:
        await asyncio.sleep(0)
        return calls(name, name)

    async def work(found: Any) -> None:
        names = [f"s{n}" for n in range(20)]
        seen.append(
            await asyncio.gather(*(xq.step(name, later if n % 2 else calls, name) for n, name in enumerate(names)))
        )
        await xq.sleep("cool off", DAYS)
        seen.append(await xq.wait_for("a"))

    run = works(Task, work)
    run()
    assert (state(Task, 1), sorted(calls), len(lines(Task))) == ("W", sorted(f"s{n}" for n in range(20)), 21)
    Task.xq.clock.tick(DAYS)
    run()
    asyncio.run(Task.xq.aio.signal(1, "a", 5))
    run()
    assert (state(Task, 1), seen[-1], len(calls), seen[0][1]) == ("D", 5, 20, "s1")


@pytest.mark.parametrize("returns", [False, True])
def test_waits_that_are_gathered_are_refused_and_no_suspension(make, returns):
    Task = queue(make)

    async def work(found: Any) -> None:
        await asyncio.gather(xq.wait_for("legal"), xq.wait_for("finance"), return_exceptions=returns)

    works(Task, work, max_attempts=1)()
    assert state(Task, 1) == ("D" if returns else "B")
    assert returns or "await it in the worker's function itself" in row(Task, 1).error


def test_a_record_that_was_rolled_back_is_made_by_the_next_try(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        for n in range(2):
            try:
                with make.db.atomic():
                    xq.step("a", calls, f"a{n}")
                    calls("end", fails=1)
            except Failed:
                assert lines(Task) == []

    assert (works(Task, work, max_attempts=1)(), calls, state(Task, 1)) == (1, ["a0", "end", "a1", "end"], "D")


def test_a_context_manager_around_that_swallows_the_suspension_makes_no_ack_of_it(make):
    Task = queue(make)
    Task.xq.handlers.clear()
    worker = Task.xq.worker(lambda found: xq.sleep("s", DAYS), around=lambda found: suppress(BaseException))
    Task.put(task())
    worker.run(until_empty=True)
    assert state(Task, 1) == "W"


@pytest.mark.parametrize("name", ["a\0b", "caf\ud800", "", 256 * "x", 7])
def test_a_name_that_no_database_can_hold_is_refused(make, name):
    Task, told = queue(make), list[str]()

    def work(found: Any) -> None:
        for call in (lambda: xq.step(name, str), lambda: xq.sleep(name, 0), lambda: xq.wait_for(name)):
            try:
                call()
            except (xq.BadValue, xq.BadType):
                told.append("refused")

    works(Task, work)()
    assert (told, state(Task, 1)) == (["refused"] * 3, "D")
    with pytest.raises((xq.BadValue, xq.BadType)):
        Task.xq.signal(1, name)


def test_a_coroutines_subtask_has_steps_and_no_waits(make, calls):
    Task, errors = queue(make), list[Any]()

    async def waits() -> None:
        try:
            await xq.sleep("a", 5)
        except BadValue as error:
            errors.append(str(error))

    async def work(found: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(xq.step("b", calls, "b"))

    assert (works(Task, work)(), state(Task, 1), calls) == (1, "D", ["b"])
    assert "not in a subtask" in errors[0]


# where it cannot be


def test_calls_in_a_wrong_place_change_nothing(make, calls):
    Task, told = queue(make), dict[str, str]()

    def tried(what: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except xq.Error as error:
            told[what] = f"{type(error).__name__}: {error}"

    def inner() -> None:
        tried("nested step", lambda: xq.step("inner", calls, "inner"))
        tried("nested sleep", lambda: xq.sleep("inner", 5))
        tried("nested wait", lambda: xq.wait_for("inner"))

    def work(found: Any) -> None:
        xq.step("a", inner)
        tried("both", lambda: xq.sleep("b", 5, at=datetime.now(UTC)))
        tried("neither", lambda: xq.sleep("b"))
        tried("recorded", lambda: xq.sleep("a", 5))
        thread = threading.Thread(target=tried, args=("thread", lambda: xq.step("t", calls, "t")))
        thread.start()
        thread.join()

    tried("script", lambda: xq.step("a", calls, "a"))
    works(Task, work)()
    assert (state(Task, 1), calls) == ("D", [])
    works(Task, lambda found: tried("batch", lambda: xq.step("a", calls, "a")), batch=2)
    Task.put(task())
    run_pending(Task)
    assert {what: text.partition(":")[0] for what, text in told.items()} == {
        "script": "ConfigurationError",
        "thread": "ConfigurationError",
        "batch": "ConfigurationError",
        **dict.fromkeys(("nested step", "nested sleep", "nested wait", "both", "neither", "recorded"), "BadValue"),
    }


def test_it_needs_the_fence_and_features_that_let_tasks_wait(make):
    with pytest.raises(ConfigurationError, match="not_check_session"):
        queue(make, FEATURES | {"not_check_session": True})
    with pytest.raises(ConfigurationError, match="needs the feature 'delayed'"):
        queue(make, {"steps": True, "buried": True})


def test_a_release_without_the_feature_is_refused_while_rows_have_records(make, calls):
    Task = queue(make)

    def work(found: Any) -> None:
        xq.step("a", calls, "a")
        xq.wait_for("b")

    run = works(Task, work)
    run()
    release = next_release(Task, features=FEATURES | {"steps": False})
    with pytest.raises(
        ConfigurationError, match="has tasks with steps, which need the feature 'steps': 1; let them end"
    ):
        release.install()
    Task.xq.signal(1, "b")
    run()
    release.install()
    assert next_release(Task).check() != []


def test_tasks_that_sleep_leave_their_place_to_others(make, calls):
    Task = queue(make, FEATURES | {"utube": 1}, roles=(*ROLES, "utube"))

    def work(found: Any) -> None:
        if found.id == 1:
            xq.sleep("cool off", DAYS)
        calls(str(found.id))

    Task.xq.put_many([task(utube="same"), task(utube="same")])
    assert (works(Task, work)(), calls, state(Task, 1)) == (2, ["2"], "W")
    Task.xq.clock.tick(3_600)  # no ttr moves it
    assert state(Task, 1) == "W"


# groups


@pytest.mark.parametrize("end", ["ack", "kill"])
def test_the_last_end_of_a_group_signals_a_task_of_another_table_with_its_statistics(make, end, caplog):
    Order, said = queue(make, model=make.model(table_name="orders", error=pw.TextField(null=True))), list[Any]()
    Parcel = make({"groups": True, "buried": True, "history": True}, model=make.model(table_name="parcels"))

    def work(found: Any) -> None:
        said.append(xq.wait_for("packed"))

    run = works(Order, work)
    run()
    with Parcel.xq.group("order 1", then=(row(Order, 1), "packed"), failed="run") as group:
        group.put_many([task() for _ in range(4)])
    Parcel.take().ack()
    Parcel.xq.kill(2)
    Parcel.xq.bury(Parcel.take())
    assert state(Order, 1) == "W"
    Parcel.take().ack() if end == "ack" else Parcel.xq.kill(4)
    assert (state(Order, 1), group.done, run()) == ("R", True, 1)
    assert said == [group.stats()]
    assert said[0] == {
        "R": 0,
        "T": 0,
        "B": 1,
        "done": 2 if end == "ack" else 1,
        "failed": 2 if end == "ack" else 3,
        "total": 4,
    }
    assert [each.event for each in Order.xq.history(1)][2:4] == ["wait", "signal"]
    assert (state(Order, 1), is_exact(Order), is_exact(Parcel)) == ("D", True, True)


def test_the_signal_of_a_group_for_a_task_that_has_ended_is_dropped(make, caplog):
    Order = queue(make, model=make.model(table_name="orders", error=pw.TextField(null=True)))
    Parcel = make({"groups": True}, model=make.model(table_name="parcels"))
    Order.put(task())
    with Parcel.xq.group("order 1", then=(row(Order, 1), "packed")) as group:
        group.put(task())
    Order.take().ack()
    Parcel.take().ack()
    Parcel.xq.sweep()
    assert (group.done, group.stats()["skipped"]) == (True, 1)
    assert "the then of the group 'order 1' was left out" in caplog.text
    with pytest.raises(FeatureOff, match="signal needs the feature 'steps'"):
        Parcel.xq.group("x", then=(Parcel.put(task()), "a")).begin()


def test_the_column_of_records_holds_more_than_records_and_signals_may_have(make):
    Task = queue(make)
    Task.put(task())
    Task.update(xq_steps="x" * 70_000).where(Task.id == 1).execute()
    assert len(row(Task, 1).xq_steps) == 70_000
