"""PostgreSQL's queries."""

from __future__ import annotations

from xq.core.connections import Connections
from xq.sql.queries import ROLL_UP, ServerQueries


class PostgresQueries(ServerQueries):
    """One statement rolls up counters."""

    def look_at_parents(self, listed: bool) -> str:
        # It writes the rows. If it locked them alone, an end at REPEATABLE READ that began before would wait for the
        # put, go on, and not see the links: the dependant would wait for ever.
        which = self.terms.keys_listed() if listed else self.terms.by_key()
        table, status, owner = self.terms.table_in_schema, self.terms.roles["status"], self.terms.roles["owner"]
        return f"UPDATE {table} SET {status} = {status} WHERE {which} RETURNING {self.terms.columns}, {owner}"

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
