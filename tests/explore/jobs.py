"""What the zygote's children do, by name."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import xq
import xq.operators.doctor
import xq.operators.operations
from tests.explore.gate import GATE, Cut
from tests.explore.homes import START, Address, World, model
from tests.explore.judge import work_off
from tests.explore.lives import PROGRAMS
from tests.explore.pairs import STATES, play
from tests.explore.zygote import serve

BROKEN = "the next call raises"
LINES = {**PROGRAMS, **STATES}
LATER = 30.0  # seconds from the beginning of each program to its recovery


def make(address: Address, name: str) -> None:
    """Make the table, and install the queue if it is there before the call."""
    world = World(address, LINES[name].features)
    world.db.create_tables([model(world.db)])
    if not LINES[name].bare:
        world.q.install()
    world.db.close()


def run(address: Address, name: str, ledger: str, cut: list[Any] | None, state: int) -> dict[str, Any]:
    """Run a program: what is there before, then what leaves a state of the call, cut there. Then the process ends."""
    world, call, ended = World(address, LINES[name].features, ledger), LINES[name], "returned"
    call.before(world)
    GATE.arm(Cut(*cut) if cut else None)
    try:
        call.states[state](world)
    except Exception as error:
        ended = f"raised {type(error).__name__}: {error}"
    sent = GATE.disarm()
    try:
        assert not world.q.parts.store.in_transaction()
        with suppress(xq.NotInstalled):
            world.q.by_state("R")
    except Exception as error:
        ended = f"{BROKEN} {type(error).__name__}: {error} ({ended})"
    return {"ended": ended, "sent": sent}


def recover(address: Address, name: str, ledger: str) -> dict[str, Any]:
    """Return the digest, once a fresh process has worked all off."""
    call = LINES[name]
    world = World(address, call.then or call.features, ledger)
    world.clock.now = START + LATER
    call.recovers(world)
    world.reap()
    return work_off(world, ledger)


if __name__ == "__main__":
    logging.disable()
    GATE.install()
    serve({"make": make, "run": run, "recover": recover, "play": play})
