"""Which queue is meant."""

from __future__ import annotations

from typing import Any

import xq
from xq.errors import BadType, shown


def queue_of(of: object) -> xq.Queue[Any]:
    """The queue of a model, of a tube, or the one that is given. Raises BadType."""
    for found in (of, getattr(of, "xq", None), getattr(getattr(of, "model", None), "xq", None)):
        if isinstance(found, xq.Queue):
            return found
    raise BadType(f"{shown(of)} is no queue: give a model that was upgraded, its xq, or a tube")
