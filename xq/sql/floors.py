"""The SQL of floors (xq.engine.floors), which PostgreSQL alone has: only there a take steps over what was deleted.

The highest floor that any process may use is a sequence, which all see at once. The triggers write down, with its
transaction, each task that becomes ready below it: a take begins at the least of these, if that is below its floor.
"""

from __future__ import annotations

from typing import Final

from xq.core.machine import READY
from xq.sql.terms import Terms

MANY: Final = 200  # tasks that came back since a look: with so many a floor costs more than it saves
HELD: Final = 100  # later transactions, from which on a snapshot that is held, here or by a standby, is in the way
KEPT: Final = 600  # seconds for which they are written down; a floor lives for ten
XID: Final = "CAST(CAST({} AS text) AS bigint)"  # as in the history


class Floors:
    """The floors of one queue. Values: `floor`, the key, and `floor_xid`, the transaction since which to look back."""

    # The planner takes this for a thousand rows, and so reads the index in its order. As long as it believes that few
    # tasks are ready, it would else sort all that are, for each take.
    in_order = " CROSS JOIN generate_subscripts(ARRAY[0], 1) AS xq_one"
    next_xid = f"SELECT {XID.format('pg_current_xact_id()')}"

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        back, (key,) = terms.side("back"), terms.keys
        least = f"(SELECT MIN(key) FROM {back} WHERE xid >= CAST(:floor_xid AS bigint))"
        self.above = f" AND {key} >= LEAST(CAST(:floor AS bigint), {least})"
        sequence = f"CAST({terms.literal(terms.side('high'))} AS regclass)"
        self.high = f"COALESCE(pg_sequence_last_value({sequence}), -9223372036854775808)"
        # In the transaction of `publish`: one process at a time.
        self.lock = f"SELECT pg_advisory_xact_lock(hashtext('xq floor'), hashtext({terms.literal(back)}))"
        self.publish = f"SELECT setval({sequence}, CAST(:floor AS bigint)) WHERE {self.high} < CAST(:floor AS bigint)"
        self.forget = f"DELETE FROM {back} WHERE at < clock_timestamp() - interval '{KEPT} s' RETURNING 1"

    @property
    def held(self) -> str:
        """A query of whether a snapshot of this database is held. Every user may see that."""
        here = f"(datname = current_database() OR datname IS NULL) AND age(backend_xmin) > {HELD}"
        slots = f"SELECT 1 FROM pg_replication_slots WHERE age(xmin) > {HELD}"
        return f"SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE {here} UNION ALL {slots})"

    def look(self, tube: bool, floor: bool) -> str:
        """Return a query for the oldest open transaction, the first ready task's key, the highest floor, and how many
        tasks came back since `:since`. It does not skip rows that takes have locked: these may be ready again."""
        terms, (key,) = self.terms, self.terms.keys
        ready = f"{terms.is_state(READY)}{f' AND {terms.in_tube}' if tube else ''}{self.above * floor}"
        first = f"SELECT {key} FROM {terms.table_in_schema}{self.in_order} WHERE {ready} ORDER BY {key} LIMIT 1"
        back = f"SELECT 1 FROM {terms.side('back')} WHERE xid >= CAST(:since AS bigint) LIMIT {MANY}"
        xmin = XID.format("pg_snapshot_xmin(pg_current_snapshot())")
        return f"SELECT {xmin}, ({first}), {self.high}, (SELECT COUNT(*) FROM ({back}) AS back)"
