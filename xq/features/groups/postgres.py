"""On PostgreSQL the triggers end groups, in the statement of the last member's end."""

from __future__ import annotations

from collections.abc import Mapping

from xq.sql.postgres.postgres_objects import SERVER_TIME, Program

FEW = 32  # members: if more are left, an end does not lock the group's row
# What the function raises if `then` has changed nothing.
SKIPPED = "another task has its unique value, or the task to be signalled is done or gone, or has this signal"


class GroupsProgram(Program):
    """Calls a function for the groups whose members end."""

    words = ("programs",)

    def within(self, change: str, known: Mapping[str, str]) -> str:
        return self.objects.filled_in(self.file, change, {**known, "settle": self.terms.side("settle")})

    @property
    def functions(self) -> Mapping[str, str]:
        members, objects = self.slice, self.objects
        known = objects.known | {
            "settle": self.terms.side("settle"),
            "of_name": members.of("xq_name"),
            "live": self.terms.in_states(members.live),
            "keys_down": ", ".join(f"{key} DESC" for key in self.terms.keys),
            "few": str(FEW),
            "has_ended": members.has_ended("xq_name", "xq_row.runs"),
            "now": SERVER_TIME,
            "skipped": self.terms.literal(SKIPPED),
        }
        return {"group": objects.function(self.file, "settle", known)}
