"""The tube types, as data, and the features that a tube's options turn on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from xq.core.errors import BadType, BadValue, ConfigurationError, FeatureOff, is_integer, is_number, shown
from xq.core.kinds import fits_a_column
from xq.core.machine import LONGEST, REMEMBERED, Feature, Machine
from xq.core.words import either
from xq.tubes.tables import FIELDS
from xq.upgrading.registry import compose

Preset = Mapping[str, Any]  # features=, as upgrade takes it

UNLIMITED: Final = 2**62  # the highest value of the feature limit

FIFO: Final[dict[str, Any]] = {"id": "auto_increment", "buried": "any"}
FIFOTTL: Final = FIFO | {"delayed": True, "lifetime": True, "ttr": True, "endless": True, "priority": True}
LIMFIFOTTL: Final = FIFOTTL | {"limit": UNLIMITED}
UTUBE: Final = FIFO | {"utube": True}
UTUBETTL: Final = FIFOTTL | {"utube": True}

PRESETS: Final[Mapping[str, Preset]] = {
    "fifo": FIFO,
    "fifottl": FIFOTTL,
    "limfifottl": LIMFIFOTTL,
    "utube": UTUBE,
    "utubettl": UTUBETTL,
}
"""The tube types that every process has, and their features."""

STORAGE_MODES: Final = ("default", "ready_buffer")


def _seconds(option: str, value: object) -> float | bool:
    if not is_number(value):
        raise BadType(f"{option} is a number of seconds, not {shown(value)}")
    if value == math.inf:
        return True  # the feature without a default
    if not 0 < value <= LONGEST:
        raise BadValue(
            f"{option} is a number of seconds above 0 and up to {LONGEST:.0f}, or math.inf, not {shown(value)}"
        )
    return float(value)


def _capacity(option: str, value: object) -> int:
    if not is_integer(value):
        raise BadType(f"{option} is a number of tasks, not {shown(value)}")
    if not 0 <= value <= UNLIMITED:
        raise BadValue(f"{option} is a number of tasks, or 0 for any, not {shown(value)}")
    return int(value) or UNLIMITED


def pri(value: object) -> int:
    """Return a valid pri. Raises BadType and BadValue."""
    if not is_integer(value):
        raise BadType(f"pri is an integer, not {shown(value)}")
    if not fits_a_column(value):
        raise BadValue(f"pri is an integer of at most 64 bits, not {shown(value)}")
    return int(value)


def _pri(option: str, value: object) -> bool:
    pri(value)
    return True  # put reads the value itself


# create_tube's option -> the features that support it (the first one on gets it), and the function for their value
OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str, object], Any]]]] = {
    "ttl": (("lifetime", "ttl"), _seconds),
    "ttr": (("ttr",), _seconds),
    "capacity": (("limit",), _capacity),
    "pri": (("priority",), _pri),
}


def _with_events(preset: Preset) -> dict[str, Any]:
    """Return the features that a preset turns on, and events, for the tube's statistics."""
    return {"events": True} | {
        name: value for name, value in preset.items() if value is not None and value is not False
    }


def lacks(call: str, features: Sequence[str], type: str, types: Mapping[str, Any]) -> str:
    """Return the message for a call that needs such a feature: the tube types with one."""
    presets = {name: preset for name, preset in types.items() if isinstance(preset, Mapping)}
    have = [name for name, preset in presets.items() if not {*features}.isdisjoint(_with_events(preset))]
    wanted = f"a tube of the type {either(have)}" if have else f"a type of tubes with the feature {features[0]!r}"
    return f"{call} needs {wanted}, and this one is of the type {type}"


def features(type: str, options: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features for a tube with a preset type and these known options.

    Raises FeatureOff for an option that the type lacks, BadType and BadValue.
    """
    found = _with_events(types[type])
    given = {name: value for name, value in options.items() if value is not None}
    if "ttl" in given and found.get("ttr") is True:
        given.setdefault("ttr", given["ttl"])
    for name, value in given.items():
        wanted, read = OPTIONS[name]
        feature = next((each for each in wanted if each in found), None)
        if feature is None:
            raise FeatureOff(lacks(f"create_tube({name}=)", wanted, type, types), feature=wanted[0])
        found[feature] = read(name, value)
    return found


def roles(features: Mapping[str, Any]) -> list[str]:
    """Return the roles, beside the status, that a tube with such features needs."""
    chosen: list[Feature] = compose(features, "auto_increment")
    needed = [role for feature in chosen for role in feature.needs]
    remembered = [feature.name for feature in chosen if feature.name in REMEMBERED]
    return [role for role in dict.fromkeys(["owner", *needed, *remembered]) if role != "status"]


def check_preset(name: str, preset: Preset) -> None:
    """Raise ConfigurationError if the features contradict each other, or no model can be generated for them."""
    if preset.get("retval", "model") != "model":
        raise ConfigurationError(f"the driver {name!r} sets retval: a tube returns its own tasks")
    if not preset.get("events", True):
        raise ConfigurationError(f"the driver {name!r} turns events off, by which the statistics of a tube are counted")
    if preset.get("id", "auto_increment") != "auto_increment":
        raise ConfigurationError(f"the driver {name!r} sets id: the ids of a tube are integers from 1 on")
    chosen = _with_events(preset)
    needed = roles(chosen)
    if unknown := [role for role in needed if role not in FIELDS]:
        raise ConfigurationError(
            f"the driver {name!r} needs the role {shown(unknown[0])}, for which a tube has no field: there are "
            f"{', '.join(FIELDS)}"
        )
    Machine(compose(chosen, "auto_increment"), ["status", *needed])
