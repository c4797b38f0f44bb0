"""SQL for the feature rate: a token bucket for the queue, or for each value in a role.

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

from xq.sql.limits import Limits
from xq.sql.shared import RATES
from xq.sql.terms import Terms


class TokenBuckets:
    """One queue's buckets. For queues with the feature rate."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        (guard,) = (guard for guard in terms.machine.guards if guard.name == "rate")
        self.role, self.limits = guard.role, Limits(terms)

    @property
    def bucket(self) -> str:
        """The name of the bucket for a table row."""
        if not self.role:
            return "''"
        return self.terms.as_text(self.terms.value_of(self.role, f"{self.terms.table}.{self.terms.roles[self.role]}"))

    def key_of_limit(self, bucket: str) -> str:
        """Return the key of the limit that a bucket's value has, as SQL."""
        return self.terms.of_limit(bucket) if self.role else "''"

    def interval(self, bucket: str) -> str:
        """Return the microseconds between two tasks of a bucket, as SQL."""
        return self.limits.of("rate", self.key_of_limit(bucket))

    def slack(self, bucket: str) -> str:
        """Return how far in the future a bucket may be full at a take, in microseconds, as SQL."""
        return self.limits.of("rate", self.key_of_limit(bucket), "slack")

    full_us = "full_us"  # in a query within one for tasks

    @property
    def my_buckets(self) -> str:
        return f"{RATES}.queue = {self.terms.literal(self.terms.source_name)}"

    @property
    def latest(self) -> str:
        """The latest `full_us` at which a bucket of the table with buckets still admits a take."""
        return f"{self.terms.now_us} + {self.slack(f'{RATES}.bucket')}"

    @property
    def first_left(self) -> str:
        """The microseconds until the first of some empty buckets has a token; NULL without any."""
        return f"MIN(full_us - ({self.latest}))"

    @property
    def within_rate(self) -> str:
        """What follows a condition on a table row: that its bucket is not empty."""
        # A query for one value, since the planner might make a join from EXISTS, and sort all ready tasks for it.
        # A bucket that is full needs no look at its limit.
        full_us, now_us = self.full_us, self.terms.now_us
        opens = f"CASE WHEN {full_us} <= {now_us} THEN 0 ELSE {full_us} - {self.slack(f'{RATES}.bucket')} END"
        opens_us = f"SELECT {opens} FROM {RATES} WHERE {self.my_buckets} AND {RATES}.bucket = {self.bucket}"
        return f" AND COALESCE(({opens_us}), 0) <= {now_us}"

    def charging(self, task: str) -> str:
        """Return SQL that charges the bucket for this condition's task. It changes no row if the bucket is empty."""
        full_us, now_us = f"{RATES}.full_us", self.terms.now_us
        charged = self.charged(f"({self.terms.new_value('full_us')} - {now_us})")
        admitted = f"{full_us} <= {now_us} OR {full_us} <= {self.latest}"
        return self.adding(task, self.interval(self.bucket), f"{charged} WHERE {admitted}")

    def adding(self, task: str, more: str, update: str) -> str:
        """Return SQL that adds the bucket for this condition's task, full after `more`, or updates it."""
        terms = self.terms
        mine = (
            f"{terms.literal(terms.source_name)}, {self.bucket}, {terms.now_us} + {more} FROM {terms.table_in_schema}"
        )
        there = terms.on_conflict("queue, bucket", f"full_us = {update}")
        which = f"WHERE {task} AND {self.bucket} IS NOT NULL"
        return f"INSERT INTO {RATES} (queue, bucket, full_us) SELECT {mine} {which}{there}"

    def charged(self, added: str) -> str:
        full_us = f"{RATES}.full_us"
        return f"CASE WHEN {full_us} > {self.terms.now_us} THEN {full_us} ELSE {self.terms.now_us} END + {added}"

    @property
    def refilling(self) -> str:
        """SQL after which a limit that was raised lets the next task go: the one of the key `:value`."""
        mine, key = f"{self.my_buckets} AND full_us > {self.latest}", self.key_of_limit(f"{RATES}.bucket")
        own = f"SELECT 1 FROM {self.limits.table} AS xq_o WHERE xq_o.feature = 'rate' AND xq_o.value = {key}"
        meant = f"{key} = :value OR (:value = '' AND NOT EXISTS ({own}))"  # the queue's is that of values without one
        return f"UPDATE {RATES} SET full_us = {self.latest} WHERE {mine} AND ({meant})"
