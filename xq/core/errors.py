"""The errors that xq raises. Errors of the database itself are raised as the ORM's own errors."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, TypeGuard
from uuid import UUID

from xq.core.words import PLAIN, Wording

MISSING = 3  # missing things that a message names


def shown(value: object) -> str:
    """Return a value as text for a message, shortened if it is long. Never raises."""
    try:
        text = str(value) if isinstance(value, UUID) else repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 500 else f"{text[:500]}..."


def in_line(error: BaseException) -> str:
    """Return an error as one line for the log: libpq's have five."""
    return " ".join(str(error).split())


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Error(Exception):
    """The base class of all errors that xq raises. A call that raises one has left the table unchanged.

    Catch it to catch them all. A note, which a traceback shows and `str` does not, names the section in docs/errors.md.
    """

    @cached_property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # it can be written: a cached_property is in the __dict__
        # Made when a traceback asks for it: most errors are caught, and never shown. `add_note` asks for it too, and
        # appends to this list.
        known = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return [f"Read docs/errors.md#{known.__name__.lower()} in the documentation of xq."]

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled with all its attributes, so that a worker process can pass it on
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[Error], args: tuple[Any, ...], parts: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(parts)
    return error


class ConfigurationError(Error):
    """The arguments of `upgrade` contradict each other or the model, or a call can never work in this program.

    It is raised when the program starts, before any database is touched, or by the call that cannot work, such as `run`
    on a queue without a worker. The message names the argument: change the program.
    """


class Conflict(ConfigurationError):
    """Two features decide the same thing.

    `upgrade` raises it. `features` are the two names, `claim` is what both decide: use one of them.
    """

    def __init__(self, one: str, other: str, claim: str) -> None:
        super().__init__(f"features {one!r} and {other!r} both decide {claim}: use one of them")
        self.features = (one, other)
        self.claim = claim


class NotInstalled(Error):
    """The table lacks what the queue needs, or another configuration of the queue was installed.

    The first call that needs the database raises it. Call `Page.xq.install()`, or run the migrations, before the
    program starts. If processes define the queue differently, give all of them the same definition, then install it.
    A put of an older definition that writes what one of the installed definition writes does not raise it, see
    docs/howto/deploy.md. `missing` lists what is missing or different; `Page.xq.check()` returns it as well.
    """

    def __init__(self, queue: str, missing: Iterable[str], advice: str = "") -> None:
        self.missing = tuple(missing)
        advice = advice or (
            f"{queue}.xq.install() installs the queue as this process defines it; where processes differ, give all "
            "of them the same definition first"
        )
        rest = len(self.missing) - MISSING
        told = [*self.missing[:MISSING], *[f"{rest} more"] * (rest > 0)]
        super().__init__(f"{advice}. The queue {queue} is not installed as this process defines it: {'; '.join(told)}")


class TubeDropped(NotInstalled):
    """This process or another one dropped the tube.

    Any call on a tube object raises it from then on. `create_tube` makes another tube with this name, which is empty.
    `name` is the tube's name, and `missing` says that it was dropped.
    """

    def __init__(self, name: str) -> None:
        self.name, self.missing = name, ("it was dropped",)
        Error.__init__(self, f"the tube {shown(name)} was dropped: create_tube() makes another one of this name")


class FeatureOff(Error):
    """The call, or one of its options, belongs to a feature that this queue does not have.

    Add the feature to `features=` in `upgrade`, and install the queue again; or leave the option out. `feature` names
    the feature; `role` names the role to map in `fields=`, if only that is missing.
    """

    def __init__(self, message: str, *, feature: str = "", role: str = "") -> None:
        super().__init__(message)
        self.feature = feature
        self.role = role


class BadValue(Error, ValueError):
    """A value has the right type but is not valid here.

    The message names the value and what is valid. It is a ValueError as well.
    """


class BadType(Error, TypeError):
    """A value has the wrong type, or the method does not have this option.

    The message names the value and the type. It is a TypeError as well.
    """


