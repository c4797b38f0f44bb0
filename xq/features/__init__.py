"""The features that come with xq, by name. Each is a function from its value in `features=` to data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict

from xq.core.machine import Feature, Retval, Strategy
from xq.features.after import after
from xq.features.buried import buried
from xq.features.delayed import delayed
from xq.features.endless import endless
from xq.features.events import events
from xq.features.groups import groups
from xq.features.guard import guard
from xq.features.history import history
from xq.features.id import id
from xq.features.keep import keep
from xq.features.lifetime import lifetime
from xq.features.limit import limit
from xq.features.max_takes import max_takes
from xq.features.not_check_session import not_check_session
from xq.features.priority import priority
from xq.features.rate import rate
from xq.features.retval import retval
from xq.features.steps import steps
from xq.features.ttl import ttl
from xq.features.ttr import ttr
from xq.features.unique import unique
from xq.features.utube import utube
from xq.features.zombie import zombie

Switch = bool | Feature | None  # None is off, as False; a Feature is used as it is
Lasting = bool | float | timedelta | Feature | None


class Features(TypedDict, total=False):
    """The values of `features=`, for type checkers: True, also seconds where there is a time. False and None are off.

    To name features of your own, inherit from it: `class Mine(xq.Features, total=False): retry: xq.Feature`.
    """

    id: Strategy | Callable[..., Any] | Feature | None
    retval: Retval | Feature | None
    buried: Switch | Literal["any"]
    delayed: Switch
    keep: Switch | timedelta
    zombie: Lasting
    ttl: Lasting
    lifetime: Lasting
    ttr: Lasting
    not_check_session: Switch
    unique: Switch | str
    utube: Switch | int | Mapping[str, Any]
    limit: int | Feature | None
    max_takes: int | Mapping[str, Any] | Feature | None
    rate: str | Mapping[str, Any] | Feature | None
    groups: Switch
    guard: Switch | Literal["log"]
    history: Lasting
    events: Switch
    priority: Switch | Literal["highest"]
    endless: Switch
    after: Switch
    steps: Switch


FEATURES: Mapping[str, Callable[..., Feature]] = {
    feature.__name__: feature
    for feature in (
        id,
        retval,
        buried,
        delayed,
        keep,
        zombie,
        ttl,
        lifetime,
        ttr,
        not_check_session,
        unique,
        utube,
        limit,
        max_takes,
        rate,
        groups,
        guard,
        history,
        events,
        priority,
        endless,
        after,
        steps,
    )
}
