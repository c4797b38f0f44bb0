"""Sessions of Spark."""

from __future__ import annotations

import xq


def test_a_session_runs_in_utc_and_its_workers_know_xq(spark):
    def version(_):
        import xq

        return xq.__file__

    print(spark.conf.get("spark.sql.session.timeZone"))
    assert spark.sparkContext.parallelize([1], 1).map(version).collect() == [xq.__file__]
