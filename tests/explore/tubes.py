"""Tubes: their calls, and how they are created and dropped."""

from __future__ import annotations

from typing import Any

import xq
import xq.tubes
from tests.explore.calls import Call, Does, by_name
from tests.explore.homes import World
from xq.tubes import tables

TRACED = {**xq.tubes.PRESETS["fifottl"], "history": True}


def on_tubes(w: World) -> None:
    """Replace the world's queue by that of a tube, whose tasks have their data as a name."""
    setattr(tables, "new_table", lambda name: f"xq_tube_{name}_task")  # noqa: B010  else the name differs in each run
    w.tubes = xq.Tubes(w.db, clock=w.clock)
    w.tubes.register_driver("traced", TRACED)
    w.tube = w.tubes.create_tube("pages", "traced", ttr=60, if_not_exists=True)
    w.q, w.table, w.named = w.tube.model.xq, w.tube.model._meta.table_name, lambda row: str(row["data"])
    w.tube.model.name = property(lambda task: str(task.data))


def put(w: World, n: int = 1, **options: Any) -> Any:
    return [w.tube.put(w.row()["name"], **options).data for _ in range(n)]


def take(w: World, n: int = 1) -> None:
    w.t = w.tube.take_many(n, 0)
    w.note("had", *[f'"{task.data}"' for task in w.t])


def tube(name: str, *before: Does, call: Does, **given: Any) -> Call:
    return Call(f"tube {name}", lambda w: [put(w, 3), *(each(w) for each in before)], call, opens=on_tubes, **given)


def taken(w: World) -> None:
    take(w, 2)


def buried(w: World) -> None:
    w.tube.bury(w.t[0].id)


def more(w: World) -> None:
    w.tubes.create_tube("more", "traced", if_not_exists=True)


def again(w: World) -> None:
    """Create the tube again: what was cut may have left a part of it."""


ON_TUBES = by_name(
    tube("put", call=put),
    tube("put, delay", call=lambda w: put(w, delay=5)),
    tube("take", call=take, between=()),
    tube("ack", taken, call=lambda w: w.tube.ack(w.t[0].id) and None),
    tube("ack_many", taken, call=lambda w: w.tube.ack_many([task.id for task in w.t]) and None),
    tube("release", taken, call=lambda w: w.tube.release(w.t[0].id, delay=5) and None),
    tube("touch", taken, call=lambda w: w.tube.touch(w.t[0].id, 500) and None),
    tube("bury", taken, call=buried),
    tube("kick", taken, buried, call=lambda w: w.tube.kick(1)),
    tube("delete", taken, call=lambda w: w.tube.delete(w.t[0].id) and None),
    tube("release_all", taken, call=lambda w: w.tube.release_all()),
    tube("truncate", call=lambda w: w.tube.truncate()),
    tube("drop", call=lambda w: w.tube.drop(), recovers=again),
    tube("create_tube", call=more, recovers=more),
)
