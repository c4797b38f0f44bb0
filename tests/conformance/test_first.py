def test_a_ready_task_past_its_ttl_is_never_taken(make):
    Task = make({"ttl": 10})
    Task.put({})
    Task.xq.clock.tick(11)
    assert Task.take() is None
    assert Task.stats().transition["R-X"] == 1


def test_a_put_task_can_be_taken_and_acked(make_shared):
    Task = make_shared({})
    task = Task.put({"name": "a"})
    taken = Task.take()
    assert taken.id == task.id
    taken.ack()
    assert Task.take() is None
    assert Task.xq.check() == []
