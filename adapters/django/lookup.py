"""Which models are queues, and where."""

from __future__ import annotations

from typing import Any

from django.apps import apps

from xq.handle import Queue
from xq.methods import QueueAttribute


def queue_of(model: Any) -> Queue[Any] | None:
    """The queue that a model is, if it is one. A proxy is none: it shares that of its `_meta.concrete_model`."""
    found = vars(model).get("xq")
    return found.handle if isinstance(found, QueueAttribute) else None


def queues() -> list[Queue[Any]]:
    """All queues among the models of the installed apps, in their order."""
    return [queue for queue in map(queue_of, apps.get_models()) if queue is not None]


def alias_of(queue: Queue[Any]) -> str:
    """The alias of the database that a queue is on now."""
    return queue.store.alias  # type: ignore[attr-defined]  # of a DjangoStore
