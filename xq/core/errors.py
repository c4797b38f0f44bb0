"""Everything that xq raises. What a database itself refuses passes as the ORM's own error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from xq.core.words import PLAIN, Wording


def shown(value: object) -> str:
    """A value for a message, whatever it is and however long."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 500 else f"{text[:500]}..."


class Error(Exception):
    """The base of every error of xq. Whatever raises one has left the table unchanged."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)  # a worker process passes it on whole


def _again(kind: type[Error], args: tuple[Any, ...], parts: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(parts)
    return error


class ConfigurationError(Error):
    """`upgrade` was asked for something that does not fit together; no database was touched."""


class Conflict(ConfigurationError):
    """Two features decide the same thing.

    `features` are the two names, `claim` what both decide.
    """

    def __init__(self, one: str, other: str, claim: str) -> None:
        super().__init__(f"features {one!r} and {other!r} both decide {claim}: use one of them")
        self.features = (one, other)
        self.claim = claim


class NotInstalled(Error):
    """The table lacks what the queue needs, or another configuration of it was installed.

    `missing` lists what was found wanting.
    """

    def __init__(self, queue: str, missing: Iterable[str], advice: str = "") -> None:
        self.missing = tuple(missing)
        advice = advice or (
            f"{queue}.xq.install() installs it as this process defines it; where processes differ, give all of them "
            "the same definition first"
        )
        super().__init__(
            f"the queue {queue} is not installed as this process defines it ({'; '.join(self.missing)}): {advice}"
        )


class TubeDropped(NotInstalled):
    """The tube was dropped, by this process or another."""

    def __init__(self, name: str) -> None:
        self.name, self.missing = name, ("it was dropped",)
        Error.__init__(self, f"the tube {shown(name)} was dropped: create_tube() makes another one of this name")


class FeatureOff(Error):
    """The call, or one of its options, belongs to a feature that this queue does not have.

    `feature` names it; `role` names the field to map where that is what is missing.
    """

    def __init__(self, message: str, *, feature: str = "", role: str = "") -> None:
        super().__init__(message)
        self.feature = feature
        self.role = role


class BadValue(Error, ValueError):
    """A value of the right type that means nothing here."""


class BadType(Error, TypeError):
    """A value of the wrong type, or an option that the method does not have."""


class NotFound(Error):
    """No task of this queue has the key."""

    def __init__(self, queue: str, key: Any, found: str = "") -> None:
        super().__init__(f"there is no task {shown(key)} in {queue}{found}")
        self.key = key
        self.found = found.removeprefix(": ")  # what there is instead, if anything is


class WrongState(Error):
    """The task is in a state that the event does not leave.

    `state` is the letter it is in, `allowed` those that the event moves.
    """

    def __init__(self, event: str, key: Any, state: str, allowed: Iterable[str], wording: Wording = PLAIN) -> None:
        self.key, self.state, self.allowed = key, state, tuple(allowed)
        super().__init__(
            f"cannot {event} task {shown(key)}: it is {wording.state(state)}; "
            f"{event} needs {wording.task_in(self.allowed)}"
        )


class NotOwner(Error):
    """The task is taken, but by another session, or by another take than the one this object came from."""

    def __init__(self, event: str, key: Any, owner: str | None, wording: Wording = PLAIN) -> None:
        self.key, self.owner = key, owner
        super().__init__(f"cannot {event} task {shown(key)}: it is taken by {wording.owner(owner)}")


class SessionLost(NotOwner):
    """The session that took the task has ended without being closed: its proof of life was lost, with a connection.

    The task was given back, and may be another's by now.
    """

    def __init__(self, event: str, key: Any, owner: str | None) -> None:
        self.key, self.owner = key, owner
        Error.__init__(
            self,
            f"cannot {event} task {shown(key)}: the session that took it was lost with its connection to the database, "
            "and the task was given back. The next take is by a new session",
        )


class InTransaction(Error):
    """Waiting within a transaction, which might never end: others do not see what was written in it."""

    def __init__(self, what: str, otherwise: str) -> None:
        super().__init__(
            f"{what} cannot wait within a transaction: what it waits for may depend on what was written there, which "
            f"others do not see. Wait before or after it{otherwise}"
        )


class LeftOpen(Error):
    """A function of a worker returned within a transaction that it began; what it wrote there is undone."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the function left a transaction on {what} open, which is undone with all that it wrote: end what it "
            "begins before it returns, as `with` does"
        )


class Undone(Error):
    """A function of a worker finished its task within a transaction that was rolled back, and returned."""

    def __init__(self, queue: str, key: Any) -> None:
        self.key = key
        super().__init__(
            f"the function finished task {shown(key)} of {queue} within a transaction that was rolled back, and its "
            "end with that"
        )


class ArchiveBusy(Error):
    """Another process, or another call of this one, archives or restores tasks of this queue."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"tasks of {queue} are being archived or restored by another call: wait until that is over")


class Duplicate(Error):
    """Another task holds the same value of the role `unique`.

    `value` is that value and `key` the key of the task that holds it, where they are known.
    """

    def __init__(self, queue: str, value: Any = None, key: Any = None, advice: str = "") -> None:
        self.value, self.key = value, key
        holder = "another task" if key is None else f"task {shown(key)}"
        which = "the unique value of this one" if value is None else f"the unique value {shown(value)}"
        super().__init__(f"{holder} of {queue} already holds {which}{advice}")


class Full(Error):
    """The queue holds as many tasks as its feature `limit` allows."""

    def __init__(self, queue: str, limit: int, adding: int) -> None:
        self.limit = limit
        super().__init__(
            f"{queue} is limited to {limit} unfinished tasks, and {adding} more would pass that: "
            "put again when some are done"
        )


class UnknownSession(Error):
    """No session of this uuid is open in the database."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        super().__init__(f"no session {uuid} is open in this database: it was closed, or never was")


class TubeExists(BadValue):
    """There is a tube of this name already, and create_tube was not told to be content with that (if_not_exists)."""

    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type
        super().__init__(f"there is a tube {shown(name)} already, of type {type}: if_not_exists=True returns it")


class UnknownTube(Error, KeyError):
    """There is no tube of this name, or none whose type is registered in this process."""

    def __init__(self, name: object, known: Iterable[str], type: str | None = None) -> None:
        self.name = name
        there = f"there are {', '.join(map(shown, known)) or 'none'}"
        if type is not None:
            there = f"it is of the type {shown(type)}, which register_driver has not made known here"
        super().__init__(f"there is no tube {shown(name)}: {there}")

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError shows a key


class TubeBusy(Error):
    """A tube cannot be dropped: tasks of it are taken, or calls of this process wait in it."""

    def __init__(self, name: str, taken: int) -> None:
        self.name, self.taken = name, taken
        why = "calls of this process wait in it: end them first"
        if taken:
            why = f"{taken} of its tasks are taken: have them acked or released, or release_all() gives them back"
        super().__init__(f"the tube {shown(name)} cannot be dropped: {why}")


class NotRunning(Error):
    """The tubes of this database are in another `state` than RUNNING, in which no call of theirs is served."""

    WHY: ClassVar = {
        "INIT": "there are none, and it may only be read",
        "STARTUP": "it may be written again, and what fell due meanwhile is being moved: call again soon",
        "ENDING": "it may only be read, and calls that wait here are being ended",
        "WAITING": "it may only be read: call again when it may be written",
    }

    def __init__(self, state: str) -> None:
        self.state = state
        super().__init__(f"the tubes of this database are {state}, not RUNNING: {self.WHY.get(state, 'ask state()')}")
