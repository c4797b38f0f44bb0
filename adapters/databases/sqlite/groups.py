"""Group heads on SQLite."""

from __future__ import annotations

from xq.adapters.databases.groups import FIRST, GroupChange, Groups


class SqliteGroups(Groups):
    """Each statement of a trigger has a condition: whether the row changes anything in the head."""

    join = "CROSS JOIN"  # in this order

    @property
    def by_open(self) -> str:  # type: ignore[override]
        return self.of.by_index(self.of.name(f"{self.suffix}_open"))

    def called(self, column: str) -> str:
        return f"{column} COLLATE BINARY"  # whatever the collation of the column

    def _is_first(self, utube: str) -> str:
        """That the row is the first of its utube: there is but one writer, and no other can come before."""
        mine = ", ".join(f"NEW.{key}" for key in self.of.keys)
        key = f"({mine})" if len(self.of.keys) > 1 else mine
        keys = ", ".join(f"{FIRST}{key}" for key in self.of.keys)
        return f"{key} = ({self.first(keys, utube)})"

    @property
    def first_known(self) -> str:
        return f"UPDATE {self.heads} SET {self.set_first(f'{self.name}.utube')}"

    def on_change(self, change: GroupChange) -> list[str]:
        """What a trigger does for a row."""
        if change.ready:
            # Most come behind others, and that must be found out but once.
            mine = ", ".join(f"NEW.{column}" for column in self.ordered)
            known = ", ".join(f"{column} = excluded.{column}" for column in self.columns)
            return [
                f"INSERT INTO {self.heads} (utube, taken, {', '.join(self.columns)}) SELECT {change.utube}, 0, {mine} "
                f"WHERE {change.when} AND {self._is_first(change.utube)}{self.of.on_conflict('utube', known)};"
            ]
        counted = f"INSERT INTO {self.heads} (utube, taken) SELECT {change.utube}, {change.taken} WHERE {change.when}"
        looked = f"{self.first_known} WHERE utube = {change.utube} AND {change.when}"
        left = f"DELETE FROM {self.heads} WHERE utube = {change.utube} AND taken = 0 AND k0 IS NULL AND {change.when}"
        return [f"{counted}{self.adding};", f"{looked};", f"{left};"]
