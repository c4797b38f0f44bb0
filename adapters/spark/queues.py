"""Which queue is meant."""

from __future__ import annotations

from typing import Any

import xq
from xq.errors import BadType, shown


def queue_of(of: object) -> xq.Queue[Any]:
    """The queue of a model, of a tube, or the one that is given. Raises BadType."""
    found = of if isinstance(of, xq.Queue) else getattr(getattr(of, "model", of), "xq", None)
    if not isinstance(found, xq.Queue):
        raise BadType(f"a queue is a model that was upgraded, its xq, or a tube, not {shown(of)}")
    return found
