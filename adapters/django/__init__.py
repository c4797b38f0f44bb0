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
    """Import `TaskFields` on first use: Django allows no models before it has read INSTALLED_APPS."""
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
    """Make a queue of a Django model, as `xq.upgrade` does. Touches no database.

    A model that inherits from `TaskFields` needs no `fields`. `using` is the alias of the database; None asks the
    routers at each call for the database of writes. save() of the model writes the queue's fields only if the
    application has changed them, and so never moves a task back. Raises ConfigurationError if the arguments do not fit
    the model.
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
    """Make a queue of a class, as a decorator: `@queue(fields={"status": "status"}, features={"keep": True})`."""
    return as_decorator(upgrade, fields, features, options)
