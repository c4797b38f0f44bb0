"""What the settings may hold in a dictionary, and the setting XQ: XQ = {"WORKERS": 4}. Read when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings

from xq.core.errors import ConfigurationError, shown


class Setting(NamedTuple):
    """What one name in a dictionary may hold."""

    default: Any
    wanted: str
    fits: Callable[[Any], bool]


def number(default: int | None) -> Setting:
    return Setting(
        default, "a number from 1 on, or None", lambda value: value is None or (type(value) is int and value > 0)
    )


KNOWN: Final[Mapping[str, Setting]] = {
    # Threads of xq_worker; None: as many as the worker of the model was given.
    "WORKERS": number(None),
    # Whether xq_worker starts anew when the code changes; None: where DEBUG is on.
    "AUTORELOAD": Setting(None, "True, False or None", lambda value: value is None or type(value) is bool),
}


def problems(given: object, known: Mapping[str, Setting], name: str) -> list[str]:
    """What is wrong with a dictionary of the settings that is called so, in words; empty when all is well."""
    if not isinstance(given, Mapping):
        return [f"{name} is a dictionary, not {shown(given)}"]
    unknown = [f"{name} has no {shown(key)}: it has {', '.join(known)}" for key in given if key not in known]
    return unknown + [
        f"{name}[{key!r}] is {setting.wanted}, not {shown(given[key])}"
        for key, setting in known.items()
        if key in given and not setting.fits(given[key])
    ]


def problems_of_xq() -> list[str]:
    """What is wrong with the setting XQ, in words."""
    return problems(getattr(settings, "XQ", {}), KNOWN, "the setting XQ")


def setting(name: str) -> Any:
    """One of the names of KNOWN, or its default. Raises ConfigurationError where anything is wrong with the setting."""
    if wrong := problems_of_xq():
        raise ConfigurationError("; ".join(wrong))
    return getattr(settings, "XQ", {}).get(name, KNOWN[name].default)
