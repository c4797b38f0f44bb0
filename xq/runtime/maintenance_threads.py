"""The maintenance threads of this process: their start, their end, and what a fork and the exit do with them."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet, finalize

from xq.runtime.maintenance import RETRY, MaintenanceThread
from xq.sessions import session as sessions
from xq.sessions.forking import at_fork
from xq.sessions.liveness import members_of
from xq.sessions.session import Sessions

if TYPE_CHECKING:
    from xq.runtime.queue_maintenance import QueueMaintenance

log = logging.getLogger("xq")

LEAVING = 60.0  # seconds that `leave` waits for the thread to end

queues: WeakSet[QueueMaintenance] = WeakSet()  # of this process
_threads: WeakKeyDictionary[Any, MaintenanceThread] = WeakKeyDictionary()  # by database
_starting = threading.RLock()
_kept_out: list[MaintenanceThread] = []  # stopped between two cycles while this process forks


def queues_of(mine: Sessions) -> list[QueueMaintenance]:
    return [queue for queue in members_of(queues) if queue.sessions is mine]


def thread_of(queue: QueueMaintenance) -> MaintenanceThread | None:
    """Return the maintenance thread for the database of a queue, started if necessary; None if there can be none."""
    database = queue.database.store.database
    with _starting:
        thread = _threads.get(database)
        if thread is None or not thread.thread.is_alive():
            mine = queue.database.open().sessions
            try:
                notifier = queue.database.dialect.notifier(queue.database.store)
            except OSError as error:
                log.warning("no thread can maintain %s: %s", queue.source_name, error)
                return None
            if notifier is None or database is None:
                return None
            thread = _threads[database] = MaintenanceThread(database, notifier, partial(queues_of, mine), mine)
            finalize(database, thread.end).atexit = False
            thread.thread.start()
    return thread


def threads() -> dict[Any, MaintenanceThread]:
    """Return the maintenance threads of this process, by database."""
    return dict(members_of(_threads.items()))


def is_paused(database: object) -> bool:
    """Return whether the thread of a database has paused because that is read-only. If so, wake it to check again."""
    thread = _threads.get(database)
    if thread is None or not thread.paused or not thread.thread.is_alive():
        return False
    thread.call_for(thread.read_records)
    return True


def leave(database: object) -> None:
    """End the sessions, the thread and their connections of this process for a database. The next call begins anew."""
    mine = sessions.of(database)
    liveness = mine.liveness
    try:
        mine.exit()
    except Exception as error:
        log.debug("a session could not be ended: %s", error)
    with _starting:
        thread = _threads.pop(database, None)
    if thread is not None:
        thread.end()
        thread.thread.join(LEAVING)
    for queue in queues_of(mine):
        queue.leave()
    if liveness is not None:
        liveness.close()


def _before_exit() -> None:
    """End the maintenance threads, so that none dies in the middle of a statement or leaves its connection open."""
    ending = members_of(_threads.values())
    for thread in ending:
        thread.end()
    for thread in ending:
        thread.thread.join(RETRY)


sessions.before_exit.append(_before_exit)


def _before_fork() -> None:
    """Stop the maintenance threads between two cycles, so that none uses the database or holds a lock in the fork."""
    _kept_out.extend(thread for thread in members_of(_threads.values()) if thread.working.acquire(timeout=RETRY))
    _starting.acquire()


def _after_fork_in_parent() -> None:
    _starting.release()
    while _kept_out:
        _kept_out.pop().working.release()


def _after_fork_in_child() -> None:
    global _starting, _threads
    _kept_out.clear()
    for thread in members_of(_threads.values()):
        thread.disown()
    _starting, _threads = threading.RLock(), WeakKeyDictionary()
    for queue in members_of(queues):
        queue.forked()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
at_fork("threads", _after_fork_in_child)
