"""What a handler raises to decide what becomes of its task, and the pauses between the attempts at one."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from xq.core.errors import BadType, ConfigurationError, is_number, shown
from xq.core.machine import LONGEST
from xq.core.options import Span
from xq.core.words import lasting

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0  # seconds: the first pause of the default backoff, and its longest
JITTER: Final = 0.1  # of a pause: tasks that failed together are not retried together


class Outcome(Exception):
    """Base class of the exceptions by which a handler decides what becomes of its task."""

    outcome = "failed"  # in metrics and spans


class Retry(Outcome):
    """Release the task, to be tried again after `delay` seconds; None: after the pause of the worker's backoff.

    It counts as an attempt, and is no failure: the log has a line at INFO, and `on_failure` is not called.
    """

    outcome = "retry"

    def __init__(self, delay: float | timedelta | None = None) -> None:
        if delay is not None:
            delay = seconds("xq.Retry(delay=)", delay)
        super().__init__("retry" if delay is None else f"retry in {lasting(delay)}")
        self.delay = delay


class Next(Outcome):
    """Release the task to another tube with fresh attempts, as the next stage of a chain. It is no failure.

    `update` has fields to write, and `delay` the seconds until the next stage. The attempt has failed if the queue
    lacks the role tube, or for a `delay` the feature delayed, or cannot hold a value.
    """

    outcome = "next"

    def __init__(self, tube: str, *, update: Mapping[str, Any] | None = None, delay: Span = None) -> None:
        if not isinstance(tube, str):
            raise BadType(f"xq.Next names a tube by text, not by {shown(tube)}")
        super().__init__(f"next in {tube!r}")
        self.tube, self.update = tube, update
        self.options = {"tube": tube} if delay is None else {"tube": tube, "delay": delay}


class Bury(Outcome):
    """Bury the task at once, with `why` in the role error. Needs the feature buried, else the attempt has failed."""

    outcome = "bury"

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Discard(Outcome):
    """Delete the task: it needs to be done no more. It is counted as a kill."""

    outcome = "discard"


class Suspended(BaseException):
    """Ends an attempt whose function goes on later: xq raises it, and a function lets it pass. It is no failure.

    The worker then moves the task by `event`.
    """

    outcome = "suspended"

    def __init__(self, event: str, options: Mapping[str, Any], brings: Mapping[str, Any], told: str) -> None:
        super().__init__(f"the attempt ends: the task {told}")
        self.event, self.options, self.brings, self.told = event, options, brings, told
        self.update: Mapping[str, Any] | None = None  # fields to write with the move

    def ends(self, error: BaseException | None) -> bool:
        """Return whether a function has ended so that raised `error` in the end (None: it returned)."""
        if isinstance(error, BaseExceptionGroup):  # of a TaskGroup
            return error.split(Suspended)[1] is None
        return error is None or isinstance(error, Suspended)


class ProcessDied(Exception):
    """The error of an attempt whose process crashed or was killed (`kind="process"`). No function raises it."""


def outcome_of(error: BaseException) -> str:
    """Return how an attempt has ended whose function has raised."""
    return error.outcome if isinstance(error, (Outcome, Suspended)) else "failed"


def seconds(name: str, given: object) -> float:
    """Return seconds from 0 on. Raises ConfigurationError."""
    given = given.total_seconds() if isinstance(given, timedelta) else given
    if not is_number(given) or not 0 <= given <= LONGEST:
        raise ConfigurationError(f"{name} is a number of seconds from 0 on, not {shown(given)}")
    return float(given)


class Backoff:
    """The pauses between the attempts at a task, in seconds.

    `given` is None (1 s, doubled by each attempt, at most an hour, and up to a tenth more or less), a number or a
    timedelta (the same each time), a list (the pause after the first attempt, after the second ..., and the last one
    from then on), or a function of the task and its exception. Raises ConfigurationError for anything else.
    """

    def __init__(self, given: object) -> None:
        self._function: Callable[..., Any] | None = given if callable(given) else None
        self._pauses: list[float] = []
        given = [given] if is_number(given) or isinstance(given, timedelta) else given
        if given is not None and not callable(given):
            if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not given:
                raise ConfigurationError(
                    f"backoff is seconds, a list of them, or a function of a task and its exception, not {shown(given)}"
                )
            self._pauses = [seconds("each pause of backoff", each) for each in given]

    def pause(self, task: Any, attempt: int, error: BaseException, log: logging.Logger) -> float:
        """Return the pause after attempt number `attempt` (0: not counted). A function that fails gives the default."""
        if self._function is not None:
            try:
                return seconds("what the function of backoff returns", self._function(task, error))
            except Exception as mistake:
                log.error("the default pause is used, since the function of backoff failed: %s", mistake)
        if self._pauses:
            return self._pauses[min(max(attempt, 1), len(self._pauses)) - 1]
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(max(attempt, 1) - 1, 20)) * random.uniform(
            1 - JITTER, 1 + JITTER
        )
