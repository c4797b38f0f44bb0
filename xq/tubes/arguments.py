"""Errors for wrong arguments: options in a table, as tarantool/queue takes them, or under an unknown name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from xq.core.errors import BadType, shown
from xq.core.kinds import R

P = ParamSpec("P")


def by_name(method: Callable[P, R]) -> Callable[P, R]:
    """Return the method wrapped: wrong arguments raise BadType with a hint how to call it, not TypeError.

    It runs in the context `_calls` of its object.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        of: Any = args[0]
        try:
            with of._calls:
                return method(*args, **options)
        except TypeError:
            if misfit := _misfit(method.__name__, signature, args, options):
                raise misfit from None
            raise

    return checked


def _misfit(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], options: Mapping[str, Any]
) -> BadType | None:
    try:
        signature.bind(*args, **options)
        return None
    except TypeError as error:
        why = str(error)
    parameters = list(signature.parameters.values())[1:]  # without self
    placed = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    more = args[1 + len(placed) :]
    given = more[0] if more and isinstance(more[0], Mapping) else options
    strange = [each for each in given if each not in (*placed, *known)]
    if strange and not takes_any:
        return BadType(f"{name} has no option {shown(strange[0])}: it has {', '.join(known or placed) or 'none'}")
    if more and (known or takes_any):
        example = [f"{option}={shown(value)}" for option, value in given.items()] or [
            f"{option}=..." for option in known
        ]
        return BadType(f"{name} takes its options by name: {name}({', '.join([*placed, *example])})")
    return BadType(f"{name}: {why}")
