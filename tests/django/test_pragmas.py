"""What xq leaves of a connection of Django's as the application has it."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_connection_that_a_queue_has_used_has_no_recursive_triggers(make):
    Task = make({"keep": True})
    Task.put({"name": "one"})
    Task.take().ack()
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA recursive_triggers").fetchone() == (0,)
