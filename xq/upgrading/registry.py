"""xq's features: convert `features=` to data, and list the methods and options that each one adds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from xq.api import Queue
from xq.core.errors import ConfigurationError, shown
from xq.core.machine import REMEMBERED, Feature, Machine
from xq.core.options import Catalogue
from xq.features import FEATURES


@cache
def _model_of_features() -> Any:
    """Return the pydantic model for `features=`. It validates each argument by its annotation."""
    fields: dict[str, Any] = {}
    for name, feature in FEATURES.items():
        hint, *_ = get_type_hints(feature, include_extras=True).values()
        fields[name] = (hint | Feature | None, None)
    config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return create_model("Features", __config__=config, **fields)


def compose(features: Mapping[str, Any], default_id: str = "required") -> list[Feature]:
    """Return the features that are on, as data. A Feature as value is used unchanged; False and None mean off.

    Raises ConfigurationError, which names the feature, its values and the given one.
    """
    if not isinstance(features, Mapping):
        raise ConfigurationError(f"features is a mapping of names to values, not {shown(features)}")
    own = {name: value for name, value in features.items() if isinstance(value, Feature)}
    for name in features:
        if not isinstance(name, str) or (name not in FEATURES and name not in own):
            raise ConfigurationError(
                f"there is no feature {shown(name)}: there are {', '.join(FEATURES)}, or a value that is an xq.Feature"
            )
    on = {
        name: value for name, value in features.items() if name not in own and value is not None and value is not False
    }
    if "id" not in own and not any("key" in feature.fill for feature in own.values()):
        on = {"id": default_id} | on
    try:
        _model_of_features()(**on)
    except ValidationError as error:
        raise ConfigurationError(_explained(error, on)) from error
    # In one order, so that a program and a record have the same triggers, to the letter.
    return [make(on[name]) for name, make in FEATURES.items() if name in on] + list(own.values())


def _explained(error: ValidationError, given: Mapping[str, Any]) -> str:
    name = str(error.errors()[0]["loc"][0])
    wants = "; ".join(dict.fromkeys(problem["msg"] for problem in error.errors() if "Feature" not in problem["msg"]))
    wants = wants.replace("; Input should be", " or").replace("a valid boolean", "True")
    hint = ", such as timedelta(days=30)" if name == "keep" else ""
    return f"feature {shown(name)} does not take {shown(given[name])}: {wants.replace('Input', 'it')}{hint}"


@cache
def catalogue() -> Catalogue:
    """Return the features that add each method and option, for FeatureOff's messages, and those that have limits.

    A method whose event the feature's table brings, and an option in seconds that its timers and detours take, need
    not be named in the feature's `methods` and `options`.
    """
    methods: dict[str, tuple[str, ...]] = {}
    options: dict[tuple[str, str], tuple[str, ...]] = {}
    made = {name: make() for name, make in FEATURES.items()}
    for name, feature in made.items():
        for method in dict.fromkeys((*feature.methods, *_events(feature, made))):
            methods[method] = (*methods.get(method, ()), name)
        named = {(method, option) for option, taken_by in feature.options.items() for method in taken_by}
        for taken in sorted(named | _seconds(feature, made)):
            options[taken] = (*options.get(taken, ()), name)
    limited = tuple(name for name, feature in made.items() if any(guard.limits for guard in feature.guards))
    return Catalogue(methods, options, limited)


def _events(feature: Feature, features: Mapping[str, Feature]) -> list[str]:
    """Return the methods whose events `feature` makes possible."""
    required = [features[name] for name in feature.requires]
    without, machine = Machine(required, _roles(*required)), Machine([*required, feature], _roles(*required, feature))
    return [event for event in machine.events if event not in without.events and hasattr(Queue, event)]


def _seconds(feature: Feature, features: Mapping[str, Feature]) -> set[tuple[str, str]]:
    """Return the methods and their options for the timers and detours of `feature`, beside each feature's events."""
    timeless = {name: replace(each, timers=(), detours=()) for name, each in features.items() if name != feature.name}
    required = {name: timeless[name] for name in feature.requires}
    found: set[tuple[str, str]] = set()
    for name, other in timeless.items() if feature.timers or feature.detours else ():
        if other.transitions:
            beside = [*(required | {name: other}).values(), feature]
            with suppress(ConfigurationError):  # they do not go together
                machine = Machine(beside, _roles(*beside))
                found |= {(event, option) for event in machine.events for option in machine.options(event)}
    found |= {(event, "at") for event, option in found if option == "delay"}
    return {(event, option) for event, option in found if hasattr(Queue, event)}


def _roles(*features: Feature) -> set[str]:
    return {"status", "runat", "deadline", *REMEMBERED}.union(*(feature.needs for feature in features))
