"""What a wait returns of a task that an ack has deleted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.factories import task
from tests.steps import PATIENCE, another_process, eventually, in_threads

ROLES = ("owner", "attempts")


def put_and_wait(Task: Any) -> tuple[Any, bool]:
    found: tuple[Any, bool] = Task.put(task(name="asked"), wait=PATIENCE)
    return found


def is_awaited(Task: Any) -> bool:
    return any(key is not None for key, _, _ in Task.xq.waiting())


def test_the_process_that_acked_returns_it_with_the_update_of_the_ack(make_live):
    Task = make_live(roles=ROLES)

    def work() -> Any:
        taken = eventually(lambda: is_awaited(Task) and Task.take())
        return taken.ack(update={"name": "answered"})

    for _ in range(20):  # the thread that tells of writes may be faster than that which acks
        (found, processed), acked = in_threads(make_live.db, lambda: put_and_wait(Task), work)
        assert processed
        assert found.__data__ == acked.__data__
        assert (found.name, found.status, found.attempts) == ("answered", "T", 1)


def answered_elsewhere(Task: Any, end: Callable[[Any], object]) -> Any:
    """Put a task and wait for it in another process, end it here once it is taken. Return what the wait returned."""

    def child() -> Generator[Any, Any, None]:
        yield
        found, processed = put_and_wait(Task)
        yield found.status, processed

    with another_process(Task._meta.database, child) as waiting:
        next(waiting)
        waiting.post(None)
        end(eventually(lambda: is_awaited(Task) and Task.take()))
        return waiting.hear()


def test_another_process_returns_it_as_it_was_taken(make_live):
    assert answered_elsewhere(make_live(roles=ROLES), lambda taken: taken.ack()) == ("T", True)


def test_a_wait_returns_its_own_task_though_another_was_given_the_same_key_since(make_live):
    Task = make_live(roles=ROLES)

    def work() -> Any:
        taken = eventually(lambda: is_awaited(Task) and Task.take())
        with make_live.db.atomic():
            key = taken.ack(update={"name": "answered"}).id
            Task.put({**task(name="another"), "id": key})  # as SQLite itself chooses it, without AUTOINCREMENT
            return Task.take()

    (found, processed), another = in_threads(make_live.db, lambda: put_and_wait(Task), work)
    assert (found.id, found.name, processed) == (another.id, "answered", True)


def test_a_task_that_is_kept_and_then_deleted_is_returned_as_done(make_live):
    Task = make_live({"keep": True}, roles=ROLES)

    def end(taken: Any) -> None:
        with make_live.db.atomic():
            taken.ack()
            Task.delete().execute()

    assert answered_elsewhere(Task, end) == ("D", True)
