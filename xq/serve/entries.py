"""The queues that a console shows, their names in URLs, and calls on them in threads with a connection."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from xq.core.errors import (
    BadType,
    BadValue,
    ConfigurationError,
    Error,
    FeatureOff,
    NotFound,
    NotInstalled,
    NotOwner,
    NotRunning,
    WrongState,
    shown,
)
from xq.core.ports import ErrorKind, fits_a_column
from xq.handle import Queue
from xq.serve.rights import Refusal

R = TypeVar("R")

THREADS: Final = 8  # calls on databases at a time
OPERATIONS: Final = 2  # operations at a time; others wait for their turn
PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(frozen=True)
class Entry:
    """One queue of the console. `slug` is its name in URLs: names of tubes may have slashes and quotes."""

    slug: str
    name: str
    queue: Queue[Any]
    is_tube: bool = False

    @cached_property
    def states(self) -> tuple[str, ...]:
        return tuple(self.queue.machine.states)

    @property
    def keeps_history(self) -> bool:
        return self.queue.machine.settings.history is not None

    def fields(self, task: Any) -> dict[str, Any]:
        """Return the fields of a task by name, in whatever form the feature retval gives it."""
        return dict(self.queue.adapter.tasks.data(task))

    def state_of(self, fields: dict[str, Any]) -> str | None:
        """Return the letter of the state that a status field means; None if the row is no task."""
        return self.queue.adapter.state_of(fields.get(self.queue.roles["status"]))

    def key_text(self, fields: dict[str, Any]) -> str:
        """Return the key of a task as text, which `key` reads."""
        adapter = self.queue.adapter
        return adapter.tasks.key_as_text([fields[name] for name in adapter.store.key])

    def key(self, text: str) -> Any:
        """Return a key as the application has it. Raises Refusal."""
        try:
            return self.queue.adapter.tasks.key_in_text(text)
        except BadValue as error:
            raise Refusal(404, f"{error}.") from error


def entries_of(given: object) -> tuple[Entry, ...]:
    """Return the queues of models, of handles and of tubes, or of a mapping from names. Raises BadType and BadValue."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        given = [given]
    named = given.items() if isinstance(given, Mapping) else ((None, each) for each in given)
    found: dict[str, Entry] = {}
    for name, each in named:
        entry = _entry(each, name)
        if any(entry.queue is other.queue for other in found.values()):
            continue
        slug, n = entry.slug, 1
        while slug in found:
            n += 1
            slug = f"{entry.slug}-{n}"
        found[slug] = Entry(slug, entry.name, entry.queue, entry.is_tube)
    if not found:
        raise BadValue("a console shows at least one queue: xq.serve.app([Page])")
    return tuple(found.values())


def _entry(thing: Any, called: object = None) -> Entry:
    if called is not None and (not isinstance(called, str) or not called or not fits_a_column(called)):
        raise BadType(f"a queue is named by text, not by {shown(called)}")
    model = getattr(thing, "model", None)
    for each, name, is_tube in (
        (thing, None, False),
        (getattr(thing, "xq", None), None, False),
        (getattr(model, "xq", None), getattr(thing, "name", None), True),
    ):
        if isinstance(each, Queue):
            called = str(called or name or each.name)
            return Entry(slug_of(called), called, each, is_tube)
    raise BadType(f"a console shows queues: models made queues by xq.upgrade, and tubes, not {shown(thing)}")


def slug_of(name: str) -> str:
    """Return a name for URLs: the name itself if it is plain, else its plain part and a hash of the whole."""
    if PLAIN.fullmatch(name):
        return name
    part = "-".join(re.findall(r"[A-Za-z0-9_]+", name))[:40]
    return f"{part}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}".lstrip("-")


def on(entry: Entry, call: Callable[[], R], kept: ExitStack | None = None) -> R:
    """Make a call with a connection of this thread, and say what a page should if the database fails.

    With `kept` the connection is closed when that is, so further calls of the thread on this database use it too.
    """
    store = entry.queue.adapter.store
    try:
        with ExitStack() as closing:
            (closing if kept is None else kept).enter_context(store.briefly_connected())
            return call()
    except Error:
        raise
    except Exception as error:
        kind = store.classify(error)
        if kind is ErrorKind.NOT_DATABASE:
            raise
        if kind is ErrorKind.READ_ONLY:
            raise Refusal(503, f"The database of {entry.name} only reads now, so nothing was changed.") from error
        raise Refusal(503, f"The database of {entry.name} does not answer: {error}") from error


class Threads:
    """The threads in which the console calls databases: none of its calls holds up the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "xq-console")
        self._room = threading.Semaphore(OPERATIONS)

    async def run(self, call: Callable[[], R]) -> R:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: context.run(call))

    def start(self, call: Callable[[], object]) -> None:
        """Begin a long call, and do not wait for its end. A process that ends does not wait for it either."""

        def run() -> None:
            with self._room:
                call()

        threading.Thread(target=run, name="xq-console-operation", daemon=True).start()


def refusal_of(error: Error) -> Refusal:
    """Return the answer to an error of xq: its message is a sentence for its user already."""
    statuses: tuple[tuple[type[Error], int], ...] = (
        (NotFound, 404),
        (WrongState, 409),
        (NotOwner, 409),
        (NotRunning, 503),
        (NotInstalled, 503),
        (FeatureOff, 400),
        (ConfigurationError, 503),
    )
    status = next((status for kind, status in statuses if isinstance(error, kind)), 400)
    return Refusal(status, f"{error}.")
