"""SQLite's queries, where a history's rows are the counters."""

from __future__ import annotations

from xq.core.kinds import NUMBERED
from xq.sql.queries import Queries

MARK = "tube = '' AND source = '' AND target = ''"  # the counter whose number is the id up to which others are sums


class SqliteQueries(Queries):
    """Where there is a history, the counters have its rows up to a mark, and the queries add the others."""

    @property
    def highest_key(self) -> str:  # type: ignore[override]
        (key, *more), (field, *_) = self.terms.keys, self.terms.source.key
        makes = not more and field.kind in NUMBERED
        return f"SELECT MAX({key}) FROM {self.terms.table_in_schema}" if makes else ""

    @property
    def history_counts(self) -> bool:
        """Whether the history's rows are the counters. With a limit each put reads those, so they are added up."""
        return self.terms.has_history and not self.terms.machine.room

    @property
    def counted_up_to(self) -> str:
        """The id up to which the counters have the history's rows."""
        return f"(SELECT n FROM {self.terms.side('count')} WHERE {MARK})"

    @property
    def newest(self) -> str:
        """The newest history row's id."""
        return f"(SELECT COALESCE(MAX(id), 0) FROM {self.terms.side('history')})"

    @property
    def counters(self) -> str:
        if not self.history_counts:
            return super().counters
        noted = f"FROM {self.terms.side('history')} WHERE id > {self.counted_up_to} AND source <> target"
        found = [
            f"SELECT tube, source, target, n FROM {self.terms.side('count')} WHERE NOT ({MARK})",
            f"SELECT '', source, target, 1 {noted}",
            *(
                [f"SELECT tube, source, target, 1 {noted} AND {self.terms.counted('tube')}"]
                if self.terms.tube_stats
                else []
            ),
        ]
        return f"SELECT tube, source, target, SUM(n) AS n, 1 FROM ({' UNION ALL '.join(found)}) GROUP BY 1, 2, 3"

    @property
    def begun(self) -> str:
        if not self.history_counts:
            return super().begun
        return f"{super().begun} WHERE NOT ({MARK}) UNION ALL SELECT 1 FROM {self.terms.side('history')}"

    @property
    def add_up_history(self) -> str:  # type: ignore[override]
        return f"UPDATE {self.terms.side('count')} SET n = {self.newest} WHERE {MARK}"
