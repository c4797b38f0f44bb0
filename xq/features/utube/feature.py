"""The feature `utube`: take the tasks of a group one after the other, and by turns those of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Gt, Le

from xq.core.errors import ConfigurationError, is_integer, shown
from xq.core.machine import READY, TAKEN, Feature, Guard, LimitValue, On, single
from xq.features.utube.slice import UtubeSlice

MOST = 1_000_000  # tasks of one utube that may be taken at a time


def utube(on: On | Annotated[int, Gt(0), Le(MOST)] | Mapping[str, Any] = True) -> Feature:
    """Let workers take at most one task per value of the role `utube` at a time, or `on` tasks, in their order.

    Tasks without a value are not limited. With {"n": 4, "of": {"acme": 10}} single values have other limits. The
    numbers are defaults: `set_limit` changes them while programs run. With {"n": 4, "fair": True} each take goes to the
    utube that was served longest ago: a new one first, and priorities count within a utube only. Tasks without a value
    are one utube then, which has no limit. A utube that has become empty keeps its turn until each other one with tasks
    has been served since.
    """
    given: Mapping[str, Any] = on if isinstance(on, Mapping) else {"n": on}
    if unknown := given.keys() - {"n", "fair", "of"}:
        raise ConfigurationError(f"feature 'utube' knows n, fair and of, not {shown(min(map(str, unknown)))}")
    most, fair, of = given.get("n", 1), given.get("fair", False), single(given.get("of"), "utube")
    most = 1 if most is True else most
    limits = {None: _limit(most)} | {value: _limit(n) for value, n in of.items()}
    if not isinstance(fair, bool):
        raise ConfigurationError(f"feature 'utube': fair is True or False, not {shown(fair)}")
    structure = {"fair": True} if fair else {}
    guard = Guard(
        *("utube", "utube", TAKEN),
        value=fair,
        in_the_way=READY + TAKEN,
        limits=limits,
        limit=_limit,
        checks="turns",
        unset=1,
    )
    given = {"n": most, **structure} | ({"of": of} if of else {})
    return Feature(
        "utube",
        needs=("utube",),
        guards=(guard,),
        structure=structure or True,
        given=given,
        slice=UtubeSlice,
    )


def _limit(n: Any) -> LimitValue:
    if not is_integer(n) or not 0 < n <= MOST:
        raise ConfigurationError(f"feature 'utube' takes a number of 1 to {MOST:,} tasks, not {shown(n)}")
    return LimitValue(n, 0, n)
