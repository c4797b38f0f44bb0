"""What the feature after notes in the links of tasks to their parents, when the rows of either change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xq.features.after.postgres import AfterProgram
from xq.sql.effects import UPDATED
from xq.sql.links import ENDED, LEAVES, MAY_END, Links
from xq.sql.rows import Rows
from xq.sql.slice import Effect, Slice

HAVE_NOT_ENDED = "{old_is_parent} AND state IN ('', 'B')"
BY_DELETE = "CASE WHEN {was_taken} AND {event_name} = 'ack' THEN 'D' ELSE 'X' END"
EFFECTS = (
    Effect("after", UPDATED, LEAVES, where="{old_is_child}", trigger="after_update"),
    Effect("after", UPDATED, MAY_END, {"state": ENDED}, HAVE_NOT_ENDED, trigger="after_update"),
    Effect("after", {"delete": ""}, "{old_after} IS NOT NULL", where="{old_is_child}"),
    Effect("after", {"delete": ""}, "{surely_was}", {"state": BY_DELETE}, HAVE_NOT_ENDED),
)


class AfterSlice(Slice):
    """One queue's links."""

    terms: Rows
    tables = ("after",)
    program = AfterProgram

    @property
    def pending(self) -> str:  # type: ignore[override]
        return Links(self.terms).any

    @property
    def effects(self) -> Sequence[Effect]:  # type: ignore[override]
        return EFFECTS if self.terms.settles else ()  # else a function notes the ends, and settles the dependants

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        keys, parts = self.terms.keys, self.terms.parts
        is_parent = Links.same([f"p{i}" for i in range(len(keys))], keys, other=f"{version}.")
        return {f"{old}_is_parent": is_parent, f"{old}_is_child": Links.same(parts, keys, other=f"{version}.")}
