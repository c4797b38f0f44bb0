"""MariaDB is killed again and again amid storms: what xq installs on the application's table stays whole.

The queues have what InnoDB has damaged before: indexes of columns that it makes of others, for `unique` and `utube`.
`XQ_STORM_KILLS=200` kills the server so often.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import ON_MARIADB
from tests.storm import ISOLATIONS, SERVERS, Storm, ground, plan

KILLS = int(os.environ.get("XQ_STORM_KILLS", "3"))
EACH = 5  # kills of the server in one storm
TASKS = 60  # that are put between two of them, about
STORMS = [(number, min(EACH, KILLS - number * EACH)) for number in range(-(-KILLS // EACH))]


@ON_MARIADB
@pytest.mark.parametrize(("number", "kills"), STORMS)
def test_no_table_is_damaged_when_the_server_is_killed(number, kills, tmp_path):
    if reason := SERVERS["mariadb"].missing():
        pytest.skip(reason)
    isolation = ISOLATIONS[number % len(ISOLATIONS)]
    of = plan(
        f"mariadb {number}",
        4,
        TASKS * kills,
        kills=1,
        stops=0,
        restarts=kills,
        isolation=isolation,
        always=("unique", "utube"),
    )
    with ground("mariadb", tmp_path, isolation) as (db, server):
        report = Storm(db, of, tmp_path, server=server, stops=["immediate"]).run()  # asks for damages after each kill
    assert report.violations == []
    assert report.restarts == ["immediate"] * kills
