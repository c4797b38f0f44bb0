"""Find the queues that an argument names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import xq
from xq.api import queue_of
from xq.core.connections import Address
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.pipeline.scan import Extract, What

LOCAL = "local"  # how a master's name begins if its workers run on this machine


def check_session(spark: object, *queues: xq.Queue[Any]) -> None:
    """Raise BadType for an object that is not a Spark session, and BadValue for a stopped session.

    Raises ConfigurationError if its workers cannot reach a queue.
    """
    if not callable(getattr(spark, "createDataFrame", None)):
        raise BadType(f"the first argument is a Spark session, see xq.spark.session(), not {shown(spark)}")
    context = context_of(spark)
    if getattr(spark, "is_stopped", False) if context is None else context._jsc is None:
        raise BadValue("this session of Spark was stopped: start another, by xq.spark.session()")
    for queue in queues:
        check_reach(master_of(spark), queue.parts.store.address())


def extract_of(queue: object, what: What, read_from: str | None = None, states: str = "") -> Extract:
    """Return what reads a queue, from a replica if its URL is given. Raises as `Extract.on_replica`."""
    extract = queue_of(queue).pipeline.extract(what, states)
    return extract if read_from is None else extract.on_replica(read_from)


def context_of(spark: object) -> Any:
    """Return a session's SparkContext, None with Spark Connect."""
    return getattr(spark, "sparkContext", None)


def not_connected(what: str) -> ConfigurationError:
    """Return the error for what needs Spark in this process, which Spark Connect has in a server."""
    return ConfigurationError(f"{what} do not work with Spark Connect: start another session for them")


def master_of(spark: Any) -> str:
    """Return a session's master; with Spark Connect, the server's."""
    return str(spark.conf.get("spark.master", LOCAL))


@contextmanager
def settings(spark: Any, wanted: Mapping[str, str]) -> Iterator[None]:
    """Give a session other settings meanwhile, whoever made it."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def check_reach(master: str, address: Address) -> None:
    """Raise ConfigurationError if this master's workers cannot reach the database."""
    if address.engine == "sqlite" and not master.startswith(LOCAL):
        raise ConfigurationError(
            f"the queue is in a file of SQLite, which the workers of {master} do not see on other machines: use a "
            "session on this machine, xq.spark.session(master='local[*]'), or a queue on PostgreSQL or MariaDB"
        )


def named(queues: object) -> dict[str, object]:
    """Return one or several queues by name: a mapping's keys, else the names of models or tubes.

    Raises BadType, and BadValue if there are none, or two with one name.
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
        raise BadValue("no queue is given: give one or several")
    return found


def _name(queue: object) -> str:
    handle = queue_of(queue)
    return handle.name if isinstance(queue, (type, xq.Queue)) else str(getattr(queue, "name", handle.name))
