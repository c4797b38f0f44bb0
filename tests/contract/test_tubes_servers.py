"""Tubes on servers that crash."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.conftest import SERVERS, database_on
from tests.steps import STUCK
from xq.tubes import Tubes


@pytest.mark.parametrize("kind", SERVERS)
def test_a_url_leads_to_the_tubes_of_a_server(kind):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        for again in (url, url.replace("://", "+pool://"), url.replace("mysql:", "mariadb:")):
            queue: Any = Tubes(again)
            with closing(queue.database):
                tube = queue.create_tube("tube", "fifo", if_not_exists=True)
                tube.put(again)
                task = tube.take(0)
                assert task.data == again
                tube.ack(task)


@pytest.fixture
def server(request):
    """A server of the test's own."""
    kind = SERVERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with kind() as server:
        server.create("app")
        yield server


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_crash_takes_the_tasks_of_no_tube_that_is_not_temporary_and_no_id_comes_again(server):
    with closing(server.peewee("app")) as database:
        queue: Any = Tubes(database)
        queue.cfg(ttr=1000)
        for name in ("kept", "temporary"):
            tube = queue.create_tube(name, "utubettl", temporary=name == "temporary")
            for data in "abc":
                tube.put(data, utube="u")
            tube.delete(3)
            assert tube.take(STUCK) == (1, "t", "a")  # the maintenance thread may be refreshing the head
        uuid = queue.identify()
        server.stop("immediate")
    server.start()
    with closing(server.peewee("app")) as database:
        queue = Tubes(database)
        assert queue.tube() == ["kept", "temporary"]
        kept, temporary = queue.tube.kept, queue.tube.temporary
        with queue.session(uuid):
            assert kept.ack(1) == (1, "-", "a")
        assert kept.take(0) == (2, "t", "b")
        assert kept.statistics()["calls"]["put"] == 3
        counted = temporary.statistics()
        assert counted["tasks"]["total"] == len(temporary.tasks_by_state("r")) + len(temporary.tasks_by_state("t"))
        if "postgres" in type(server).__name__.lower():
            assert counted["tasks"]["total"] == counted["calls"]["put"] == 0
        for tube in (kept, temporary):
            task = tube.put("d", utube="v")
            assert task.id > 3, tube.name
            assert tube.model.xq.check() == []
        assert temporary.take(0).data == "d"
