"""Find the models that are queues, and their databases."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.core import checks

from xq.api import Queue
from xq.upgrading.verbs import QueueAttribute

APP: Final = "xq.adapters.django"


def queue_of(model: Any) -> Queue[Any] | None:
    """Return a model's queue, or None. For a proxy use its `_meta.concrete_model`."""
    found = vars(model).get("xq")
    return found.queue if isinstance(found, QueueAttribute) else None


def queues() -> list[Queue[Any]]:
    """Return all queues among the installed apps' models, in their order."""
    return queues_of(apps)


def queues_of(models: Any) -> list[Queue[Any]]:
    """Return the queues among an app's models, by its config, or among all apps' models, by the registry."""
    return [queue for queue in map(queue_of, models.get_models()) if queue is not None]


def alias_of(queue: Queue[Any]) -> str:
    """Return the alias of the queue's current database."""
    return queue.parts.store.alias  # type: ignore[attr-defined]  # a DjangoStore has it


def is_app_missing() -> bool:
    """Return whether INSTALLED_APPS lacks xq's app, once Django has read it."""
    return apps.apps_ready and not apps.is_installed(APP)


def check_app(app_configs: Any, **given: Any) -> list[checks.CheckMessage]:
    """Check that xq's app is installed, if some model is a queue."""
    names = ", ".join(queue.model._meta.label for queue in queues()) if is_app_missing() else ""
    said = f"{names} would be installed by migrate, but {APP!r} is not in INSTALLED_APPS"
    return [checks.Error(said, hint=f"Add {APP!r} to INSTALLED_APPS", id="xq.E013")] if names else []
