"""The heads of utubes on SQLite."""

from __future__ import annotations

from xq.adapters.databases.groups import FIRST, Groups, Turn


class SqliteGroups(Groups):
    """Heads whose triggers look whether they have anything to do by a condition of each statement."""

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

    def turned(self, turn: Turn) -> list[str]:
        """What a trigger does for a row."""
        if turn.ready:
            # Most come behind others, and that must be found out but once.
            mine = ", ".join(f"NEW.{column}" for column in self.ordered)
            known = ", ".join(f"{column} = excluded.{column}" for column in self.columns)
            return [
                f"INSERT INTO {self.heads} (utube, taken, {', '.join(self.columns)}) SELECT {turn.utube}, 0, {mine} "
                f"WHERE {turn.when} AND {self._is_first(turn.utube)}{self.of.on_conflict('utube', known)};"
            ]
        counted = f"INSERT INTO {self.heads} (utube, taken) SELECT {turn.utube}, {turn.taken} WHERE {turn.when}"
        looked = f"{self.first_known} WHERE utube = {turn.utube} AND {turn.when}"
        left = f"DELETE FROM {self.heads} WHERE utube = {turn.utube} AND taken = 0 AND k0 IS NULL AND {turn.when}"
        return [f"{counted}{self.adding};", f"{looked};", f"{left};"]
