"""What stands beside the features of FEATURES: their types for type checkers, and their examples for the tests."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

import xq
from tests.features import EXAMPLES, alone, conflict, machine_of, together
from xq.core import options as types
from xq.core.options import WRITES
from xq.features import FEATURES
from xq.upgrading.registry import catalogue

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "tests/contract"
TYPES = {name: set(kind.__annotations__) for name, kind in vars(types).items() if hasattr(kind, "__total__")}


def kinds(hint: Any) -> set[Any]:
    """What a union consists of, without limits."""
    if get_origin(hint) is Annotated:
        return kinds(hint.__origin__)
    parts = get_args(hint) if "Union" in type(hint).__name__ or "Union" in str(get_origin(hint)) else ()
    return {kind for part in parts for kind in kinds(part)} or {hint}


def test_each_feature_has_an_example_and_its_type():
    assert list(EXAMPLES) == list(FEATURES)
    assert list(get_type_hints(xq.Features)) == list(FEATURES)


def test_the_guide_has_a_row_for_each_feature():
    rows = (ROOT / "docs/guide.md").read_text().partition("\n## Features\n")[2].partition("\n## ")[0]
    assert {*re.findall(r"^\| `(\w+)` \|", rows, re.M)} == {*FEATURES}


@pytest.mark.parametrize("name", FEATURES)
def test_the_type_of_a_feature_is_what_its_function_takes(name):
    (taken,) = (hint for what, hint in get_type_hints(FEATURES[name]).items() if what != "return")
    assert kinds(get_type_hints(xq.Features)[name]) - {bool} == (kinds(taken) | {xq.Feature, type(None)}) - {bool}


def accepted(method: str) -> set[str]:
    """The options that a type checker accepts for a method."""
    parameters = inspect.signature(getattr(xq.Queue, method, lambda: None)).parameters
    named = (TYPES[each.annotation[7:-1]] for each in parameters.values() if "Unpack" in str(each.annotation))
    return {*parameters}.union(*named)


def test_the_types_of_calls_have_the_options_of_the_features_and_no_other():
    taken = catalogue().options
    assert {at for at in taken if at[1] not in accepted(at[0]) | accepted(f"{at[0]}_many")} == set()
    named = {option for _, option in taken} | {option for options in WRITES.values() for option in options}
    assert set[str]().union(*TYPES.values()) - named == {"on"}


@pytest.mark.parametrize("name", FEATURES)
def test_each_method_and_option_of_a_feature_is_in_a_call_of_its_example(name):
    brought = {method for method, features in catalogue().events.items() if name in features}
    brought |= {option for (_, option), features in catalogue().options.items() if name in features}
    called = {word for _, event, options, *_ in EXAMPLES[name].calls for word in (event, *options)}
    elsewhere = EXAMPLES[name].elsewhere
    assert brought - {"at"} <= called | elsewhere.keys()
    assert elsewhere.keys() <= brought - called
    assert all(word in (CONTRACT / path).read_text() for word, path in elsewhere.items())


def test_all_features_but_those_that_exclude_another_go_together():
    excluded = {name for name in FEATURES if EXAMPLES[name].beside is None or any(conflict(name, o) for o in FEATURES)}
    assert {*FEATURES} - excluded <= together().keys()
    assert machine_of(together()).states
    assert all(machine_of(alone(name)).states for name in FEATURES)
