"""A command's TARGET, which names a queue."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

from typer import BadParameter, echo

from xq.core.errors import BadType, BadValue, Error, shown

if TYPE_CHECKING:  # else it is imported when a command runs: --help does without
    from xq import api

Queue: TypeAlias = "api.Queue[Any]"

ADAPTERS = "xq.targets"  # the entry point group by which adapters find what a target names
ANSWERS = 10.0  # seconds within which a database must have answered
ON_THE_WAY = (__file__, pkgutil.__file__, importlib.__file__)  # the files in which importing a target begins


def found(text: str) -> Any:
    """Return the object that `module:name.name` names, looked up from the working directory; or an adapter's object."""
    sys.path[:0] = [] if "" in sys.path else [""]
    try:
        for adapter in entry_points(group=ADAPTERS):
            if (model := adapter.load()(text)) is not None:
                return model
        return pkgutil.resolve_name(text)
    except Error:
        raise
    except Exception as error:
        if str(error).startswith("invalid format"):
            raise BadParameter(
                "a target is module:Model, as app.models:Page, or sqlite:///app.db#page, or shop.Order where "
                f"DJANGO_SETTINGS_MODULE is set; not {shown(text)}. A table of a database has no function: "
                "name one, as in xq worker module:function --queue URL#table"
            ) from error
        places = traceback.extract_tb(error.__traceback__)
        within = [each for each in places if each.filename not in ON_THE_WAY and not each.filename.startswith("<")]
        at = f" ({within[-1].filename}, line {within[-1].lineno})" if within else ""
        what = f"{text} cannot be imported from this directory: {type(error).__name__}: {error}{at}"
        raise BadValue(what) from error


def queue_in(thing: Any, text: str) -> Queue:
    """Return the queue for a model, a queue's handle, a tube or a worker."""
    from xq.api import queue_of
    from xq.workers.worker import Worker

    try:
        return queue_of(thing.queue if isinstance(thing, Worker) else thing)
    except BadType:
        raise BadValue(
            f"{shown(text)} is not a queue: upgrade the model by xq.upgrade(), or @xq.queue. "
            "For a plain function there is xq worker module:function --queue module:Model"
        ) from None


def queue_named(text: str) -> Queue:
    """Return the queue that a target names: in a module, or by a table in a URL's database."""
    if "://" not in text:
        return queue_in(found(text), text)
    from xq.adapters.peewee.plain import queue_of

    where, _, table = text.partition("#")
    return queue_of(where, table)


def all_of(text: str, or_none: bool = False, keep: bool = False) -> list[Queue]:
    """Return a target's queue; for a database URL all that it has, and `keep` it open. Print what is left out."""
    if "://" not in text or "#" in text:
        return [queue_named(text)]
    from xq.adapters.peewee.plain import queues_of

    _, queues, left_out = queues_of(text, keep)
    for name, why in left_out.items():
        echo(f"{name} is left out: {why}", err=True)
    return queues if queues or or_none else [queue_named(text)]  # which says what is missing


def public(text: str) -> str:
    """Return a target without a URL's password."""
    from xq.adapters.peewee.urls import without_password

    return without_password(text)


@contextmanager
def connected(target: Queue | str) -> Iterator[Queue]:
    """Use a queue, or the one that a target names, with its own connection. Raises BadParameter and Error."""
    from xq.core.ending import Late, within
    from xq.core.kinds import REFUSALS, ErrorKind

    queue = queue_named(target) if isinstance(target, str) else target
    store = queue.parts.store
    try:
        with ExitStack() as stack:
            with within(ANSWERS):  # also where the ORM's connections have no limit of their own
                stack.enter_context(store.briefly_connected())
                store.ready()
            yield queue
    except Late as error:
        raise Error(f"the database of {queue.name} fails: {error}") from None
    except BadValue as error:
        raise BadParameter(str(error)) from error
    except Exception as error:
        if isinstance(error, (Error, BrokenPipeError)) or (kind := store.classify(error)) is ErrorKind.NOT_DATABASE:
            raise
        what = "table of {} does not accept the task" if kind in REFUSALS else "database of {} fails"
        # MariaDB has a number before the reason, PostgreSQL the row behind it.
        why = str(error.args[-1] if error.args else error).partition("\n")[0]
        raise Error(f"the {what.format(queue.name)}: {why}") from error


def key_of(queue: Queue, text: str | None) -> Any:
    """Return a key as the application has it; None if there is none."""
    from xq.operators.keys import key_in_text

    return None if text is None else key_in_text(queue.parts.tasks, text)
