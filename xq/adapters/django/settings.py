"""The setting XQ, a dictionary, as in XQ = {"WORKERS": 4}, and its validation. It is read when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings

from xq.core.errors import ConfigurationError, shown
from xq.runtime.workers.options import HIGHEST


class Setting(NamedTuple):
    """The valid values of one name in a dictionary."""

    default: Any
    wanted: str
    fits: Callable[[Any], bool]


def number(default: int | None) -> Setting:
    return Setting(
        default,
        f"a number from 1 to {HIGHEST:,}, or None",
        lambda value: value is None or (type(value) is int and 0 < value <= HIGHEST),
    )


KNOWN: Final[Mapping[str, Setting]] = {
    # Threads of xq_worker; None: as many as given to the worker of the model.
    "WORKERS": number(None),
    # Whether xq_worker restarts when the code changes; None: if DEBUG is on.
    "AUTORELOAD": Setting(None, "True, False or None", lambda value: value is None or type(value) is bool),
}


def problems(given: object, known: Mapping[str, Setting], name: str) -> list[str]:
    """Return in words what is wrong with the dictionary in the setting `name`; an empty list if nothing is."""
    if not isinstance(given, Mapping):
        return [f"{name} is a dictionary, not {shown(given)}"]
    unknown = [f"{name} has no {shown(key)}: it has {', '.join(known)}" for key in given if key not in known]
    return unknown + [
        f"{name}[{key!r}] is {setting.wanted}, not {shown(given[key])}"
        for key, setting in known.items()
        if key in given and not setting.fits(given[key])
    ]


def problems_of_xq() -> list[str]:
    """Return in words what is wrong with the setting XQ."""
    return problems(getattr(settings, "XQ", {}), KNOWN, "the setting XQ")


def setting(name: str) -> Any:
    """Return the value of one of KNOWN, or its default. Raises ConfigurationError if the setting is not valid."""
    if wrong := problems_of_xq():
        raise ConfigurationError("; ".join(wrong))
    return getattr(settings, "XQ", {}).get(name, KNOWN[name].default)
