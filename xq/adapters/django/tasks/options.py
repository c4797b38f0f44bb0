"""The options of django.tasks: those of a backend, and those that each task may have in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, partial
from hashlib import sha256
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple

from django.conf import settings

from xq.adapters.django.tasks import interface
from xq.core.errors import ConfigurationError, is_integer, is_number, shown
from xq.core.machine import LONGEST
from xq.workers.options import HIGHEST
from xq.workers.outcomes import Backoff

LONGEST_GROUP: Final = 255  # characters
WAITING: Final = "w-"  # the key of a task that is unique until it is taken begins so


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
    return value is None or (bool(each) and all(isinstance(one, str) or _is_error(one) for one in each))


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_group(value: Any) -> bool:
    return value is None or callable(value) or (isinstance(value, str) and 0 < len(value) <= LONGEST_GROUP)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


OF_TASKS: Final[Mapping[str, Option]] = {
    "max_attempts": Option(5, f"a number from 1 to {HIGHEST:,}, or None", _is_number),
    "backoff": Option(None, "seconds, a list of them, or a function of a task and its exception", _is_backoff),
    "retry_on": Option(None, "a tuple of classes of exceptions, or of their paths", _are_errors),
    "discard_on": Option(None, "a tuple of classes of exceptions, or of their paths", _are_errors),
    "timeout": Option(None, "a number of seconds above 0", _is_timeout),
    "unique": Option(
        None,
        'True, "waiting", or a function of the arguments',
        lambda value: value in (None, True, False, "waiting") or callable(value),
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
    "steps": Option(False, "True or False", lambda value: isinstance(value, bool)),
    "TASKS": Option({}, "a dictionary of paths of tasks, in which * is anything, and their options", _is_mapping),
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
    paths = given.get("TASKS") if "TASKS" in known else None
    for path, own in paths.items() if isinstance(paths, Mapping) else ():
        wrong += problems(own, f"{name}['TASKS'][{path!r}]", OF_TASKS)
    if given.get("group") is not None and not asked("groups"):
        wrong.append(f'{name}["group"] needs "groups": True in OPTIONS of a backend in TASKS, and a migrate then')
    return wrong


def asked(name: str) -> bool:
    """Return whether the setting TASKS asks for "groups", "then" or "steps", which make takes, or ends, dearer."""
    found = [each.get("OPTIONS") for each in getattr(settings, "TASKS", {}).values()]
    return any(isinstance(each, Mapping) and each.get(name) is True for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class XQTask(interface.Task):
    """A task with options of its own. None: that of the backend."""

    max_attempts: int | None = None
    backoff: Any = None
    retry_on: Any = None
    discard_on: Any = None
    timeout: float | None = None
    unique: Any = None
    group: Any = None
    rate: Any = None

    def __post_init__(self) -> None:
        given = {name: value for name in OF_TASKS if (value := getattr(self, name)) is not None}
        if given and (wrong := problems(given, f"the task {self.module_path}", OF_TASKS)):
            raise ConfigurationError("; ".join(wrong))
        interface.Task.__post_init__(self)
        if option_of(self, self.get_backend(), "timeout"):
            TIMED[self.module_path] = self


def options(task: Any = None, **given: Any) -> Any:
    """Return a task with these options: `send = options(send, timeout=30)`, or `@options(timeout=30)` above `@task`.

    The options are max_attempts, backoff, retry_on, discard_on, timeout, unique and group. They replace those of the
    backend, but for those that it has for the task's path. Where `task` of django.tasks takes keywords it takes these,
    too. A task of another backend is returned unchanged. Raises ConfigurationError.
    """
    if task is None:
        return partial(options, **given)
    if not isinstance(task, interface.Task):
        raise ConfigurationError(f"options() takes a task, which @task makes, not {shown(task)}")
    if wrong := problems(given, f"the task {task.module_path}", OF_TASKS if isinstance(task, XQTask) else OPTIONS):
        raise ConfigurationError("; ".join(wrong))
    return replace(task, **given) if isinstance(task, XQTask) else task


def by_path(options: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the options that "TASKS" of a backend's options has for a task: each of the longest path that has it."""
    found = [each for each in options.get("TASKS", {}) if fnmatchcase(path, each)]
    return {name: value for each in sorted(found, key=len) for name, value in options["TASKS"][each].items()}