class NotFound(Error):
    """The queue has no task with this key, or no group of this name.

    The task was acked, cancelled, killed or dropped, it never existed, or its row's status belongs to no state in
    this queue. A worker's ack raises it if the task was deleted while the function ran: nothing is left to do. With
    the feature `keep` acked tasks stay. `key` is the key, and `found` says what the table has instead ("" if nothing).
    `Batch.fail` raises it for a task in another batch.
    """

    def __init__(self, queue: str, key: Any, found: str = "", what: str = "task") -> None:
        super().__init__(f"there is no {what} {shown(key)} in {queue}{found}")
        self.key = key
        self.found = found.removeprefix(": ")  # what the table has instead, or ""


class WrongState(Error):
    """The task is in a state from which the event does not move it.

    Often another call was faster: an ack finds the task ready if its ttr has expired, and waiting if it was released.
    After a late ack another attempt follows, so drop the result; or do the work in the ack's transaction, and the
    database undoes it. `Page.xq.why(key)` says where the task stands. `key` is its key, `state` its state's letter;
    `allowed` are the letters for the states from which the event moves a task. `owner` is what its row has as
    owner (None if nothing, or not known).
    """

    owner: str | None = None

    def __init__(self, event: str, key: Any, state: str, allowed: Iterable[str], wording: Wording = PLAIN) -> None:
        self.key, self.state, self.allowed = key, state, tuple(allowed)
        super().__init__(
            f"cannot {event} task {shown(key)}: it is {wording.state(state)}; "
            f"{event} needs {wording.task_in(self.allowed)}"
        )


class NotOwner(Error):
    """Another session has taken the task, or another take than the one that returned this object.

    The task's ttr expired and it was taken again, or an operator took it away. The other owner works on it, so
    drop the result, and do not repeat the call. If this happens often, raise ttr or `touch` the task while it runs. A
    call with a bare key works only in the session that took the task. `key` is the task's key, and `owner` its
    owner's token (None if none is known).
    """

    def __init__(self, event: str, key: Any, owner: str | None, wording: Wording = PLAIN) -> None:
        self.key, self.owner = key, owner
        super().__init__(f"cannot {event} task {shown(key)}: it is taken by {wording.owner(owner)}")


class SessionLost(NotOwner):
    """The session that took the task was lost: its connection, and with it its liveness lock, was lost before close().

    The task was released, and another session may have taken it by now. Drop the result and go on: the next take
    registers a new session. `key` is the task's key, and `owner` its take's token.
    """

    def __init__(self, event: str, key: Any, owner: str | None) -> None:
        self.key, self.owner = key, owner
        Error.__init__(
            self,
            f"cannot {event} task {shown(key)}: the session that took it was lost with its connection to the database, "
            "and the task was released. The next take registers a new session",
        )


class InTransaction(Error):
    """A call would wait within a transaction, perhaps forever: others do not see what the transaction wrote.

    `take` with a timeout, `put` with `wait` or `timeout`, `wait` and `run` raise it. Wait before or after the
    transaction, or call `take()` without a timeout. In Django's `TestCase`, which is a transaction, `take` with a
    timeout polls. A worker's function that has written in a session of SQLAlchemy, and not committed, gets it from
    `ack(order)`, `release`, `bury` and `touch`, which would wait for that session: say `ack(order, on=session)`.
    """

    def __init__(self, what: str, otherwise: str, why: str = "") -> None:
        super().__init__(
            why
            or f"{what} cannot wait within a transaction: other connections do not see what the transaction wrote, so "
            f"the wait might never end. Wait before or after it{otherwise}"
        )


class LeftOpen(Error):
    """The worker's function returned and left a transaction open that it began, or closed it without a commit.

    The worker rolled the transaction back, or SQLAlchemy did as the session was closed, and the attempt has failed.
    End each transaction before the function returns, for example by `with db.atomic():` or
    `with Session.begin() as session:`. A `rollback()` by hand says that it is meant.
    """

    def __init__(self, what: str, lost: bool = False) -> None:
        super().__init__(
            f"the function returned, and what it wrote on {what} was rolled back: a session or connection was closed "
            "without commit(). Commit before the function returns, for example by `with Session.begin() as session:`"
            if lost
            else f"the function returned and left a transaction on {what} open, so the worker rolled it back: end each "
            "transaction before the function returns, for example by `with`"
        )


