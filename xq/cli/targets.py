"""Find what a TARGET names: a queue of a Python module, or of a table in a database."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import typer

from xq.cli.output import Failure
from xq.core.errors import BadValue, Error, shown
from xq.core.ports import ErrorKind

if TYPE_CHECKING:
    from xq.handle import Queue

ADAPTERS = "xq.targets"  # the group of entry points by which adapters find what a target names


def found(text: str) -> Any:
    """Return the object that `module:name.name` names, looked up from the working directory; or of an adapter."""
    if "://" in text:
        raise typer.BadParameter(
            "a table of a database has no function: name one, as in xq worker module:function --queue URL#table"
        )
    module, colon, path = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    with errors_end_the_program():
        for adapter in entry_points(group=ADAPTERS):
            if (model := adapter.load()(text)) is not None:
                return model
    if not colon or not module or not path:
        raise typer.BadParameter(
            f"a target is module:Model, as app.models:Page, or sqlite:///app.db#page, or shop.Order where "
            f"DJANGO_SETTINGS_MODULE is set; not {shown(text)}"
        )
    try:
        thing: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise Failure(f"there is no module {shown(error.name)}, seen from this directory") from error
    except Error as error:
        raise Failure(f"{module} cannot be imported: {error}") from error
    for name in path.split("."):
        if not hasattr(thing, name):
            raise Failure(f"{shown(module)} has no {shown(path)}")
        thing = getattr(thing, name)
    return thing


def queue_in(thing: Any, text: str) -> Queue[Any]:
    """Return the queue of a model, of a queue's handle, of a tube or of a worker."""
    from xq.handle import Queue
    from xq.runtime.workers.worker import Worker

    for each in (thing, getattr(thing, "xq", None), getattr(getattr(thing, "model", None), "xq", None)):
        if isinstance(each, Queue):
            return each
        if isinstance(each, Worker):
            return each.queue
    raise Failure(
        f"{shown(text)} is not a queue: upgrade the model by xq.upgrade(), or @xq.queue. "
        "For a plain function there is xq worker module:function --queue module:Model"
    )


def queue_named(text: str) -> Queue[Any]:
    """Return the queue that a target names: of a module, or of a table in the database of a URL."""
    if "://" not in text:
        return queue_in(found(text), text)
    from xq.adapters.peewee.tables import queue_of

    where, _, table = text.partition("#")
    with errors_end_the_program():
        return queue_of(where, table)


@contextmanager
def errors_end_the_program() -> Iterator[None]:
    """End the program with a message if the block raises an error of xq."""
    try:
        yield
    except Error as error:
        raise Failure(str(error)) from error


@contextmanager
def queue(text: str) -> Iterator[Queue[Any]]:
    """Find a queue, and use it with a connection of its own. Its errors end the program with a message."""
    with connected(queue_named(text)) as found:
        yield found


@contextmanager
def connected(target: Queue[Any]) -> Iterator[Queue[Any]]:
    """Use a queue with a connection of its own. Its errors end the program with a message."""
    store = target.adapter.store
    try:
        with store.briefly_connected():
            yield target
    except Error as error:
        raise Failure(str(error)) from error
    except Exception as error:
        if store.classify(error) is ErrorKind.NOT_DATABASE:
            raise
        raise Failure(f"the database of {target.name} fails: {error}") from error


@contextmanager
def wrong_use() -> Iterator[None]:
    """End the program with 2 for a key, a filter or a cursor that is none."""
    try:
        yield
    except BadValue as error:
        raise typer.BadParameter(str(error)) from error


def key_of(target: Queue[Any], text: str) -> Any:
    """Return a key as the application has it."""
    with wrong_use():
        return target.adapter.tasks.key_in_text(text)
