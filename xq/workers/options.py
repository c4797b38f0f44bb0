"""The options that `Queue.worker` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from xq.core.errors import ConfigurationError, is_integer, is_number, shown
from xq.core.machine import LONGEST
from xq.workers.concurrency import Concurrency
from xq.workers.outcomes import Backoff

WorkerKind = Literal["thread", "process", "asyncio"]
HIGHEST = 1_000_000  # what an option may count to


class ForEach(TypedDict, total=False):
    """The options without batch and session, which decide the function's arguments, for type checkers."""

    tube: str | None
    workers: int
    kind: WorkerKind
    max_attempts: int | None
    backoff: Any
    timeout: float | None
    prefetch: int
    concurrency: Concurrency | None
    around: Callable[..., Any] | None


class WorkerOptions(ForEach, total=False):
    """The options without session, for type checkers."""

    batch: int | None


@dataclass(frozen=True, slots=True)
class Options:
    """A worker's options, as `Queue.worker` documents them. Raises ConfigurationError."""

    tube: str | None = None
    workers: int = 1
    kind: str = "thread"
    max_attempts: int | None = None
    backoff: Any = None
    timeout: float | None = None
    prefetch: int = 1
    batch: int | None = None
    concurrency: Concurrency | None = None
    session: Any = None  # a sessionmaker or a scoped_session of SQLAlchemy
    around: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "max_attempts", "prefetch", "batch"):
            number = getattr(self, name)
            if number is None and name in ("max_attempts", "batch"):
                continue
            if not is_integer(number) or not 0 < number <= HIGHEST:
                raise ConfigurationError(f"{name} is a number from 1 to {HIGHEST:,}, not {shown(number)}")
        if self.timeout is not None and not (is_number(self.timeout) and 0 < self.timeout <= LONGEST):
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {shown(self.timeout)}")
        if self.concurrency is not None and not isinstance(self.concurrency, Concurrency):
            raise ConfigurationError(f'concurrency is an xq.Concurrency("name", n), not {shown(self.concurrency)}')
        if self.batch and self.prefetch > 1:
            raise ConfigurationError("batch= does not go with prefetch=: a batch is taken as a whole")
        Backoff(self.backoff)


USUAL = Options()
