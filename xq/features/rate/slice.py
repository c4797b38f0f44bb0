"""The SQL of the feature rate: a token bucket for the queue, or for each value in a role.

A bucket is one number, as in the generic cell rate algorithm (ITU-T I.371): the time at which it will be full. A take
at the time t needs `full <= t + slack`, and sets `full = max(full, t) + interval`. A bucket without a row is full.

With slack = (burst - 1) * interval, any half-open window of length S has at most burst - 1 + ceil(S / interval) takes.
Of m takes, the first, at t, leaves full >= t + interval, and each later one adds an interval. So the last, at u, needs
t + (m - 1) * interval <= u + slack, which is (m - burst) * interval <= u - t < S. That holds in any time order.
So interval = ceil(S / (n - burst + 1)) bounds the window by n, also in whole microseconds. Without that promise
("window": False) interval = ceil(S / n): n in S in the long run, and up to n + burst - 1 in a window.

xq reads a take's time once, before it: the charge, the task and its history have the same. So the bound is exact
for the times in the history, even if the take then waits for a lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from xq.core.words import lasting
from xq.sql.limits import Limits
from xq.sql.shared import RATES
from xq.sql.slice import Charge, Hidden, Slice
from xq.sql.terms import Terms

FULL_US = f"{RATES}.full_us"


class RateSlice(Slice):
    """One queue's buckets."""

    guard, charges = "rate", True

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        guard = terms.machine.guard("rate")
        assert guard
        self.role, self.limits = guard.role, Limits(terms)
        self.mine = f"{RATES}.queue = {terms.literal(terms.source_name)}"
        self.bucket = terms.as_text(terms.value_of(guard.role, terms.its(guard.role))) if guard.role else "''"
        # The latest time, in the table of buckets, at which a full one still admits a take.
        self.latest = f"{terms.now_us} + {self._limit(f'{RATES}.bucket', 'slack')}"

    def _key(self, bucket: str) -> str:
        """Return the key of the limit that a bucket's value has, as SQL."""
        return self.terms.of_limit(bucket) if self.role else "''"

    def _limit(self, bucket: str, column: str) -> str:
        """Return as SQL the microseconds between two tasks of a bucket (n), or how far ahead it may be full (slack)."""
        return self.limits.of("rate", self._key(bucket), column)

    @property
    def takeable(self) -> str:
        # A query for one value, since the planner might make a join from EXISTS, and sort all ready tasks for it.
        # A bucket that is full needs no look at its limit.
        full_us, now_us = self.terms.per_row("full_us"), self.terms.now_us
        slack = self._limit(f"{RATES}.bucket", "slack")
        opens = f"CASE WHEN {full_us} <= {now_us} THEN 0 ELSE {full_us} - {slack} END"
        opens_us = f"SELECT {opens} FROM {RATES} WHERE {self.mine} AND {RATES}.bucket = {self.bucket}"
        return f" AND COALESCE(({opens_us}), 0) <= {now_us}"

    @property
    def opens(self) -> str:
        return f"SELECT MIN(full_us - ({self.latest})) FROM {RATES} WHERE {self.mine} AND full_us > {self.latest}"

    @property
    def tidy(self) -> str:
        # Full for a minute: a take that still waits for a lock has an earlier time.
        return f"DELETE FROM {RATES} WHERE {self.mine} AND full_us <= {self.terms.now_us} - 60000000"

    # the charge

    def charge(self, task: str) -> Charge:
        if self.terms.takes_in_block:
            bucket, *numbers = map(self.terms.variable, ("bucket", "interval", "slack"))
            declared = (
                self.terms.declare(numbers, "BIGINT", "0"),
                self.terms.declare([bucket], f"TYPE OF {RATES}.bucket"),
            )
            return Charge(self._in_steps(task), f"{bucket} IS NULL", "; ".join(declared))
        return Charge(self._at_once(task), f"{self.bucket} IS NULL")

    def _at_once(self, task: str) -> str:
        terms, now_us = self.terms, self.terms.now_us
        full = self._charged(f"({terms.new_value('full_us')} - {now_us})")
        admitted = f"{FULL_US} <= {now_us} OR {FULL_US} <= {self.latest}"
        mine = f"{terms.literal(terms.source_name)}, {self.bucket}, {now_us} + {self._limit(self.bucket, 'n')}"
        there = terms.on_conflict("queue, bucket", f"full_us = {full} WHERE {admitted}")
        return (
            f"INSERT INTO {RATES} (queue, bucket, full_us) SELECT {mine} FROM {terms.table_in_schema} "
            f"WHERE {task} AND {self.bucket} IS NOT NULL{there}"
        )

    def _in_steps(self, task: str) -> str:
        # A statement that writes would lock the limits that it reads, and a SELECT does not.
        terms, queue = self.terms, self.terms.literal(self.terms.source_name)
        bucket, interval, slack = map(terms.variable, ("bucket", "interval", "slack"))
        there = terms.on_conflict("queue, bucket", "full_us = full_us")
        return (
            f"SELECT {self.bucket} INTO {bucket} FROM {terms.table_in_schema} WHERE {task}; "
            f"SELECT n, slack INTO {interval}, {slack} FROM {self.limits.table} WHERE feature = 'rate' "
            f"AND value IN ({self._key(bucket)}, '') ORDER BY value DESC, is_set DESC LIMIT 1; "
            f"INSERT INTO {RATES} (queue, bucket, full_us) "
            f"SELECT {queue}, {bucket}, {terms.now_us} FROM DUAL WHERE {bucket} IS NOT NULL{there}; "
            f"UPDATE {RATES} SET full_us = {self._charged(interval)} WHERE {self.mine} "
            f"AND bucket = {bucket} AND full_us <= {terms.now_us} + {slack}"
        )

    def _charged(self, added: str) -> str:
        return f"CASE WHEN {FULL_US} > {self.terms.now_us} THEN {FULL_US} ELSE {self.terms.now_us} END + {added}"

    def relimited(self, before: int, now: int) -> str:
        """Return SQL after which a limit that was raised lets the next task go."""
        if now >= before:  # more time between two tasks
            return ""
        mine, key = f"{self.mine} AND full_us > {self.latest}", self._key(f"{RATES}.bucket")
        own = f"SELECT 1 FROM {self.limits.table} AS xq_o WHERE xq_o.feature = 'rate' AND xq_o.value = {key}"
        meant = f"{key} = :value OR (:value = '' AND NOT EXISTS ({own}))"  # the queue's is that of values without one
        return f"UPDATE {RATES} SET full_us = {self.latest} WHERE {mine} AND ({meant})"

    def why(self, task: Hidden) -> Iterator[str]:
        its = f"(SELECT {self.bucket} FROM {self.terms.table_in_schema} WHERE {self.terms.by_key()})"
        left = f"SELECT full_us - ({self.latest}) FROM {RATES} WHERE {self.mine} AND bucket = {its}"
        ((left_us,),) = task.run(left, **task.key) or [(None,)]
        if left_us is not None and left_us > 0:
            yield f"the limit of the feature rate is used up: it has a token in {lasting(left_us / 1_000_000)}"
