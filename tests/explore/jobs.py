"""The jobs of the zygote's children."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connections

import xq
import xq.operators.doctor
import xq.operators.operations
from tests.explore.calls import CALLS, WITH_ALL
from tests.explore.gate import GATE, Cut, install
from tests.explore.homes import START, Address, World, model, paid
from tests.explore.judge import told, work_off
from tests.explore.lives import LIVES, Life
from tests.explore.loops import IN_LOOPS
from tests.explore.orms import ON_ORMS
from tests.explore.pairs import STATES, play
from tests.explore.tasks import ON_TASKS
from tests.explore.tubes import ON_TUBES
from tests.explore.zygote import serve

BROKEN = "the next call raises"
PROGRAMS = {**CALLS, **WITH_ALL, **IN_LOOPS, **LIVES, **ON_ORMS, **ON_TASKS, **ON_TUBES}
LINES = {**PROGRAMS, **STATES}
LATER = 30.0  # seconds from the beginning of each program to its recovery


WORLDS: dict[str, World] = {}


def prepared(address: Address, features: Any) -> World:
    if (key := repr((address, features))) not in WORLDS:
        WORLDS[key] = World(address, features)
    return WORLDS[key]


def prepare(job: str, address: Address, name: str, **_: Any) -> None:
    """Make a job's queue before the fork, without a connection: the job begins with a copy of it."""
    if job != "play":
        prepared(address, (LINES[name].then if job == "recover" else None) or LINES[name].features)


def opened(address: Address, call: Any, ledger: str = os.devnull, then: Any = None) -> World:
    world = prepared(address, then or call.features)
    world.ledger = Path(ledger)
    call.opens(world)
    return world


def make(address: Address, name: str) -> None:
    """Make the tables, and install the queue if it is there before the call."""
    world = opened(address, LINES[name])
    world.db.create_tables([model(world.db), paid(world.db)])
    if not LINES[name].bare:
        world.q.install()
    world.db.close()
    connections.close_all()


def run(address: Address, name: str, ledger: str, cut: list[Any] | None = None, state: int = -1) -> list[Any]:
    """Bring about the state before a call, then run the call, or the program of one of its states, with a cut.

    Return how it ended, and what it returned.
    """
    call, ended, result = LINES[name], "returned", None
    world = opened(address, call, ledger)
    call.before(world)
    GATE.arm(Cut(*cut) if cut else None, Path(ledger).with_name("sent"))
    try:
        result = call.states[state](world)
    except Exception as error:
        ended = f"raised {type(error).__name__}: {error}"
    GATE.disarm()
    try:
        assert not world.q.parts.store.in_transaction()
        with suppress(xq.NotInstalled):
            world.q.by_state("R")
    except Exception as error:
        ended = f"{BROKEN} {type(error).__name__}: {error} ({ended})"
    return [ended, told(world, result) if call.between is None else None]


def recover(address: Address, name: str, ledger: str) -> dict[str, Any]:
    """Recover in a fresh process, take and ack all tasks, and return the digest."""
    call = LINES[name]
    world = opened(address, call, ledger, call.then)
    world.clock.now = START + LATER
    call.recovers(world)
    # On MariaDB and MySQL what an end sets off may follow in a transaction of its own.
    is_one = not isinstance(call, Life) and call.between is None and world.engine not in ("mariadb", "mysql")
    return work_off(world, ledger, is_one)


if __name__ == "__main__":
    logging.disable()
    install()
    serve({"make": make, "run": run, "recover": recover, "play": play}, prepare)