def given_to(task: Any, backend: Any) -> dict[str, Any]:
    """Return the options that a task is given: by its path in TASKS, else by itself, else by its backend."""
    own = {name: value for name in OF_TASKS if (value := getattr(task, name, None)) is not None}
    return {**backend.options, **own, **by_path(backend.options, task.module_path)}


def option_of(task: Any, backend: Any, name: str) -> Any:
    """Return an option of a task, or its default."""
    return given_to(task, backend).get(name, OPTIONS[name].default)


def retries(task: Any, backend: Any, error: BaseException) -> bool:
    """Return whether a task that has raised this is tried again. xq.Retry always asks for it."""
    given = given_to(task, backend)
    if (retry_on := given.get("retry_on")) is not None:
        return isinstance(error, errors_of(retry_on))
    return any(given.get(name) is not None for name in ("max_attempts", "backoff"))


def errors_of(given: Any) -> tuple[type[Exception], ...]:
    """Return the classes of exceptions that an option names. Raises ImportError, AttributeError and TypeError."""
    return tuple(_error_named(each) if isinstance(each, str) else each for each in given or ())


@cache
def _error_named(path: str) -> Any:
    found = resolve_name(path if "." in path else f"builtins.{path}")
    if not _is_error(found):
        raise TypeError(f"{path} is no class of exceptions")
    return found


def unknown_errors(given: Mapping[str, Any]) -> list[str]:
    """Return in words which exceptions, that a backend's options name by their paths, are not there."""
    wrong = []
    for own in (given, *given.get("TASKS", {}).values()):
        for name in ("retry_on", "discard_on"):
            try:
                errors_of(own.get(name))
            except (ImportError, AttributeError, TypeError, ValueError) as error:
                wrong.append(f"{name}={own[name]!r}: {error}")
    return wrong


def unmatched(given: Mapping[str, Any]) -> list[str]:
    """Return in words which paths of "TASKS" no task has. Those with * of a package may be of any of its modules."""
    wrong = []
    for path in given.get("TASKS", {}):
        head, *wild = re.split(r"[*?[]", path, maxsplit=1)
        if wild and "." not in head:
            continue  # of any module
        try:
            place = resolve_name(module := head.rpartition(".")[0] or head)
            # type(): isinstance() evaluates lazy objects
            there = [each.module_path for each in vars(place).values() if issubclass(type(each), interface.Task)]
            if not (wild and hasattr(place, "__path__")) and not any(fnmatchcase(each, path) for each in there):
                raise LookupError(f"{module} has {', '.join(there) or 'no task'}")
        except Exception as error:  # whatever a module raises
            wrong.append(f"{path!r}: {error}")
    return wrong


def keys_of(task: Any, backend: Any, args: Any, kwargs: Any) -> dict[str, str | None]:
    """Return the fields by which a call is unique, and in a group."""
    given = given_to(task, backend)
    unique, group = given.get("unique"), given.get("group")
    keys = dict[str, str | None]()
    if unique:
        value = unique(*args, **kwargs) if callable(unique) else [args, kwargs]
        text = json.dumps([task.module_path, interface.normalize_json(value)], sort_keys=True)
        kind = WAITING * (unique == "waiting")
        keys["unique_key"] = None if value is None else kind + sha256(text.encode()).hexdigest()
    if group is not None:
        value = group(*args, **kwargs) if callable(group) else group
        keys["group_key"] = None if value is None else str(value)
    return keys


def begin(worker_id: str, kind: str, worker: Any) -> None:
    """Note what this process's worker is. A worker process imports this before Django is set up, which models need."""
    worker.store.model.worker_id, worker.store.model.worked_on_by = worker_id, kind
