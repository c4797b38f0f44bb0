"""Group heads on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from xq.core.compile import Selector
from xq.core.connections import Connections
from xq.features.utube.heads import EMPTY, FIRST, HeadChange, UtubeHeads
from xq.sql.sqlite.sqlite_objects import type_of


class SqliteHeads(UtubeHeads):
    """Each statement in a trigger has a condition: whether the row changes anything in the head."""

    join = "CROSS JOIN"  # in this order

    @property
    def by_open(self) -> str:  # type: ignore[override]
        return self.terms.by_index(self.terms.name(f"{self.suffix}_open"))

    def called(self, column: str) -> str:
        # Whatever the column's collation. A key that is compared with a column needs its affinity.
        value = self.terms.value_of("utube", column)
        key = f"CAST(COALESCE('=' || {value}, '') AS TEXT)" if self.fair else column
        return f"{key} COLLATE BINARY"

    @property
    def now_served(self) -> str:  # type: ignore[override]
        return f"(SELECT COALESCE(MAX(served), 0) + 1 FROM {self.itself})"  # two takes may have one moment

    @property
    def adding(self) -> str:
        adding = super().adding
        return f"{adding}, served = {self.now_served}" if self.fair else adding

    @property
    def first_known(self) -> str:
        return f"UPDATE {self.table} SET {self.set_first(f'{self.itself}.utube')}"

    def relimit(self, store: Connections, value: str) -> None:
        utube = f"{self.itself}.utube"
        limit = self.limit(utube)
        changed = f"n = {limit}, most = {self.terms.greatest('taken', limit)}, {self.set_first(utube)}"
        self.terms.execute(store, f"UPDATE {self.table} SET {changed} WHERE {self.meant}", {"value": value})

    def select(self, columns: str, rows: Selector) -> str:
        both = " UNION ALL ".join(f"SELECT * FROM ({query})" for query in self.candidates(self.mine, rows))
        return f"SELECT {columns} FROM ({both}) ORDER BY {self.terms.order} LIMIT {self.terms.limit(rows)}"

    def of_tables(self, stored: Callable[..., str]) -> Mapping[str, str]:
        terms, source = self.terms, self.terms.source
        fields = [*(source.roles[role] for role in ("utube", *source.ordered_by)), *source.key]
        typed = zip(["utube", *self.columns], map(type_of, fields), strict=True)
        return {
            "typed_heads": ", ".join(f"{name} {kind}" for name, kind in typed),
            "columns": self.in_turn(),
            "is_open": self.is_open(),
            **{name: terms.object(terms.name(f"{self.suffix}_{name}")) for name in ("open", "served")},
            "heads": self.itself,
        }

    def in_trigger(self, change: str, words: Collection[str], known: Mapping[str, str]) -> str:
        return "".join(f" {sql}" for each in self.changes_of(change) for sql in self._on(each))

    def _on(self, change: HeadChange) -> list[str]:
        """Return what a trigger does for a row."""
        utube, taken, when, came = change
        if came:
            key = self.terms.tuple_of([f"NEW.{key}" for key in self.terms.keys])
            first = self.first(", ".join(f"{FIRST}{key}" for key in self.terms.keys), utube)
            # Most tasks are not their group's first, so evaluate that once.
            mine = ", ".join(f"NEW.{column}" for column in self.terms.ordered)
            known = ", ".join(f"{column} = excluded.{column}" for column in self.columns)
            added, limit = f"INSERT INTO {self.table} (utube, taken, n, most", self.limit(utube)
            return [
                f"{added}) SELECT {utube}, 1, {limit}, {limit} WHERE {when} AND {taken}{self.adding};",
                f"{added}, {', '.join(self.columns)}) SELECT {utube}, 0, {limit}, {limit}, {mine} "
                f"WHERE {when} AND NOT {taken} AND {key} = ({first}){self.terms.on_conflict('utube', known)};",
            ]
        # A full group needs no first task: whatever makes room in it looks for one.
        most = self.most_after(taken, f"{self.itself}.")
        taken = f"{self.itself}.taken + {taken}"
        first = self.set_first(f"{self.itself}.utube", f" AND {self.has_room(f'{self.itself}.', taken)}")
        if self.fair:
            first += f", served = CASE WHEN {change.taken} > 0 THEN {self.now_served} ELSE served END"
        mine = f"WHERE utube = {utube} AND {when}"
        emptied = f"DELETE FROM {self.table} {mine} AND {EMPTY};"
        changed = f"UPDATE {self.table} SET taken = {taken}, most = {most}, {first} {mine};"
        return [changed, *([] if self.fair else [emptied])]
