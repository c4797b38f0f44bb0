"""A worker in development: started anew whenever the code changes, and with nothing lost that it was working on.

Django's own run_with_reloader has the worker in a thread, which no signal reaches, and kills it where it is told to end
itself. Here the worker stays in the main thread of a child, and a change is to it what SIGTERM is.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, get_child_arguments, get_reloader

CHANGED: Final = 3  # how a child ends that is to be started anew, and how Django's reloader tells of a change
ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PARENT: Final = "XQ_PARENT"  # in a child's environment: the pipe whose other end only its parent has
GRACE = 30.0  # seconds in which what is in hand may be finished: then it is released

log = logging.getLogger("xq")


def run_with_reloader(work: Callable[[], object]) -> None:
    """Do this, which ends at SIGTERM, in a child, and anew whenever the code has changed. Ends the process."""
    parent = os.environ.pop(PARENT, None)  # programs that the work starts are no children of the reloader
    sys.exit(_Parent().run() if parent is None else _watched(work, int(parent)))


def _end_with(parent: int) -> None:
    """End this process, as `kill -9` does, when the other end of this pipe is closed: its parent was killed."""
    os.set_inheritable(parent, False)
    os.read(parent, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _watched(work: Callable[[], object], parent: int) -> int:
    """Do this until it ends by itself or the code has changed. Returns how to end."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    changed = threading.Event()

    def end(number: int, frame: object) -> None:  # before the work has begun to listen, and when it does so no more
        raise SystemExit(0)

    def watch() -> None:
        try:
            get_reloader().run(threading.main_thread())
        except SystemExit:  # of this thread only: it is how the reloader tells
            log.info("the code has changed: the worker ends, and is started anew")
            changed.set()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(GRACE)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=watch, daemon=True).start()
    try:
        work()
    except SystemExit:
        if not changed.is_set():
            raise
    return CHANGED if changed.is_set() else 0


class _Parent:
    """Starts the command again and again in a child, to which it passes on that it shall end."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = self._waits = False
        # Nothing is written to it. The system closes its writing end when this process ends, even by kill -9.
        self._read, self._write = os.pipe()
        os.set_inheritable(self._read, True)

    def run(self) -> int:
        for number in ENDS:
            signal.signal(number, self._end)
        while not self._ended:
            code = self._start()
            if self._ended and -code in ENDS:  # it was told before it had begun to listen
                return 0
            if code <= 0 or self._ended:  # it was done, or was killed
                return code if code >= 0 else 128 - code
            if code != CHANGED:
                log.error("the worker has failed, and is started anew when its code changes")
                self._wait_for_a_change()
        return 0

    def _start(self) -> int:
        environment = {**os.environ, DJANGO_AUTORELOAD_ENV: "true", PARENT: str(self._read)}
        # In a group of its own, where a terminal's ^C does not reach it: it is told once, and by the parent.
        self._child = subprocess.Popen(get_child_arguments(), env=environment, close_fds=False, process_group=0)
        if self._ended:  # told of just before there was one
            self._child.terminate()
        return self._child.wait()

    def _end(self, number: int, frame: object) -> None:
        self._ended = True
        if self._child is None or self._child.poll() is not None:
            if self._waits:
                raise SystemExit(0)
        else:
            self._child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    def _wait_for_a_change(self) -> None:
        self._waits = True
        try:
            if not self._ended:
                get_reloader().run_loop()
        except SystemExit as told:
            if told.code != CHANGED:
                raise
        finally:
            self._waits = False
