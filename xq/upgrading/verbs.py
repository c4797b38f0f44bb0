"""Attach a queue's methods to its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final

from xq.api import Queue
from xq.core.connections import TaskModel
from xq.core.errors import BadType, ConfigurationError, shown

VERBS: Final = (
    *("put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "wait", "stats", "queue_stats"),
    "cancel",  # last: the newest. A model that has such an attribute already keeps it
)
OF_MANY: Final = tuple(name for name in dir(Queue) if name.endswith("_many"))  # only the queue has them
TABLE_VERBS: Final = ("take", "plow", "stats", "queue_stats")  # they concern the table, also when called on an instance


class Verb:
    """A queue's method on the model, as in `Page.ack(key)`, and on an instance without the key: `page.ack()`.

    For those in OF_MANY its AttributeError names the queue, which alone has them.
    """

    def __init__(self, queue: Queue[Any], name: str) -> None:
        self.queue = queue
        self.name = name
        self._method = getattr(queue, name)
        self._of_table = name in TABLE_VERBS

    def __get__(self, instance: object, owner: type) -> Any:
        if (name := self.name) in OF_MANY:
            raise AttributeError(f"{owner.__name__} has no {name}(), and its queue has: {owner.__name__}.xq.{name}()")
        if owner is not self.queue.model and not self.queue.parts.store.is_mine(owner):
            raise ConfigurationError(
                f"{owner.__name__} inherits {self.name}() from the queue {self.queue.parts.store.name}, "
                f"whose table is another: upgrade {owner.__name__} itself"
            )
        return self._method if instance is None or self._of_table else MethodType(self._of_task, instance)

    def _of_task(self, task: object, *more: Any, **options: Any) -> Any:
        if more and self.name not in ("touch", "wait"):
            raise BadType(f"task.{self.name}() goes without the key; with a key, call {self.name}(key) of the model")
        return self._method(task, *more, **options)


@dataclass(frozen=True)
class QueueAttribute:
    """The attribute `Model.xq`. Raises ConfigurationError on a subclass that has another table."""

    queue: Queue[Any]

    def __get__(self, instance: object, owner: type) -> Queue[Any]:
        if not self.queue.parts.store.is_mine(owner):
            raise ConfigurationError(
                f"{owner.__name__}.xq is that of {self.queue.parts.store.name}, whose table is another: "
                f"upgrade {owner.__name__} itself"
            )
        return self.queue


def attach(store: TaskModel[Any], queue: Queue[Any], methods: bool | Sequence[str]) -> None:
    if not isinstance(methods, (bool, tuple, list)):
        raise ConfigurationError(f"methods is True, False, or a tuple of names, not {shown(methods)}")
    wanted = () if methods is False else VERBS if methods is True else tuple(methods)
    for name in wanted:
        if not isinstance(name, str) or name not in VERBS:
            raise ConfigurationError(f"methods: there is no method {shown(name)}: there are {', '.join(VERBS)}")
    for name in ("xq", *wanted):
        if any(isinstance(vars(base).get(name), (Verb, QueueAttribute)) for base in store.model.__mro__):
            continue  # inherited from a queue with another table: replace it
        taken = store.attribute(name)
        if taken and name == "cancel" and methods is True:
            wanted = wanted[:-1]
        elif taken:
            raise ConfigurationError(
                f"{store.name}.{name} is {taken} already, and the method {name}() would hide it: "
                f"pass methods=False and use the queue that upgrade returns, or methods=(...) with those you want"
            )
    store.attach("xq", QueueAttribute(queue))
    for name in wanted:
        store.attach(name, Verb(queue, name))
    for name in OF_MANY if methods is True else ():
        if not store.attribute(name):
            store.attach(name, Verb(queue, name))
