"""Connections of xq's own beside Peewee's pools."""

from __future__ import annotations

from typing import Any

import pytest
from playhouse import pool

from tests.conftest import SERVERS, database_on, live
from tests.steps import eventually

# Peewee's class, how the server lists the connections to this database but the one that asks, and the number of that.
POOLS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "postgres": (
        pool.PooledPostgresqlDatabase,
        {"prefer_psycopg3": True},
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'",
        "SELECT pg_backend_pid()",
    ),
    "mariadb": (
        pool.PooledMySQLDatabase,
        {"ssl_disabled": True},
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
        "SELECT CONNECTION_ID()",
    ),
}


@pytest.mark.parametrize("kind", POOLS)
def test_to_close_all_connections_of_a_pool_closes_none_of_the_maintenance_thread(kind):
    pooled, options, listing, number = POOLS[kind]
    with database_on(SERVERS[kind]) as (server, name):
        db = pooled(name, host=server.host, port=server.port, user=server.USER, **options)
        looks = server.peewee(name)
        Task = live(db)({"keep": True, "delayed": True}, roles=("runat",))

        def connections() -> set[int]:
            return {found for (found,) in looks.execute_sql(listing).fetchall()}

        Task.put({})
        Task.take().ack()  # from here on there is a maintenance thread
        Task.put({}, delay=0.1)
        eventually(lambda: Task.xq.count("R"))  # which that thread has moved, so it is connected
        before, mine = connections(), db.execute_sql(number).fetchone()[0]
        assert len(before) == 3  # this thread's, the maintenance thread's, and the one that proves that it lives
        db.close_all()
        eventually(lambda: mine not in connections())
        assert connections() == before - {mine}
        assert Task.take().ack().status == "D"
        db.close_all()
        looks.close()
