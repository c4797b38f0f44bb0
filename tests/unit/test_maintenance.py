"""The maintenance thread, without a database."""

from __future__ import annotations

import logging
from threading import Event
from types import SimpleNamespace
from typing import Any

from tests.timing import in_sequence
from xq.runtime.maintenance import PAUSE, RETRY, RETRY_MOST, MaintenanceThread


@in_sequence
def test_the_pause_after_a_failure_doubles_up_to_a_limit_and_begins_anew_after_a_success(caplog):
    caplog.set_level(logging.INFO, logger="xq")
    fails = iter([True] * 6 + [False] * 2 + [True, False])
    pauses: list[float] = []

    def replaced() -> bool:
        if next(fails):
            raise OSError(f"failure {len(pauses)}")
        return False

    database = Event()  # any object
    none: Any = None
    notifier: Any = SimpleNamespace(replaced=replaced, wait=lambda seconds, eagerly: False)
    thread = MaintenanceThread(database, notifier, list, sessions=none, timer=none)
    vars(thread)["_hurry"] = SimpleNamespace(wait=pauses.append, clear=lambda: None)
    for _ in range(10):
        assert thread._wait_and_work()
    assert pauses == [RETRY, 1.0, 2.0, 4.0, RETRY_MOST, RETRY_MOST, PAUSE, PAUSE, RETRY, PAUSE]
    failed, works = "the maintenance thread failed, and retries: failure", "the maintenance thread works again"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"{failed} 0"),
        ("INFO", works),
        ("WARNING", f"{failed} 8"),
        ("INFO", works),
    ]
