"""Tasks that anyone may finish (not_check_session), when the session that took them ends."""

from __future__ import annotations

from typing import Any

from tests.steps import another_process, eventually, is_exact

FEATURES = {"ttr": 60, "keep": True, "not_check_session": True}


def test_a_task_that_anyone_may_finish_stays_taken_until_its_ttr_however_its_session_ends(make_live):
    Task = make_live(FEATURES, roles=("runat",))
    Task.xq.put_many([{}] * 6)

    def take() -> Any:
        with Task.xq.session() as session:
            yield session.uuid, Task.take().id
            yield "goes on"

    with another_process(make_live.db, take) as exits:
        next(exits)
    with another_process(make_live.db, take) as dies:
        killed, _ = next(dies)
        dies.kill()
    closed = Task.xq.session()
    with closed:
        Task.take()
        closed.close()
    with Task.xq.session() as left:
        Task.take()
    Task.xq.configure(session_ttr=0.2)
    with Task.xq.session() as postponed:
        Task.take()
    ended = {killed, closed.uuid, left.uuid, postponed.uuid}
    eventually(lambda: not ended & set(dict(Task.xq.sessions())))
    assert Task.xq.count("T") == 5

    first, second, *_ = Task.xq.by_state("T")
    assert Task.xq.snatch(first.id).status == "R"
    assert Task.ack(second.id).status == "D"
    assert Task.xq.release_all() == 3
    with Task.xq.session():
        taken = Task.take(ttr=0.5).id
    eventually(lambda: Task.xq.peek(taken).status == "R")
    assert Task.xq.stats().transition["T-R"] == 5
    assert is_exact(Task)
