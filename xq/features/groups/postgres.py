"""On PostgreSQL the triggers end groups, in the statement of the last member's end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xq.sql.groups import FEW, SKIPPED
from xq.sql.postgres.postgres_objects import SERVER_TIME, Program


class GroupsProgram(Program):
    """Calls a function for the groups whose members end."""

    file = Path(__file__).parent / "postgres.sql"
    words = ("programs",)

    def within(self, change: str, known: Mapping[str, str]) -> str:
        return self.objects.filled_in(self.file, change, known)

    @property
    def functions(self) -> Mapping[str, str]:
        groups, objects = self.terms.groups, self.objects
        assert groups
        known = objects.known | {
            "of_name": groups.of("xq_name"),
            "live": self.terms.in_states(groups.live),
            "keys_down": ", ".join(f"{key} DESC" for key in self.terms.keys),
            "few": str(FEW),
            "has_ended": groups.has_ended("xq_name", "xq_row.runs"),
            "now": SERVER_TIME,
            "skipped": self.terms.literal(SKIPPED),
        }
        return {"group": objects.function(self.file, "settle", known)}
