"""Connections to a server that are cut, stall, time out or are killed: clear errors, and nothing done by halves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conformance.steps import eventually, is_exact
from tests.conftest import SERVERS, Maker, chosen, database_on
from tests.proxy import Proxy

FEATURES = {"keep": True, "buried": True, "delayed": True}
CUTS = 20  # places at which one call may be cut, at most


@pytest.fixture(params=chosen(SERVERS))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with database_on(SERVERS[request.param]) as (server, name), Proxy(server.host, server.port) as proxy:
        made = Place(server, name, proxy)
        try:
            yield made
        finally:
            made.close()


class Place:
    """A database of its own, which can be reached through a proxy and past it."""

    def __init__(self, server: Any, name: str, proxy: Proxy) -> None:
        self.server = server
        self.name = name
        self.proxy = proxy
        self.there = Maker(self.database(), None)(FEATURES)  # past the proxy
        self.Task = Maker(self.database(host=proxy.host, port=proxy.port), None)(FEATURES)
        self.db = self.Task._meta.database

    def close(self) -> None:
        self.there._meta.database.close()
        self.db.close()

    def database(self, **options: Any) -> pw.Database:
        return self.server.peewee(self.name, **options)

    def states(self) -> Counter[str]:
        return Counter(task.status for task in self.there.select())


# what is done with three tasks, of which one is ready and two are taken -> how many of them are then in which states
CALLS: dict[str, tuple[Callable[[Any, list[Any]], Any], dict[str, int]]] = {
    "put": (lambda Task, held: Task.put({}), {"R": 2, "T": 2}),
    "put_many": (lambda Task, held: Task.xq.put_many([{}] * 3), {"R": 4, "T": 2}),
    "take": (lambda Task, held: Task.take(), {"T": 3}),
    "take_many": (lambda Task, held: Task.xq.take_many(2), {"T": 3}),
    "ack": (lambda Task, held: held[0].ack(), {"R": 1, "T": 1, "D": 1}),
    "release": (lambda Task, held: held[0].release(delay=3600), {"R": 1, "T": 1, "W": 1}),
    "bury_many": (lambda Task, held: Task.xq.bury_many(held), {"R": 1, "B": 2}),
    "kill": (lambda Task, held: Task.kill(held[0].id), {"R": 1, "T": 1}),
}


@pytest.mark.parametrize("when", ["asked", "answered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_connection_is_cut_did_all_or_nothing_and_the_next_one_works(place, call, when):
    Task, (do, then) = place.Task, CALLS[call]
    cut = {"asked": place.proxy.cut_when_asked, "answered": place.proxy.cut_when_answered}[when]
    done = 0
    for after in range(CUTS):
        Task.xq.truncate()
        Task.xq.put_many([{}] * 3)
        held = Task.xq.take_many(2)
        before = place.states()
        cut(place.db, after=after)
        try:
            do(Task, held)
        except pw.PeeweeException:
            assert place.states() in ((before,) if when == "asked" else (before, then))
            done += place.states() == then
        else:
            break
    else:
        pytest.fail("it was cut each time")
    assert after > 0, "it was never cut"
    assert done == (when == "answered"), "nobody is told of one commit only"
    place.proxy.cut_when_asked(place.db, after=10**6)
    assert place.states() == then
    assert is_exact(place.there)
