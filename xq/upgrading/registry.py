"""xq's features: convert `features=` to data, and list the methods and options that each one adds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from xq.core.errors import ConfigurationError, shown
from xq.core.machine import Feature
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
    return [FEATURES[name](value) for name, value in on.items()] + list(own.values())


def _explained(error: ValidationError, given: Mapping[str, Any]) -> str:
    name = str(error.errors()[0]["loc"][0])
    wants = "; ".join(dict.fromkeys(problem["msg"] for problem in error.errors() if "Feature" not in problem["msg"]))
    wants = wants.replace("; Input should be", " or").replace("a valid boolean", "True")
    hint = ", such as timedelta(days=30)" if name == "keep" else ""
    return f"feature {shown(name)} does not take {shown(given[name])}: {wants.replace('Input', 'it')}{hint}"


@cache
def catalogue() -> Catalogue:
    """Return the features that add each method and option, for FeatureOff's messages."""
    methods: dict[str, tuple[str, ...]] = {}
    options: dict[tuple[str, str], tuple[str, ...]] = {}
    for name, make in FEATURES.items():
        feature = make()
        for method in feature.methods:
            methods[method] = (*methods.get(method, ()), name)
        for option, taken_by in feature.options.items():
            for method in taken_by:
                options[method, option] = (*options.get((method, option), ()), name)
    return Catalogue(methods, options)