class Duplicate(Error):
    """Another task has the same value in the role `unique`, or a group of this name is open.

    Call `put(..., on_conflict="skip")` to get the other task, or "replace" to update it. `value` is that value and
    `key` the other task's key, or None if they are not known.
    """

    def __init__(self, queue: str, value: Any = None, key: Any = None, advice: str = "", what: str = "task") -> None:
        self.value, self.key = value, key
        holder = "another task" if key is None else f"task {shown(key)}"
        which = "the unique value of this one" if value is None else f"the unique value {shown(value)}"
        held = f"{holder} of {queue} already holds {which}"
        super().__init__((held if what == "task" else f"the {what} {shown(value)} of {queue} is open") + advice)


class Full(Error):
    """The queue holds as many tasks as its feature `limit` allows.

    Put again when some are done, or wait for room: `put(task, timeout=seconds)`. `put_many` puts all or none, so put
    fewer at once. `limit` is how many unfinished tasks the queue allows.
    """

    def __init__(self, queue: str, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{queue} is limited to {limit} unfinished tasks, and this put would pass that: "
            "put again when some are done, or wait for room with put(..., timeout=seconds)"
        )


class UnknownSession(Error):
    """The database has no open session with this uuid.

    It was closed, its time in `configure(session_ttr=)` has passed, or it never existed. Its tasks were released: call
    `session()` for a new one. `uuid` is the one that was given.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        super().__init__(f"no session {uuid} is open in this database: it was closed, or never existed")


class TubeExists(BadValue):
    """A tube with this name exists already, and `create_tube` was called without `if_not_exists=True`.

    With `if_not_exists=True` the call returns the existing tube. `name` and `type` are its own.
    """

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type
        super().__init__(f"there is a tube {shown(name)} already, of type {type}: if_not_exists=True returns it")


class UnknownTube(Error, KeyError):
    """No tube has this name, or its type is not registered in this process.

    Create the tube, or call `register_driver` for its type first. It is a KeyError as well. `name` is the name that was
    asked for.
    """

    def __init__(self, name: object, known: Iterable[str], type: str | None = None) -> None:
        self.name = name
        there = f"there are {', '.join(map(shown, known)) or 'none'}"
        if type is not None:
            there = f"it is of the type {shown(type)}, which register_driver has not registered in this process"
        super().__init__(f"there is no tube {shown(name)}: {there}")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError.__str__ would return the repr


class TubeBusy(Error):
    """The tube cannot be dropped: its tasks are taken, or this process's calls wait in it.

    Ack or release the tasks, or call `release_all()`; end the waiting calls. Then drop it again. `name` is the tube's
    name, and `taken` its number of taken tasks (0 if calls wait).
    """

    def __init__(self, name: str, taken: int) -> None:
        self.name, self.taken = name, taken
        why = "calls of this process wait in it: end them first"
        if taken:
            why = f"{taken} of its tasks are taken: ack or release them, or call release_all()"
        super().__init__(f"the tube {shown(name)} cannot be dropped: {why}")


class NotRunning(Error):
    """The tubes' `state` in this database is not RUNNING, so their calls are refused.

    The database is read-only, or was until a moment ago. Call again when `state()` returns RUNNING. `state` is what it
    was at the call: INIT, STARTUP, ENDING or WAITING.
    """

    WHY: ClassVar = {
        "INIT": "there are no tubes yet, and the database is read-only",
        "STARTUP": "the maintenance thread moves the tasks that fell due while writes were refused: call again soon",
        "ENDING": "the database is read-only, and the waiting calls of this process are ending",
        "WAITING": "the database is read-only: call again when it accepts writes",
    }

    def __init__(self, state: str) -> None:
        self.state = state
        super().__init__(f"the tubes of this database are {state}, not RUNNING: {self.WHY.get(state, 'ask state()')}")
