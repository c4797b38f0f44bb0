"""xq for Django: models of an app as queues, on Django's own connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xq.adapters.django.lookup import queues
from xq.adapters.django.store import DjangoStore
from xq.build import as_decorator, build
from xq.core.clock import Clock
from xq.queue import Queue

if TYPE_CHECKING:
    from xq.adapters.django.task_fields import TaskFields

T = TypeVar("T")

__all__ = ["TaskFields", "queue", "queues", "upgrade"]


def __getattr__(name: str) -> Any:
    """`TaskFields`, imported when it is first asked for: Django allows no model before it has read INSTALLED_APPS."""
    if name == "TaskFields":
        from xq.adapters.django.task_fields import TaskFields

        return TaskFields
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
    using: str | None = None,
) -> Queue[T]:
    """Give a model of Django's the power of a queue; as `xq.upgrade`. Touches no database.

    A model that inherits from `TaskFields` needs no `fields`, as one of Peewee's that inherits from `xq.Task`.
    `using` is the alias of the database; None is the one that the routers name for writes, at each call. save() of the
    model writes of the queue's fields what the application has changed, and so never moves a task back. Raises
    ConfigurationError, which says what does not fit.
    """
    store: DjangoStore[Any] = DjangoStore(model, using)
    handle: Queue[T] = build(
        store,
        fields,
        features,
        statuses=statuses,
        tube_stats=tube_stats,
        worker=worker,
        workers=workers,
        methods=methods,
        clock=clock,
    )
    store.guard(handle.roles.values())
    return handle


def queue(
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[type[T]], type[T]]:
    """upgrade, as a class decorator: `@queue(fields={"status": "status"}, features={"keep": True})`."""
    return as_decorator(upgrade, fields, features, options)
