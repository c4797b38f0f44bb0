"""PostgreSQL's queries."""

from __future__ import annotations

from xq.core.connections import Connections
from xq.sql.queries import ROLL_UP, ServerQueries


class PostgresQueries(ServerQueries):
    """One statement rolls up counters."""

    def roll_up(self, store: Connections) -> bool:
        count = self.terms.side("count")
        # One process at a time, without row locks: each writes 56 bytes to the log, and DELETE returns a row only once.
        # Not TRUNCATE: a transaction or a standby with an older snapshot would see neither the rows nor their sums.
        alone = f"(SELECT pg_try_advisory_xact_lock(hashtext('xq'), hashtext({self.terms.literal(count)})))"
        some = f"SELECT ctid FROM {count} WHERE {alone} LIMIT {ROLL_UP}"
        ((found,),) = store.execute(
            f"WITH old AS (DELETE FROM {count} WHERE ctid = ANY(ARRAY({some})) RETURNING *), "
            f"added AS (INSERT INTO {count} (tube, source, target, n) "
            "SELECT tube, source, target, SUM(n) FROM old GROUP BY 1, 2, 3) SELECT COUNT(*) FROM old"
        )
        return bool(found >= ROLL_UP)
