"""The throwaway servers that the tests are run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import peewee as pw
import pytest

from tests.servers import PATIENCE, MariaDB, Postgres, Server, shared
from tests.steps import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kind(request):
    if reason := request.param.missing():
        pytest.skip(reason)
    return request.param


KINDS = pytest.mark.parametrize("kind", [Postgres, MariaDB], ids=lambda kind: kind.NAME, indirect=True)


def filled(server: Server, name: str) -> pw.Database:
    """A database with a table of one row."""
    server.create(name)
    database = server.peewee(name)
    database.execute_sql("CREATE TABLE t (a int)")
    database.execute_sql("INSERT INTO t VALUES (7)")
    return database


def rows(database: pw.Database) -> list[tuple[int, ...]]:
    return list(database.execute_sql("SELECT a FROM t").fetchall())


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@KINDS
def test_a_server_that_is_stopped_or_crashes_is_there_again_on_its_port_with_its_data(kind):
    with kind() as server:
        database = filled(server, "app")
        port = server.port
        for how in kind.STOPS:
            server.stop(how)
            database.close()
            with pytest.raises(pw.OperationalError):
                database.connect()
            server.start()
            assert rows(database) == [(7,)]
        database.close()
        assert server.port == port
    assert not server.folder.exists()


@KINDS
def test_the_user_of_the_tests_is_no_administrator(kind):
    server = shared(kind)
    server.create("humble")
    database = server.peewee("humble")
    with database.connection_context(), pytest.raises(pw.PeeweeException, match="denied"):
        database.execute_sql("CREATE ROLE other")
    server.drop("humble")


# One child of it has ended already, which stops no server; another lives on, which keeps none.
OWNER = """
import os, signal, sys
from tests.servers import {kind}
server = {kind}()
server.start()
if not os.fork():
    sys.exit()
os.wait()
if not os.fork():
    os.read(0, 1)
    os._exit(0)
server.run("SELECT 1")
print(server.folder, (server.folder / "pid").read_text(), flush=True)
if {waits}:
    signal.pause()
"""


@KINDS
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "its end"])
def test_a_server_ends_with_the_process_that_started_it(kind, how):
    code = OWNER.format(kind=kind.__name__, waits=how != "its end")
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        folder, pid = process.stdout.readline().split()
        if how != "its end":
            assert runs(int(pid))
            process.send_signal(signal.Signals[how])
        process.wait(PATIENCE)
        eventually(lambda: not Path(folder).exists())
        assert not runs(int(pid))


def test_a_server_that_is_not_here_says_what_to_install_or_to_set(tmp_path):
    code = "from tests.servers import Postgres, MariaDB; print(Postgres.missing()); print(MariaDB.missing())"
    environment = os.environ | {"XQ_POSTGRES_BIN": str(tmp_path), "XQ_MARIADB_BIN": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert told.stdout.splitlines() == [
        "there is no initdb here: install PostgreSQL (Debian: apt install postgresql), "
        "or say with XQ_POSTGRES_BIN in which folder it is",
        "there is no mariadb-install-db or mysql_install_db here: install MariaDB "
        "(Debian: apt install mariadb-server), "
        "or say with XQ_MARIADB_BIN in which folder it is",
    ]
