"""The types of tubes, as data, and what the options of a tube make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from xq.adapters.tubes import FIELDS
from xq.core.errors import BadType, BadValue, ConfigurationError, FeatureOff, shown
from xq.core.machine import LONGEST, REMEMBERED, Feature, Machine
from xq.core.ports import fits_a_column
from xq.core.words import either
from xq.registry import compose

Preset = Mapping[str, Any]  # features=, as upgrade takes it

UNLIMITED: Final = 2**62  # the feature limit at its highest

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

STORAGE_MODES: Final = ("default", "ready_buffer")


def _seconds(option: str, value: object) -> float | bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadType(f"{option} is a number of seconds, not {shown(value)}")
    if value == math.inf:
        return True  # the feature without a default
    if not 0 < value <= LONGEST:
        raise BadValue(
            f"{option} is a number of seconds above 0 and up to {LONGEST:.0f}, or math.inf, not {shown(value)}"
        )
    return float(value)


def _capacity(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadType(f"{option} is a number of tasks, not {shown(value)}")
    if not 0 <= value <= UNLIMITED:
        raise BadValue(f"{option} is a number of tasks, or 0 for any, not {shown(value)}")
    return int(value) or UNLIMITED


def pri(value: object) -> int:
    """A pri. Raises BadType and BadValue."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadType(f"pri is an integer, not {shown(value)}")
    if not fits_a_column(value):
        raise BadValue(f"pri is an integer of at most 64 bits, not {shown(value)}")
    return int(value)


def _has_pri(option: str, value: object) -> bool:
    pri(value)
    return True  # what it says is read when a task is put


# option of create_tube -> the features that have a use for it, the first of which takes it; and what it makes of them
OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str, object], Any]]]] = {
    "ttl": (("lifetime", "ttl"), _seconds),
    "ttr": (("ttr",), _seconds),
    "capacity": (("limit",), _capacity),
    "pri": (("priority",), _has_pri),
}


def _counted(preset: Preset) -> dict[str, Any]:
    """The features of a preset that are on, with those that the statistics of any tube need."""
    return {"events": True} | {
        name: value for name, value in preset.items() if value is not None and value is not False
    }


def lacks(call: str, features: Sequence[str], type: str, types: Mapping[str, Any]) -> str:
    """Return which of the types of tubes have what a call needs: one of these features."""
    presets = {name: preset for name, preset in types.items() if isinstance(preset, Mapping)}
    have = [name for name, preset in presets.items() if not {*features}.isdisjoint(_counted(preset))]
    wanted = f"a tube of the type {either(have)}" if have else f"a type of tubes with the feature {features[0]!r}"
    return f"{call} needs {wanted}, and this one is of the type {type}"


def features(type: str, options: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """The features of a tube of a type that is a preset, with these options, all of them known.

    Raises FeatureOff for one that the type lacks, BadType and BadValue.
    """
    found = _counted(types[type])
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
    """The roles for which the model of a tube with these features has fields, beside the status."""
    chosen: list[Feature] = compose(features, "auto_increment")
    needed = [role for feature in chosen for role in feature.needs]
    remembered = [feature.name for feature in chosen if feature.name in REMEMBERED]
    return [role for role in dict.fromkeys(["owner", *needed, *remembered]) if role != "status"]


def check_preset(name: str, preset: Preset) -> None:
    """Raises ConfigurationError where these features do not go together, or their model cannot be generated."""
    if preset.get("retval", "model") != "model":
        raise ConfigurationError(f"the driver {name!r} sets retval: a tube returns its own tasks")
    if not preset.get("events", True):
        raise ConfigurationError(f"the driver {name!r} turns events off, by which the statistics of a tube are counted")
    if preset.get("id", "auto_increment") != "auto_increment":
        raise ConfigurationError(f"the driver {name!r} sets id: the ids of a tube are integers from 1 on")
    whole = _counted(preset)
    needed = roles(whole)
    if unknown := [role for role in needed if role not in FIELDS]:
        raise ConfigurationError(
            f"the driver {name!r} needs the role {shown(unknown[0])}, for which a tube has no field: there are "
            f"{', '.join(FIELDS)}"
        )
    Machine(compose(whole, "auto_increment"), ["status", *needed])
