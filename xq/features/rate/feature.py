"""The data of the feature `rate`: bound how many tasks are taken in a span of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from xq.core.errors import ConfigurationError, is_integer, shown
from xq.core.machine import Feature, Guard, LimitValue, single
from xq.features.rate.slice import RateSlice

SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}  # seconds
RATE = re.compile(r"([1-9]\d{0,8})/(\d{0,6})([smhd])")
BY = ("utube", "tube")
STEP = 20_000  # microseconds, in which takes need not be spaced: a clock may show one time for so long
LONGEST_REFILL = 2**53  # microseconds
KNOWN = ("limit", "burst", "window")  # of a bucket


def rate(limit: str | Mapping[str, Any] = "100/m") -> Feature:
    """Take at most so many tasks in any span of time: "100/m", or "5/10s". The units are s, m, h and d.

    {"limit": "100/m", "by": "utube"} limits each value of the role utube (or tube) by itself; tasks without a value are
    not limited. The takes are evenly spaced. With "burst": 20, up to 20 come at once after a pause, and the others
    are 1 / (100 - 20 + 1) minutes apart, so that no minute has more than 100. With "window": False, too, the others are
    1 / 100 minutes apart, as in a token bucket: a queue that is never empty takes 100 a minute, and the minute that
    begins with a burst has up to 119. A limit of more than 1,000 a second is finer than a clock: its burst is what
    comes in 20 ms, or more. "of": {"acme": "1000/m", "free": {"limit": "10/m", "burst": 5}} gives single
    values limits of their own, and the others the common one; each has the common burst and window if it names none.
    The limits are defaults: `set_limit` changes them while programs run.
    """
    given: Mapping[str, Any] = {"limit": limit} if isinstance(limit, str) else limit
    if unknown := given.keys() - {*KNOWN, "by", "of"}:
        first = shown(sorted(map(str, unknown))[0])
        raise ConfigurationError(f"feature 'rate' knows limit, by, burst, window and of, not {first}")
    by = given.get("by")
    if by not in (None, *BY):
        raise ConfigurationError(f"feature 'rate' limits by {' or by '.join(BY)}, not by {shown(by)}")
    common = {name: given[name] for name in KNOWN if name in given}
    of = single(given.get("of"), "rate")
    if of and not by:
        raise ConfigurationError('feature \'rate\': of needs "by": "utube" or "tube", the role that has these values')

    def read(own: Any, what: str = "its limit") -> LimitValue:
        own = {"limit": own} if isinstance(own, str) else own
        if not isinstance(own, Mapping) or own.keys() - KNOWN:
            wanted = 'a rate such as "100/m", or one with burst or window, {"limit": "100/m", "burst": 5}'
            raise ConfigurationError(f"feature 'rate': {what} is {wanted}, not {shown(own)}")
        return _bucket(own, common)

    limits = {None: read(common)} | {value: read(own, f"of {shown(value)}") for value, own in of.items()}
    guard = Guard("rate", by or "", limits=limits, limit=read)
    structure = {"by": by} if by else {}
    whole = common | structure | ({"of": of} if of else {})
    return Feature(
        "rate",
        needs=(by,) if by else (),
        guards=(guard,),
        structure=structure or True,
        given=whole,
        slice=RateSlice,
    )


def _bucket(given: Mapping[str, Any], common: Mapping[str, Any]) -> LimitValue:
    """Return a limit; what it lacks is as in `common`."""
    text, window = given.get("limit"), given.get("window", common.get("window", True))
    found = RATE.fullmatch(text) if isinstance(text, str) else None
    span = int(found[2] or 1) * SPANS[found[3]] * 1_000_000 if found else 0
    if not found or not span:
        raise ConfigurationError(f'feature \'rate\' takes a limit such as "100/m" or "5/10s", not {shown(text)}')
    most, burst = int(found[1]), given.get("burst")
    if burst is None:
        burst = min(most, common.get("burst") or 1)
    if not is_integer(burst) or not 0 < burst <= most:
        raise ConfigurationError(f"feature 'rate': burst is a number of tasks from 1 to {most:,}, not {shown(burst)}")
    if not isinstance(window, bool):
        raise ConfigurationError(f"feature 'rate': window is True or False, not {shown(window)}")
    at_once = max(burst, most * STEP // span) if most * 1_000 > span else burst
    interval = -(-span // (most - at_once + 1 if window else most))  # see slice.py
    if at_once * interval > LONGEST_REFILL:
        raise ConfigurationError("feature 'rate': the burst and the time between two tasks come to more than 285 years")
    return LimitValue(interval, interval * (at_once - 1), text if given.keys() == {"limit"} else dict(given))
