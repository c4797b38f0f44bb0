"""The rows of the feature history: what a change of a task's row adds to them."""

from __future__ import annotations

from collections.abc import Mapping

from xq.sql.effects import IS_TRANSITION, Holes, comes, goes, stays
from xq.sql.slice import Effect, Slice

OLD_OWNER, NEW_OWNER = "WHEN {was_taken} THEN {old_owner}", "WHEN {is_taken} THEN {new_owner}"


def noted(on: Holes, when: str, of: str, source: str, target: str, owner: str) -> Effect:
    """Return the effect that adds a row. `of` is the version whose key it has: old or new."""
    row = {column: f"{{{of}_{column}}}" for column in ("key", "tube", "attempt")}
    row |= {"at_us": "{at_us}", "source": source, "target": target, "event": "{event_name}"}
    row |= {"owner": f"CASE {owner} END", "actor": "{by_actor}", "reason": "{by_reason}"}
    return Effect("history", on, when, row)


class HistorySlice(Slice):
    """One queue's history."""

    tables = ("history",)
    effects = (
        # A task whose key changes is another task.
        noted(goes("key"), "{surely_was}", "old", "{old}", "'X'", OLD_OWNER),
        noted(comes("key"), "{surely_is}", "new", "'X'", "{new}", NEW_OWNER),
        noted(stays("key"), IS_TRANSITION, "new", "{old}", "{new}", f"{OLD_OWNER} {NEW_OWNER}"),
    )

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        terms = self.terms
        attempts = f"{version}.{terms.roles['attempts']}" if "attempts" in terms.roles else "NULL"
        key = terms.key_in_history([f"{version}.{key}" for key in terms.keys])
        return {f"{old}_key": key, f"{old}_attempt": attempts}
