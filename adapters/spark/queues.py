"""Which queue is meant, or which queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import xq
from xq.core.errors import BadType, BadValue, shown


def queue_of(of: object) -> xq.Queue[Any]:
    """The queue of a model, of a tube, or the one that is given. Raises BadType."""
    for found in (of, getattr(of, "xq", None), getattr(getattr(of, "model", None), "xq", None)):
        if isinstance(found, xq.Queue):
            return found
    raise BadType(f"{shown(of)} is no queue: give a model that was upgraded, its xq, or a tube")


def check_session(spark: object) -> None:
    """Raise BadType for what is no session of Spark's, of whichever kind, and BadValue for one that was stopped."""
    if not callable(getattr(spark, "createDataFrame", None)):
        raise BadType(f"a session of Spark comes first, as xq.spark.session() makes one, not {shown(spark)}")
    context: Any = getattr(spark, "sparkContext", None)  # None: it is of Spark Connect
    if getattr(spark, "is_stopped", False) if context is None else context._jsc is None:
        raise BadValue("this session of Spark was stopped: start another, by xq.spark.session()")


def named(queues: object) -> dict[str, object]:
    """One or several queues by their names: those of a mapping, else of the model or the tube.

    Raises BadType, and BadValue where there are none, or two of one name.
    """
    if isinstance(queues, xq.Tubes):
        queues = queues.tube
    if isinstance(queues, Mapping):
        found = dict(queues)
    else:
        single = isinstance(queues, (type, xq.Queue)) or not isinstance(queues, Iterable)
        several: list[Any] = [queues] if single else list(queues)  # type: ignore[call-overload]
        names = [_name(queue) for queue in several]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadValue(f"several queues are called {twice[0]}: name them, as {{'a': {twice[0]}, 'b': ...}}")
        found = dict(zip(names, several, strict=True))
    for name, queue in found.items():
        if not isinstance(name, str):
            raise BadType(f"a queue is named by text, not by {shown(name)}")
        queue_of(queue)
    if not found:
        raise BadValue("there is no queue: give one or several")
    return found


def _name(queue: object) -> str:
    handle = queue_of(queue)
    return handle.name if isinstance(queue, (type, xq.Queue)) else str(getattr(queue, "name", handle.name))
