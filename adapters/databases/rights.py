"""The rights of each role on a server: what its calls need on the tables of a queue.

Triggers run with the rights of the user who installed them, so a user who writes tasks needs no rights on the tables
that triggers write. On MariaDB this is the default; on PostgreSQL the first grant sets it up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from xq.core.machine import ABSENT, TAKEN, Machine, Transition

ROLES: Final = ("reader", "producer", "consumer", "operator")  # each may do what those before it may


class Right(NamedTuple):
    """A privilege on a table, in the words of GRANT."""

    does: str
    when: str = ""  # only if this condition of `conditions` holds for the queue
    some: bool = False  # only on the columns that the dialect names


SELECT, INSERT, UPDATE, DELETE = map(Right, ("SELECT", "INSERT", "UPDATE", "DELETE"))
IN_TURN = Right("UPDATE", some=True)  # lock a row, so that such calls run one at a time

# The rights by table and role; each role also has the rights of the roles before it.
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
        "consumer": (INSERT, DELETE),  # to merge rows
    },
    "owner": {"reader": (SELECT,), "consumer": (INSERT, UPDATE)},
    "wait": {"reader": (SELECT,), "producer": (INSERT, DELETE)},
    "history": {"reader": (SELECT,), "consumer": (Right("DELETE", when="forgets"),)},
    "utube": {"reader": (SELECT,), "consumer": (INSERT, UPDATE, DELETE)},
    "utube_news": {"reader": (SELECT,), "consumer": (INSERT, UPDATE, DELETE)},
    # For bulk puts. A user who may create tables must have run one before.
    "job": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},
    "stage": {"reader": (SELECT,), "producer": (INSERT, DELETE)},
    "xq_queue": {
        "reader": (SELECT,),
        "producer": (Right("UPDATE", when="limit", some=True),),
        "operator": (IN_TURN,),  # recount, reset
    },
    "xq_session": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},  # a waiter has a session, too
    "xq_alive": {"reader": (SELECT,), "producer": (INSERT, UPDATE, DELETE)},
    "xq_setting": {"reader": (SELECT,), "operator": (INSERT, UPDATE)},  # configure
}


def conditions(machine: Machine) -> dict[str, bool]:
    """Return which properties of a queue that rights depend on hold."""
    return {
        "": True,
        "unique": machine.guard("unique") is not None,
        "limit": machine.guard("limit") is not None,
        "counts puts": machine.guard("unique") is not None and machine.settings.counts_events,  # puts that replace
        "ends": any(row.target == ABSENT and (row.due or _finishes(row)) for row in machine.rows),
        "forgets": machine.settings.history not in (None, math.inf),
    }


def _finishes(row: Transition) -> bool:
    """Return whether a consumer runs this transition of a taken task; only an operator may kill."""
    return row.source == TAKEN and row.event != "kill"


def rights(table: str, role: str, machine: Machine) -> Iterator[Right]:
    """Yield the rights of a role on a table, each once; a right on all columns replaces one on some."""
    so = conditions(machine)
    mine = [right for one in ROLES[: ROLES.index(role) + 1] for right in RIGHTS[table].get(one, ()) if so[right.when]]
    for right in dict.fromkeys(right._replace(when="") for right in mine):
        if not (right.some and Right(right.does) in mine):
            yield right
