"""The setting XQ, a dictionary of the names below: XQ = {"WORKERS": 4}. Read when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings

from xq.errors import ConfigurationError, shown


class Setting(NamedTuple):
    default: Any
    wanted: str
    fits: Callable[[Any], bool]


KNOWN: Final[Mapping[str, Setting]] = {
    # Threads of xq_worker; None: as many as the worker of the model was given.
    "WORKERS": Setting(
        None, "a number from 1 on, or None", lambda value: value is None or (type(value) is int and value > 0)
    ),
    # Whether xq_worker starts anew when the code changes; None: where DEBUG is on.
    "AUTORELOAD": Setting(None, "True, False or None", lambda value: value is None or type(value) is bool),
}


def problems() -> list[str]:
    """What is wrong with the setting, in words; empty when all is well."""
    given = getattr(settings, "XQ", {})
    if not isinstance(given, Mapping):
        return [f"the setting XQ is a dictionary, not {shown(given)}"]
    known = ", ".join(KNOWN)
    unknown = [f"the setting XQ has no {shown(name)}: it has {known}" for name in given if name not in KNOWN]
    return unknown + [
        f"XQ[{name!r}] is {setting.wanted}, not {shown(given[name])}"
        for name, setting in KNOWN.items()
        if name in given and not setting.fits(given[name])
    ]


def setting(name: str) -> Any:
    """One of the names of KNOWN, or its default. Raises ConfigurationError where anything is wrong with the setting."""
    if wrong := problems():
        raise ConfigurationError("; ".join(wrong))
    return getattr(settings, "XQ", {}).get(name, KNOWN[name].default)
