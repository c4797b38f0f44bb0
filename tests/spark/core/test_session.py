"""Sessions of Spark."""

from __future__ import annotations


def test_a_session_has_the_settings_that_it_was_asked_for_and_is_otherwise_in_utc(spark):
    names = ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
    assert [spark.conf.get(name) for name in names] == ["local[2]", "2", "UTC"], "as the fixture asked"
