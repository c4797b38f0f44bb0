"""By what xq's own connections notice a silent server, and what it says of an application's that would not."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS, database_on, live
from tests.proxy import Proxy
from tests.servers import Postgres
from tests.support.servers_fail import own
from xq.adapters.peewee import urls
from xq.cli import main
from xq.core.errors import BadValue
from xq.drivers import SERVERS as DRIVERS
from xq.drivers.base import is_remote
from xq.drivers.postgres import LIMITS


@pytest.fixture
def postgres() -> Iterator[tuple[Any, str]]:
    with database_on(Postgres) as found:
        yield found


def test_what_a_url_or_the_environment_names_stays_as_it_is(postgres, monkeypatch):
    server, name = postgres

    def effective(**more: str) -> dict[str, str]:
        url = f"{server.url(name)}?" + "&".join(f"{option}={value}" for option, value in more.items())
        with closing(urls.database(url)) as db:
            return {each.keyword.decode(): each.val.decode() for each in db.connection().pgconn.info if each.val}

    limits = {option: str(value) for option, value in LIMITS.items()}
    assert limits.items() <= effective().items()
    assert effective(connect_timeout="7", tcp_user_timeout="0")["connect_timeout"] == "7"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "9")
    assert effective()["connect_timeout"] == "9"


@pytest.mark.parametrize("form", ["postgresql://{user}@{closed},{open}/{name}", "query"])
def test_of_several_hosts_the_one_that_has_answered_is_tried_first(postgres, form):
    server, name = postgres
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        closed = bound.getsockname()[1]
    where = {"user": server.USER, "name": name, "closed": f"127.0.0.1:{closed}", "open": f"127.0.0.1:{server.port}"}
    query = f"postgresql:///{name}?user={server.USER}&host=127.0.0.1,127.0.0.1&port={closed},{server.port}"
    with closing(urls.database(query if form == "query" else form.format(**where))) as db:
        assert db.execute_sql("SELECT 1").fetchone() == (1,)
        first, _ = DRIVERS["postgres"].limited(db.connect_params)["port"].split(",")
        assert first == str(server.port)
        assert db.connect_params["port"] == f"{closed},{server.port}"


def test_hosts_that_are_none_are_refused_without_the_password():
    with pytest.raises(BadValue) as refused:
        urls.database("postgresql://me:secret@a:1,[b/app")
    assert "secret" not in str(refused.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the options of sockets have other names elsewhere")
@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pool"])
def test_a_connection_to_mariadb_by_a_url_asks_for_signs_of_life_and_waits_for_long_statements(scheme):
    with database_on(SERVERS["mariadb"]) as (server, name):
        place = server.url(name).partition("://")[2]
        with closing(urls.database(f"{scheme}://{place}?ssl_disabled=true")) as db:
            raw = db.connection()
            assert raw._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
            assert (raw.connect_timeout, raw._read_timeout) == (3, None)
        with closing(urls.database(f"{scheme}://{place}?ssl_disabled=true&read_timeout=7")) as db:
            assert db.connection()._read_timeout == 7


def test_a_call_at_a_mariadb_that_is_frozen_ends_while_one_with_a_long_statement_goes_on(monkeypatch):
    monkeypatch.setattr("xq.drivers.pymysql.SILENCE", 0.01)
    with own(SERVERS["mariadb"]) as server, closing(urls.database(f"{server.url('app')}?connect_timeout=1")) as db:
        assert db.execute_sql("SELECT SLEEP(0.1), 1").fetchone() == (0, 1)
        with server.frozen(), pytest.raises(pw.OperationalError, match="none to a new connection"):
            db.execute_sql("SELECT 1")


def test_an_answer_of_a_mariadb_by_tls_that_stops_in_the_middle_ends_as_well(monkeypatch, tmp_path):
    monkeypatch.setattr("xq.drivers.pymysql.SILENCE", 0.01)
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    for path in (key, tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)  # the server may be another user
    with own(SERVERS["mariadb"], ssl_cert=certificate, ssl_key=key) as server, Proxy(server.host, server.port) as proxy:
        by_tls = f"ssl_ca={certificate}&ssl_verify_cert=false&ssl_verify_identity=false&connect_timeout=1"
        with closing(urls.database(f"mysql://{server.USER}@{proxy.host}:{proxy.port}/app?{by_tls}")) as db:
            assert db.execute_sql("SELECT SLEEP(0.1), 1").fetchone() == (0, 1)
            proxy.stand()
            with pytest.raises(pw.OperationalError, match="none to a new connection"):
                db.execute_sql("SELECT 1")


def own_address() -> str:
    """An address of this machine that is not the loopback's; no packet is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has only the loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("kind", SERVERS)
def test_doctor_names_what_an_applications_connection_to_another_machine_lacks_and_check_notes_it(kind, capsys):
    with database_on(SERVERS[kind]) as (server, name), Proxy(server.host, server.port, own_address()) as proxy:
        lacks = "tcp_user_timeout" if kind == "postgres" else "read_timeout"

        def told(db: pw.Database) -> list[str]:
            with closing(db):
                Task = live(db)({"keep": True})
                assert Task.xq.check() == []
                return [each.what for each in Task.xq.doctor() if each.do.startswith("optional")]

        there = {"host": proxy.host, "port": proxy.port}
        assert not any(lacks in what for what in told(server.peewee(name)))
        (what,) = told(server.peewee(name, **there))
        assert lacks in what
        assert told(server.peewee(name, **there, **{lacks: 5}, connect_timeout=3)) != [what]
        url = f"{server.SCHEME}://{server.USER}@{proxy.host}:{proxy.port}/{name}"
        with closing(urls.database(url)) as db:
            driver = DRIVERS["postgres" if kind == "postgres" else "innodb"]
            assert is_remote(driver.fileno(db.connection()))
            assert not driver.lacks(db.connection())
        with pytest.raises(SystemExit) as ended:
            main(["check", f"{url}#task"])
        assert (ended.value.code, capsys.readouterr().err) == (0, "")
