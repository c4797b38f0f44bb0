"""put and put_many: what they take, what they make of it, and who makes the key."""

from __future__ import annotations


def sequence(Task, **values):
    """A task as a sequence: a value for each field, None for what is the queue's."""
    own = {"size": 0} | ({} if "attempts" in Task.xq.machine.roles else {"attempts": 0})
    return [(own | values).get(field.name) for field in Task._meta.sorted_fields]
