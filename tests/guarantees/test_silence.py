"""A server that is away, and says nothing: programs work again without it, lose nothing, and end when they are told."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import SERVERS
from tests.proxy import Proxy
from tests.steps import eventually, wrong
from tests.support.servers_fail import own
from tests.support.silence import away, ended, programs, run, unlimited, write
from xq.cli.targets import queue_named
from xq.metrics import Metrics

N = 300  # tasks
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has filters of sockets, and /proc")


@linux
@pytest.mark.parametrize("kind", SERVERS)
def test_programs_work_again_when_the_machine_of_their_server_vanishes_and_lose_no_task(kind, tmp_path):
    with own(SERVERS[kind]) as server, Proxy(server.host, server.port) as one, Proxy(server.host, server.port) as two:
        # On PostgreSQL the second host goes on; on MariaDB another machine takes the address over.
        places = [one, two] if kind == "postgres" else [one]
        hosts = ",".join(f"{each.host}:{each.port}" for each in places)
        url = f"{server.SCHEME}://{server.USER}@{hosts}/app"
        with programs(tmp_path, server, f"urls.database({url!r})", 0.02, N) as each:
            eventually(lambda: all(program.queue.count("D") > 10 for program in each))
            one.vanish()
            if kind != "postgres":
                one.appear()
            eventually(lambda: all(program.queue.count("D") == N for program in each))
            assert ended(each) == [0] * len(each)
            assert not any(wrong(program.queue) for program in each)


@linux
@pytest.mark.parametrize("how", ["down", "vanished", "frozen"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_second_signal_ends_programs_whatever_their_server_does(kind, how, tmp_path):
    with own(SERVERS[kind]) as server, Proxy(server.host, server.port) as proxy:
        with programs(tmp_path, server, unlimited(server, proxy), 3600, 3) as each, away(server, proxy, how):
            for program in each:
                program.signal()
            eventually(lambda: all(program.told("the workers finish their tasks") for program in each))
            assert ended(each) == [0] * len(each)
            for program in each:
                assert len(program.told("the program ends while the database fails")) == 1, program.log.read_text()
                assert not program.told("Traceback") + program.told("released task"), program.log.read_text()


@linux
@pytest.mark.parametrize("kind", SERVERS)
def test_commands_and_metrics_answer_with_an_error_beside_a_server_that_is_frozen(kind, tmp_path):
    with own(SERVERS[kind]) as server:
        write(tmp_path, unlimited(server, server))
        url = f"{server.url('app')}#thread_job"
        metrics = Metrics([queue_named(url)], fresh_for=0)
        assert b'xq_up{queue="thread_job"} 1.0' in metrics.scrape()[0]
        with server.frozen():
            commands = [run(tmp_path, "-m", "xq", "stats", target) for target in (url, "app:thread_job")]
            assert b'xq_up{queue="thread_job"} 0.0' in metrics.scrape()[0]
            assert [each.wait(30) for each in commands] == [1, 1]
        assert b'xq_up{queue="thread_job"} 1.0' in metrics.scrape()[0]


@linux
@pytest.mark.parametrize("how", ["down", "vanished", "frozen"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_command_that_follows_ends_with_an_error_when_its_server_is_away(kind, how, tmp_path):
    with own(SERVERS[kind]) as server, Proxy(server.host, server.port) as proxy:
        write(tmp_path, unlimited(server, proxy))
        url = f"{server.SCHEME}://{server.USER}@{proxy.host}:{proxy.port}/app#thread_job"
        queue_named(f"{server.url('app')}#thread_job").put({})
        logs = [tmp_path / "url.log", tmp_path / "app.log"]
        with logs[0].open("wb") as one, logs[1].open("wb") as other:
            tails = [
                run(tmp_path, "-m", "xq", "tail", target, stdout=log, stderr=log)
                for target, log in ((url, one), ("app:thread_job", other))
            ]
        eventually(lambda: all("put" in log.read_text() for log in logs))
        with away(server, proxy, how):
            try:
                assert [each.wait(30) for each in tails] == [1, 1]
            finally:
                for each in tails:
                    each.kill()
        assert all("xq: the database of thread_job fails: " in log.read_text() for log in logs)
