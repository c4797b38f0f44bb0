from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Self, Unpack, overload

from xq.api import Queue
from xq.core.options import Moves, PutOptions, Span, Times
from xq.engine.stats import Stats

Update = Mapping[str, Any] | None

class Verbs:
    """What `upgrade` adds to a model, for type checkers. On an instance the methods go without its key."""

    xq: ClassVar[Queue[Self]]
    id: Any  # unless the model has another key

    @overload
    @classmethod
    def put(cls, task: object = ..., *, wait: Span, **options: Unpack[PutOptions]) -> tuple[Self, bool]: ...
    @overload
    @classmethod
    def put(cls, task: object = ..., *, timeout: Span = ..., **options: Unpack[PutOptions]) -> Self: ...
    @classmethod
    def take(cls, timeout: Span = ..., *, tube: str | None = ..., **options: Unpack[Times]) -> Self | None: ...
    @classmethod
    def ack(cls, key: object = ..., *, update: Update = ..., **options: Unpack[Times]) -> Self: ...
    @classmethod
    def release(cls, key: object = ..., *, update: Update = ..., **options: Unpack[Moves]) -> Self: ...
    @classmethod
    def bury(cls, key: object = ..., *, update: Update = ...) -> Self: ...
    @overload
    @classmethod
    def dig(cls, key: object = ..., *, update: Update = ..., **options: Unpack[Moves]) -> Self: ...
    @overload
    @classmethod
    def dig(cls, *, n: int | None, update: Update = ..., **options: Unpack[Moves]) -> list[Self]: ...

    kick = dig

    @classmethod
    def plow(cls, n: int | None = ..., *, update: Update = ..., **options: Unpack[Moves]) -> list[Self]: ...
    @classmethod
    def kill(cls, key: object = ...) -> Self: ...
    @classmethod
    def cancel(cls, key: object = ..., to: str | int | None = ...) -> Self: ...
    @classmethod
    def touch(cls, key: object = ..., increment: float | timedelta | None = ..., *, update: Update = ...) -> Self: ...
    @classmethod
    def wait(cls, key: object = ..., timeout: Span = ...) -> tuple[Self, bool]: ...
    @classmethod
    def stats(cls, pretty: bool = ...) -> Stats: ...

    queue_stats = stats
