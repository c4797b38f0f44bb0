"""The queries of MariaDB and MySQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from xq.core.compile import Statement
from xq.core.connections import Connections
from xq.sql.queries import ROLL_UP, ServerQueries


class InnodbQueries(ServerQueries):
    """It deletes rows by key, in order: a table scan would lock what others are writing."""

    def roll_up(self, store: Connections) -> bool:
        count = self.terms.side("count")
        ((last,),) = store.execute(f"SELECT MAX(id) FROM {count}")
        if last is None:
            return False
        # Not to the table's end: a lock on its last row would block inserts after it.
        some = (
            f"SELECT id, tube, source, target, n FROM {count} WHERE id < {last} ORDER BY id LIMIT {ROLL_UP}"
            f"{self.terms.skip}"
        )
        with store.atomic():
            found = store.execute(some)
            sums: Counter[tuple[str, str, str]] = Counter()
            for _, tube, source, target, n in found:
                sums[tube, source, target] += n
            if len(found) > len(sums):
                ids = ", ".join(str(row[0]) for row in found)
                # By key, in order: a full scan would lock the gap in which others insert.
                store.execute(f"DELETE FROM {count} WHERE id IN ({ids}) ORDER BY id LIMIT {len(found)}")
                for (tube, source, target), n in sums.items():
                    values = {"tube": tube, "source": source, "target": target, "count": n}
                    self.terms.execute(store, self.add_counter, values)
        return len(found) >= ROLL_UP

    def forget_rows(self, ids: Sequence[int]) -> Statement:
        # In order, and no further: a full scan would wait for rows that others are writing.
        statement = super().forget_rows(ids)
        return replace(statement, sql=f"{statement.sql} AND id <= {max(ids)} ORDER BY id LIMIT {len(ids)}")
