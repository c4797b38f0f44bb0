"""xq for Django: an app's models as queues, on Django's own connections.

Importing it does not import Django: the command line loads `targets` where Django may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from xq.api import Queue
from xq.core.clock import Clock
from xq.core.kinds import T
from xq.core.machine import Feature
from xq.upgrading.build import Schedules, as_decorator, build

if TYPE_CHECKING:
    from xq.adapters.django.lookup import queues
    from xq.adapters.django.signals import moved
    from xq.adapters.django.task_fields import TaskFields
    from xq.adapters.django.tasks.backend import aenqueue_many, enqueue_many
    from xq.adapters.django.tasks.options import options
    from xq.adapters.django.tasks.schedules import every
    from xq.features import Features

__all__ = ["TaskFields", "aenqueue_many", "enqueue_many", "every", "moved", "options", "queue", "queues", "upgrade"]

# What is imported at its first use: Django allows no models before it has read INSTALLED_APPS.
LATER: Final = {
    "TaskFields": "task_fields",
    "moved": "signals",
    "queues": "lookup",
    "every": "tasks.schedules",
    "enqueue_many": "tasks.backend",
    "aenqueue_many": "tasks.backend",
    "options": "tasks.options",
}


def __getattr__(name: str) -> Any:
    """Import on first use what LATER names."""
    if name in __all__ and find_spec("django") is None:
        raise ImportError("xq.adapters.django needs Django: pip install '.[django]' in the checkout of xq")
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Features | Mapping[str, Feature] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    schedules: Schedules | None = None,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
    using: str | None = None,
) -> Queue[T]:
    """Make a Django model a queue, as `xq.upgrade` does. Touches no database.

    Fields that `fields` does not map are added to the model, and makemigrations finds them. A DateTimeField with
    auto_now has the role `moved` if no field is named for it. `schedules` are stored when
    a worker starts, not by migrations. `using` is the database's alias; None asks the routers at each call where to
    write. The model's save() writes the queue's fields only if the application has changed them, and so never moves a
    task back. Raises ConfigurationError if the arguments do not fit the model.
    """
    from django.core.checks import register

    from xq.adapters.django.lookup import check_app
    from xq.adapters.django.signals import moved
    from xq.adapters.django.store import DjangoStore

    register(check_app, "xq")  # here, as it says that the app is missing, which registers the others
    store: DjangoStore[Any] = DjangoStore(model, using)
    made = build(
        store,
        store.with_moved(fields),
        features,
        statuses=statuses,
        tube_stats=tube_stats,
        worker=worker,
        workers=workers,
        schedules=schedules,
        methods=methods,
        clock=clock,
    )
    moved.add(made)
    return made


queue = as_decorator(upgrade)
"""Make the decorated model a queue: `@queue(features={"ttr": 60})`. The arguments are those of `upgrade`."""
