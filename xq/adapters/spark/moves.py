"""The history of queues for the report: each transition with what its task did before.

The rows of a key are ordered by their ids. The row lock is held while a transition is recorded, so the ids have the
events' order, whatever the clock did. A duration that would be negative, since the clock was set back, is 0.

Expressions are texts: a report has some hundred, and Spark parses a text faster than Python builds a Column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from xq.core.machine import ABSENT, EXPIRIES
from xq.pipeline.rollup import UNITS

SECOND = 1_000_000  # µs
BUCKETS = 600  # the most buckets in a span, unless they are days

READY = ("R",)
BACKLOG = ("R", "W")
LIVE = ("R", "T", "W")
OPEN = ("R", "T", "W", "B")  # not finished
FINISHED = ("D", "Z")
OUTCOMES = ("done", "buried", "killed", "expired")
COUNTED = ("put", "taken", *OUTCOMES)  # a throughput's counters

HISTORY = ("queue", "id", "at_us", "key", "tube", "source", "target", "event", "attempt")


@dataclass(frozen=True)
class Span:
    """A report's time: from `since`, before `until`, seen at `now`; µs since 1970."""

    since: int
    until: int
    now: int

    @property
    def unit(self) -> str:
        """The buckets' unit: the shortest that does not give too many."""
        length = self.until - self.since
        return next((unit for unit, seconds in UNITS.items() if length <= BUCKETS * seconds * SECOND), "day")

    @property
    def before(self) -> Span:
        """The preceding span of the same length."""
        return Span(2 * self.since - self.until, self.since, self.since)

    @property
    def has(self) -> str:
        """The test whether `at_us` is in the span."""
        return f"(at_us >= {self.since} AND at_us < {self.until})"

    def bucket(self, at_us: int) -> int:
        """Return when a moment's bucket starts. Days are in UTC."""
        return at_us - at_us % (UNITS[self.unit] * SECOND)

    def slot_of(self, at_us: str) -> str:
        """Return the expression for a moment's bucket."""
        return f"{at_us} - pmod({at_us}, {UNITS[self.unit] * SECOND}L)"


def is_(name: str, words: Sequence[str]) -> str:
    """Return the test whether a column is one of some words."""
    return f"{name} IN ({', '.join(map(repr, words))})"


TOOK = "target = 'T' AND source <> 'T'"
BEGINS = f"{is_('target', OPEN)} AND NOT {is_('source', OPEN)}"
GONE = f"target = '{ABSENT}'"
# How an unfinished task ended with a row. A deleted task is done if it was acked, expired if its ttl or lifetime
# passed, and killed otherwise. A finished task does not end again, for example an expired zombie or an archived task.
OUTCOME = f"""CASE
    WHEN NOT {is_("source", OPEN)} THEN NULL
    WHEN {is_("target", FINISHED)} OR ({GONE} AND event = 'ack') THEN 'done'
    WHEN target = 'B' AND source <> 'B' THEN 'buried'
    WHEN {GONE} AND {is_("event", EXPIRIES)} THEN 'expired'
    WHEN {GONE} THEN 'killed'
END"""
END = "struct<life:bigint,tube:string,outcome:string,takes:bigint>"


