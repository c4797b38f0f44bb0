"""Which models are queues, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import apps
from django.core import checks

from xq.queue import Queue
from xq.verbs import QueueAttribute

APP: Final = "xq.adapters.django"


def queue_of(model: Any) -> Queue[Any] | None:
    """The queue that a model is, if it is one. A proxy is none: it shares that of its `_meta.concrete_model`."""
    found = vars(model).get("xq")
    return found.handle if isinstance(found, QueueAttribute) else None


def queues() -> list[Queue[Any]]:
    """All queues among the models of the installed apps, in their order."""
    return [queue for queue in map(queue_of, apps.get_models()) if queue is not None]


def alias_of(queue: Queue[Any]) -> str:
    """The alias of the database that a queue is on now."""
    return queue.adapter.store.alias  # type: ignore[attr-defined]  # of a DjangoStore


def is_app_missing() -> bool:
    """Whether INSTALLED_APPS lack the app of xq, once Django has read them."""
    return apps.apps_ready and not apps.is_installed(APP)


@checks.register("xq")  # as a queue is made, for no AppConfig does it where the app is missing
def check_app(app_configs: Sequence[Any] | None, **given: Any) -> list[checks.CheckMessage]:
    """Warn of queues on models of other apps where the app of xq is missing. A program may mean it."""
    if not (is_app_missing() and (found := queues())):
        return []
    names = ", ".join(str(queue.model._meta.label) for queue in found)
    said = f"the models {names} are queues, and INSTALLED_APPS lack {APP!r}, which has their commands and migrations"
    return [checks.Warning(said, hint=f"Add {APP!r} to INSTALLED_APPS", id="xq.W007")]
