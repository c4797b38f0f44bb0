"""What the feature groups keeps of groups, when the rows of their members change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xq.features.groups.postgres import GroupsProgram
from xq.sql.effects import UPDATED
from xq.sql.groups import Groups
from xq.sql.slice import Effect, Slice
from xq.sql.terms import Terms

ITS_GROUP = "name = {old_group}"
IS_KILLED = "{was_unfinished} AND {new} = 'X' AND {event_name} <> 'ack'"
KILLED = Effect("group", {**UPDATED, "delete": ""}, IS_KILLED, {"killed": "killed + 1"}, ITS_GROUP)
# A member that leaves its group has not ended.
LEFT = Effect(
    "group", UPDATED, "{was_unfinished} AND {other_group}", {"total": "total - 1"}, ITS_GROUP, trigger="update_group"
)


class GroupsSlice(Slice):
    """One queue's groups."""

    tables = ("group",)
    program = GroupsProgram

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.groups = Groups(terms)
        self.watched, self.indexes = [self.groups.role], {"members": self.groups.index}

    @property
    def pending(self) -> str:  # type: ignore[override]
        return self.groups.any_open

    @property
    def effects(self) -> Sequence[Effect]:  # type: ignore[override]
        return (KILLED, LEFT) if self.terms.settles else (LEFT,)  # else the function that ends a group counts

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        groups = self.groups
        status, group = (f"{version}.{column}" for column in (self.terms.roles["status"], groups.role))
        is_unfinished = f"{group} IS NOT NULL AND {groups.unfinished(status)}"
        is_live = f"{group} IS NOT NULL AND {self.terms.in_states(groups.live, status)}"
        return {f"{was}_unfinished": f"COALESCE({is_unfinished}, FALSE)", f"{was}_live": f"COALESCE({is_live}, FALSE)"}
