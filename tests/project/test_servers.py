"""The throwaway servers that the tests are run on."""

from __future__ import annotations

from pathlib import Path

import peewee as pw
import pytest

from tests.servers import MariaDB, Postgres

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=[Postgres, MariaDB], ids=lambda kind: kind.NAME)
def kind(request):
    if reason := request.param.missing():
        pytest.skip(reason)
    return request.param


def test_a_server_that_is_stopped_or_crashes_is_there_again_on_its_port_with_its_data(kind):
    with kind() as server:
        server.create("app")
        database, port = server.peewee("app"), server.port
        database.execute_sql("CREATE TABLE t (a int)")
        database.execute_sql("INSERT INTO t VALUES (7)")
        for how in kind.STOPS:
            server.stop(how)
            database.close()
            with pytest.raises(pw.OperationalError):
                database.connect()
            server.start()
            assert list(database.execute_sql("SELECT a FROM t").fetchall()) == [(7,)]
        database.close()
        assert server.port == port
    assert not server.folder.exists()
