"""What each role may do on a server: the tables of a queue, and the rights on them that its calls need.

Triggers run with the rights of whoever installed them, so that who writes a task needs none on what they write, and can
write nothing else there: MariaDB has it so by itself, and on PostgreSQL the first grant sees to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from xq.core.machine import ABSENT, TAKEN, Machine, Transition

ROLES: Final = ("reader", "producer", "consumer", "operator")  # each may do what those before it may


class Right(NamedTuple):
    """To do something to a table, as GRANT has it; LOCK is what a SELECT .. FOR UPDATE needs."""

    does: str
    when: str = ""  # only where the queue is so, see `conditions`
    some: bool = False  # not all columns: those that the dialect names


SELECT, INSERT, UPDATE, DELETE, LOCK = map(Right, ("SELECT", "INSERT", "UPDATE", "DELETE", "LOCK"))
IN_TURN = Right("UPDATE", some=True)  # have others wait who do the same

# table -> role -> what it needs there, beside what the roles before it need
RIGHTS: Final[Mapping[str, Mapping[str, tuple[Right, ...]]]] = {
    "task": {
        "reader": (SELECT,),
        "producer": (INSERT, Right("UPDATE", when="unique", some=True)),  # put(on_conflict="replace")
        "consumer": (UPDATE, Right("DELETE", when="ends")),
        "operator": (DELETE,),
    },
    "count": {
        "reader": (SELECT,),
        "producer": (Right("INSERT", when="counts puts"),),
        "consumer": (INSERT, DELETE, LOCK),  # to add them up
    },
    "owner": {"reader": (SELECT,), "consumer": (INSERT, UPDATE)},
    "wait": {"reader": (SELECT,), "producer": (INSERT, DELETE)},
    "history": {"reader": (SELECT,), "consumer": (Right("DELETE", when="forgets"),)},
    "utube": {"reader": (SELECT,), "consumer": (INSERT, UPDATE, DELETE)},
    "utube_news": {"reader": (SELECT,), "consumer": (INSERT, UPDATE, DELETE)},
    # Of those who put in bulk, where somebody who may create tables has done so once.
    "job": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},
    "stage": {"reader": (SELECT,), "producer": (INSERT, DELETE)},
    "xq_queue": {
        "reader": (SELECT,),
        "producer": (Right("UPDATE", when="limit", some=True),),
        "operator": (IN_TURN,),  # recount, reset
    },
    "xq_session": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},  # who waits has a session, too
    "xq_alive": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},
    "xq_setting": {"reader": (SELECT,), "operator": (INSERT, UPDATE)},  # configure
}


def conditions(machine: Machine) -> dict[str, bool]:
    """What a queue is like, as far as rights depend on it."""
    return {
        "": True,
        "unique": machine.guard("unique") is not None,
        "limit": machine.guard("limit") is not None,
        "counts puts": machine.guard("unique") is not None and machine.settings.counts_events,  # those that replace
        "ends": any(row.target == ABSENT and (row.due or _finishes(row)) for row in machine.rows),
        "forgets": machine.settings.history not in (None, math.inf),
    }


def _finishes(row: Transition) -> bool:
    """Whether it is what becomes of a taken task by those who take: kill is an operator's."""
    return row.source == TAKEN and row.event != "kill"


def rights(table: str, role: str, machine: Machine) -> Iterator[Right]:
    """What a role needs on a table: each right once, and none on some columns where there is one on all."""
    so = conditions(machine)
    mine = [right for one in ROLES[: ROLES.index(role) + 1] for right in RIGHTS[table].get(one, ()) if so[right.when]]
    for right in dict.fromkeys(right._replace(when="") for right in mine):
        if not (right.some and Right(right.does) in mine):
            yield right