def moves(history: DataFrame, there: DataFrame, span: Span, before: Span | None = None) -> DataFrame:
    """Return each history row with what its task did before. Computed once by the key, in one sort.

    `history` has the columns HISTORY (at_us: µs since 1970), `there` the present tasks: queue, key, tube, state (R, T
    or W, or B with its error), error. The result's columns:

    queue, key, tube, source, target, event, at_us
    was_tube, early     the task's previous tube, from its key's previous row; in a key's first row, from the row
                        itself, with the task's state before the history in `early`
    stay                µs in the state it leaves; null if the history does not show its beginning
    arrives, departs    whether the task enters its tube's backlog (R or W), and leaves was_tube's
    readied, unreadied  the same for R alone
    lived               µs since the key's present life began, or null: put, and restarting a finished task, begin one
    takes               how often it was taken in this life; the role attempts, if it is higher and the history does
                        not show how the life began
    outcome             how the task ended with this row, or null
    instead, instead_before
                        this life's previous end in the span (and in the span before it), if this replaces one
    last, latest        whether it is its key's last row, and the last one before the span's end
    live, buried, error whether the table has the task now, in R, T or W, and in B with its error; for last rows
    silent              the row is a present task without history: at_us is null, and target its state
    """
    key = "PARTITION BY key, queue ORDER BY id"  # present tasks come first: they have no id
    so_far = f"OVER ({key} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    earlier = f"OVER ({key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    whole = f"OVER ({key} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"

    def previous(name: str) -> str:
        return f"lag({name}) OVER ({key})"

    def since(moment: str) -> str:
        return f"IF({moment} IS NULL, NULL, greatest(at_us - {moment}, 0L))"  # greatest ignores nulls

    def end(of: Span) -> str:
        return f"CASE WHEN outcome IS NOT NULL AND {of.has} THEN struct(life, tube, outcome, takes) END"

    def last_end(of: Span | None) -> str:
        """Return the key's last end so far in a span, without this row."""
        return f"last({end(of)}, true) {earlier}" if of else f"CAST(NULL AS {END})"

    def comes(now: str, then: str, states: Sequence[str]) -> str:
        return f"{is_(now, states)} AND NOT ({is_(then, states)} AND was_tube <=> tube)"

    was = before.has if before else "false"
    present = there.withColumnRenamed("state", "present")
    rows = history.select(*HISTORY).unionByName(present, allowMissingColumns=True)
    by_key = rows.selectExpr(
        "*",
        f"id IS NOT NULL AND {previous('id')} IS NULL AS first",
        f"{previous('target')} AS before",
        f"{previous('at_us')} AS before_us",
        f"{previous('tube')} AS before_tube",
        f"max(id) {whole} AS newest",
        f"max(IF(at_us < {span.until}, id, NULL)) {whole} AS newest_in_time",
        f"bool_or({is_('present', LIVE)}) {whole} AS live",
        f"bool_or(present = 'B') {whole} AS buried",
        f"max(error) {whole} AS its_error",
        f"count_if({TOOK}) {so_far} AS taken",
        f"count_if({BEGINS}) {so_far} AS life",
        f"last(IF({BEGINS}, at_us, NULL), true) {so_far} AS begun_us",
        f"{OUTCOME} AS outcome",
    )
    # Takes from earlier lives are left out.
    began = f"max(IF({BEGINS}, taken - CAST({TOOK} AS bigint), NULL)) {so_far} AS taken_before"
    takes = "coalesce(taken - taken_before, greatest(taken, attempt, 0L)) AS takes"
    lived = by_key.selectExpr("*", began).selectExpr("*", takes)
    known = lived.selectExpr(
        "*",
        f"{last_end(span)} AS last_end",
        f"{last_end(before)} AS last_end_before",
        "coalesce(before, source) AS was",
        "IF(first, tube, before_tube) AS was_tube",
    )
    return known.where(f"id IS NOT NULL OR (newest IS NULL AND {is_('present', LIVE)})").selectExpr(
        *("queue", "key", "id", "tube", "source", "coalesce(target, present) AS target", "event", "at_us", "was_tube"),
        "CASE WHEN first THEN source WHEN id IS NULL THEN present END AS early",
        f"IF(before = source AND source <> '{ABSENT}', {since('before_us')}, NULL) AS stay",
        f"{comes('target', 'was', BACKLOG)} AS arrives",
        f"{comes('was', 'target', BACKLOG)} AS departs",
        f"{comes('target', 'was', READY)} AS readied",
        f"{comes('was', 'target', READY)} AS unreadied",
        f"{since('begun_us')} AS lived",
        *("takes", "outcome"),
        f"IF(outcome IS NOT NULL AND {span.has} AND last_end.life = life, last_end, NULL) AS instead",
        f"IF(outcome IS NOT NULL AND {was} AND last_end_before.life = life, last_end_before, NULL) AS instead_before",
        *("id <=> newest AS last", "id <=> newest_in_time AND at_us IS NOT NULL AS latest", "live", "buried"),
        "at_us IS NULL AND (id IS NULL OR (id = newest AND live)) AS silent",
        "IF(id = newest, its_error, NULL) AS error",
    )
