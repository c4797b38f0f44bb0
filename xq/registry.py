"""The features of xq: from `features=` to data, and who brings what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from xq.core.errors import ConfigurationError, Conflict, shown
from xq.core.machine import Feature, Machine
from xq.core.schema import ROLES
from xq.core.values import Catalogue
from xq.features import FEATURES


@cache
def _model_of_features() -> Any:
    """The pydantic model of features=: the annotation of each feature's argument is its validator."""
    fields: dict[str, Any] = {}
    for name, feature in FEATURES.items():
        hint, *_ = get_type_hints(feature, include_extras=True).values()
        fields[name] = (hint | Feature | None, None)
    config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return create_model("Features", __config__=config, **fields)


def compose(features: Mapping[str, Any], default_id: str = "required") -> list[Feature]:
    """The features that are on, as data. A value that is a Feature is used as it is; False and None are off.

    Raises ConfigurationError, naming the feature, what it takes and what was given.
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
        raise ConfigurationError(_told(error, on)) from error
    return [FEATURES[name](value) for name, value in on.items()] + list(own.values())


def _told(error: ValidationError, given: Mapping[str, Any]) -> str:
    name = str(error.errors()[0]["loc"][0])
    wants = "; ".join(dict.fromkeys(problem["msg"] for problem in error.errors() if "Feature" not in problem["msg"]))
    return f"feature {shown(name)} does not take {shown(given[name])}: {wants.replace('a valid boolean', 'True')}"


@cache
def catalogue() -> Catalogue:
    """Which features bring which events and options: what is missing when each is left out.

    Left out of nothing but what it requires, and of all that go together, since some options need two.
    """
    features = {name: make() for name, make in FEATURES.items()}
    events: dict[str, list[str]] = {}
    options: dict[tuple[str, str], list[str]] = {}
    for name, feature in features.items():
        for event, option in feature.calls:
            (options.setdefault((event, option), []) if option else events.setdefault(event, [])).append(name)
        alone = [features[required] for required in feature.requires]
        for others in (alone, *_companies(features, feature)):
            with_it, without = Machine([feature, *others], ROLES), Machine(others, ROLES)
            for event in with_it.events:
                if event not in without.events:
                    events.setdefault(event, []).append(name)
            for event, option in sorted(_options(with_it) - _options(without)):
                if others is alone or event in without.events:
                    options.setdefault((event, option), []).append(name)
    return Catalogue(_each_once(events), _each_once(options))


def _companies(features: Mapping[str, Feature], feature: Feature) -> list[list[Feature]]:
    """The largest sets of features that go with one, and without it."""
    clashes = [pair for pair in combinations(features, 2) if _clash(features[pair[0]], features[pair[1]])]
    found = []
    for left_out in product(*clashes):
        names = [
            name
            for name, other in features.items()
            if name not in (*left_out, feature.name) and feature.name not in other.requires
        ]
        others = [features[name] for name in names]
        if feature.name not in left_out and set(feature.requires) <= set(names):
            found.append(others)
    return found


def _clash(one: Feature, other: Feature) -> bool:
    try:
        Machine([replace(one, requires=()), replace(other, requires=())], ROLES)
    except Conflict:
        return True
    return False


def _options(machine: Machine) -> set[tuple[str, str]]:
    choices = {(choice.event, choice.name) for choice in machine.choices}
    return choices | {(event, option) for event in machine.events for option in machine.options(event)}


def _each_once(found: Mapping[Any, list[str]]) -> dict[Any, tuple[str, ...]]:
    return {what: tuple(dict.fromkeys(names)) for what, names in found.items()}
