"""The options of django.tasks: those of a backend, and those that each task may have in their place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.conf import settings

from xq.adapters.django.tasks import interface
from xq.core.errors import ConfigurationError, is_integer, is_number, shown
from xq.core.machine import LONGEST
from xq.workers.options import HIGHEST
from xq.workers.outcomes import Backoff

LONGEST_GROUP: Final = 255  # characters


class Option(NamedTuple):
    """The valid values for one of OPTIONS."""

    default: Any
    wanted: str
    fits: Callable[[Any], bool]


def _is_seconds(value: Any) -> bool:
    return value is None or (is_number(value) and 0 <= value <= LONGEST)


def _is_timeout(value: Any) -> bool:
    return value is None or (is_number(value) and 0 < value <= LONGEST)


def _is_number(value: Any) -> bool:
    return value is None or (is_integer(value) and 0 < value <= HIGHEST)


def _is_backoff(value: Any) -> bool:
    try:
        return bool(Backoff(value))
    except ConfigurationError:
        return False


def _are_errors(value: Any) -> bool:
    each = value if isinstance(value, (tuple, list)) else ()
    return value is None or (bool(each) and all(isinstance(one, type) and issubclass(one, Exception) for one in each))


def _is_group(value: Any) -> bool:
    return value is None or callable(value) or (isinstance(value, str) and 0 < len(value) <= LONGEST_GROUP)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


OF_TASKS: Final[Mapping[str, Option]] = {
    "max_attempts": Option(5, f"a number from 1 to {HIGHEST:,}, or None", _is_number),
    "backoff": Option(None, "seconds, a list of them, or a function of a task and its exception", _is_backoff),
    "retry_on": Option(None, "a tuple of classes of exceptions", _are_errors),
    "timeout": Option(None, "a number of seconds above 0", _is_timeout),
    "unique": Option(
        None, "True, or a function of the arguments", lambda value: value in (None, True, False) or callable(value)
    ),
    "group": Option(None, f"a text of up to {LONGEST_GROUP} characters, or a function of the arguments", _is_group),
    "rate": Option(
        None, "not there yet: limit a rate by the number of workers of a queue", lambda value: value is None
    ),
}
OPTIONS: Final[Mapping[str, Option]] = {
    "keep": Option(None, "seconds, or None (forever)", _is_seconds),
    "keep_failed": Option(None, "seconds, or None (forever)", _is_seconds),
    **OF_TASKS,
    "groups": Option(False, "True or False", lambda value: isinstance(value, bool)),
    "then": Option(False, "True or False", lambda value: isinstance(value, bool)),
    "ALIASES": Option({}, "a dictionary of old paths and new ones", _is_mapping),
    "SCHEDULES": Option({}, "a dictionary of names and (spec, path of a task)", _is_mapping),
}
KEYS: Final = ("unique", "group")  # the options from which a call has keys
TIMED: dict[str, Any] = {}  # the tasks with a timeout that this process has imported, by their paths


def problems(given: object, name: str, known: Mapping[str, Option] = OPTIONS) -> list[str]:
    """Return in words what is wrong with the options that `name` gives; an empty list if nothing is."""
    if not isinstance(given, Mapping):
        return [f"{name} is a dictionary, not {shown(given)}"]
    usable = [key for key, option in known.items() if not option.wanted.startswith("not there yet")]
    near = {key: ", ".join(get_close_matches(str(key), usable) or usable) for key in given if key not in known}
    wrong = [f"{name} has no {shown(key)}: it has {names}" for key, names in near.items()]
    wrong += [
        f"{name}[{key!r}] is {option.wanted}, not {shown(given[key])}"
        for key, option in known.items()
        if key in given and not option.fits(given[key])
    ]
    if given.get("group") is not None and not asked("groups"):
        wrong.append(f'{name}["group"] needs "groups": True in OPTIONS of a backend in TASKS, and a migrate then')
    return wrong


def asked(name: str) -> bool:
    """Return whether the setting TASKS asks for "groups", or for "then": they make each take, or each end, dearer."""
    found = [each.get("OPTIONS") for each in getattr(settings, "TASKS", {}).values()]
    return any(isinstance(each, Mapping) and each.get(name) is True for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class XQTask(interface.Task):
    """A task with options of its own. None: that of the backend."""

    max_attempts: int | None = None
    backoff: Any = None
    retry_on: Any = None
    timeout: float | None = None
    unique: Any = None
    group: Any = None
    rate: Any = None

    def __post_init__(self) -> None:
        given = {name: value for name in OF_TASKS if (value := getattr(self, name)) is not None}
        if given and (wrong := problems(given, f"the task {self.module_path}", OF_TASKS)):
            raise ConfigurationError("; ".join(wrong))
        interface.Task.__post_init__(self)
        if self.timeout or self.get_backend().options.get("timeout"):
            TIMED[self.module_path] = self


def options(task: Any = None, **given: Any) -> Any:
    """Return a task with these options: `send = options(send, timeout=30)`, or `@options(timeout=30)` above `@task`.

    The options are max_attempts, backoff, retry_on, timeout, unique and group. They replace those of the backend. Where
    `task` of django.tasks takes keywords it takes these, too. A task of another backend is returned unchanged. Raises
    ConfigurationError.
    """
    if task is None:
        return partial(options, **given)
    if not isinstance(task, interface.Task):
        raise ConfigurationError(f"options() takes a task, which @task makes, not {shown(task)}")
    if wrong := problems(given, f"the task {task.module_path}", OF_TASKS if isinstance(task, XQTask) else OPTIONS):
        raise ConfigurationError("; ".join(wrong))
    return replace(task, **given) if isinstance(task, XQTask) else task


def option_of(task: Any, backend: Any, name: str) -> Any:
    """Return an option of a task, or else of its backend."""
    own = getattr(task, name, None)
    return backend.option(name) if own is None else own


def retries(task: Any, backend: Any, error: BaseException) -> bool:
    """Return whether a task that has raised this is tried again. xq.Retry always asks for it."""
    given = [getattr(task, name, None) or backend.options.get(name) for name in ("max_attempts", "backoff")]
    retry_on = option_of(task, backend, "retry_on")
    return given != [None, None] if retry_on is None else isinstance(error, tuple(retry_on))


def keys_of(task: Any, backend: Any, args: Any, kwargs: Any) -> dict[str, str | None]:
    """Return the fields by which a call is unique, and in a group."""
    unique, group = option_of(task, backend, "unique"), option_of(task, backend, "group")
    keys = dict[str, str | None]()
    if unique:
        value = unique(*args, **kwargs) if callable(unique) else [args, kwargs]
        text = json.dumps([task.module_path, interface.normalize_json(value)], sort_keys=True)
        keys["unique_key"] = None if value is None else sha256(text.encode()).hexdigest()
    if group is not None:
        value = group(*args, **kwargs) if callable(group) else group
        keys["group_key"] = None if value is None else str(value)
    return keys


def begin(worker_id: str, kind: str, worker: Any) -> None:
    """Note what this process's worker is. A worker process imports this before Django is set up, which models need."""
    worker.store.model.worker_id, worker.store.model.worked_on_by = worker_id, kind
