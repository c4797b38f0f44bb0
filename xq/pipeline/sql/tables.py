"""SQL for the tables that other processes write beside a queue: bulk put jobs, checkpoints, history rollups."""

from __future__ import annotations

from typing import NamedTuple

from xq.sql.installer.views import THROUGHPUT
from xq.sql.language import Language
from xq.sql.terms import Terms

CHECKPOINTS = "xq_sink"  # each table's stream and last batch; the name is from version 0.1

LONGEST_JOB = 200  # characters in a job's name


class Jobs(NamedTuple):
    """SQL for one queue's bulk puts: a table records the job partitions that were put, and marks: rows with a part < 0.

    Named values: `job`, `part` (a partition), `n` and `digest` (its rows, and what they are), `age` (the seconds for
    which it is remembered; NULL: for ever), `below` (the rows with parts below it), `now`.
    """

    create: str
    claim: str
    done: str
    close: str
    content: str
    rows: str
    drop: str
    forget: str


class Checkpoints(NamedTuple):
    """SQL for checkpoints: the last batch in each table (its `sink`) that streams write."""

    create: tuple[str, ...]
    look: str
    last: str
    begin: str
    next: str
    forget: str


class RollupSql(NamedTuple):
    """SQL for an application's table that counts transitions by time span, and for its throughput view."""

    create: tuple[str, ...]
    look: str
    fits: str
    add: str


def jobs(terms: Terms) -> Jobs:
    """Return the SQL for the jobs table."""
    table, name = terms.side("put"), terms.varying(LONGEST_JOB)
    columns = f"job {name} NOT NULL, part BIGINT NOT NULL, n BIGINT NOT NULL, digest BIGINT NOT NULL"
    body = f"({columns}, ends DOUBLE PRECISION, PRIMARY KEY (job, part)){terms.engine}"
    this, claim = "WHERE job = :job AND part = :part", f"INSERT INTO {table} (job, part, n, digest, ends) VALUES "
    return Jobs(
        create=f"CREATE TABLE IF NOT EXISTS {table} {body}",
        # A second attempt waits here until the first has committed, and then writes no row.
        claim=f"{claim}(:job, :part, :n, 0, {terms.now} + :age){terms.on_conflict('job, part')}",
        done=f"{claim}(:job, :part, :n, {terms.now_us}, NULL){terms.on_conflict('job, part')}",
        close=f"UPDATE {table} SET n = :n, digest = :digest {this}",
        content=f"SELECT n, digest FROM {table} {this}{terms.lock}",  # as committed last, also on MariaDB
        rows=f"SELECT part, n, digest FROM {table} WHERE job = :job AND part < :below",
        drop=f"DELETE FROM {table} {this}",
        forget=f"DELETE FROM {table} WHERE ends < {terms.now}",
    )


def checkpoints(terms: Language) -> Checkpoints:
    """Return the SQL for the checkpoints table."""
    text = terms.varying(255)
    columns = f"sink {text} NOT NULL PRIMARY KEY, stream {text} NOT NULL, batch BIGINT NOT NULL"
    # If two processes begin a sink at once, the second waits here, and then reads the first one's row.
    kept = terms.on_conflict("sink", f"batch = {CHECKPOINTS}.batch")
    return Checkpoints(
        create=(f"CREATE TABLE IF NOT EXISTS {CHECKPOINTS} ({columns}){terms.engine}",),
        look=f"SELECT 1 FROM {CHECKPOINTS} WHERE 1 = 0",
        last=f"SELECT stream, batch FROM {CHECKPOINTS} WHERE sink = :sink{terms.lock}",
        begin=f"INSERT INTO {CHECKPOINTS} (sink, stream, batch) VALUES (:sink, :stream, -1){kept}",
        next=f"UPDATE {CHECKPOINTS} SET stream = :stream, batch = :batch WHERE sink = :sink",
        forget=f"DELETE FROM {CHECKPOINTS} WHERE sink = :sink",
    )


def rollup(terms: Language, table: str) -> RollupSql:
    """Return the SQL for a table with this name that counts transitions."""
    name, varying = terms.quote(table), terms.varying
    types = {
        "queue": varying(160),
        "tube": varying(255),
        "unit": varying(8),
        "bucket": "BIGINT",
        "source": varying(1),
        "target": varying(1),
        "event": varying(128),
    }
    names = ", ".join(types)
    columns = ", ".join(f"{column} {kind} NOT NULL" for column, kind in types.items())
    # One queue's time span is one key range, whatever tubes it has.
    body = f"({columns}, n BIGINT NOT NULL, PRIMARY KEY (queue, unit, bucket, tube, source, target, event))"
    more = terms.on_conflict(names, f"n = {name}.n + :count")
    values = ", ".join(f":{column}" for column in types)
    view = terms.quote(f"{table}_throughput")
    counted = {c: f"SUM(CASE WHEN {what} THEN n ELSE 0 END)" for c, what in THROUGHPUT.items()}
    numbers = ", ".join(f"{terms.whole(total)} AS {column}" for column, total in counted.items())
    buckets, any_ = "queue, tube, unit, bucket", f"{' + '.join(counted.values())} > 0"
    return RollupSql(
        create=(
            f"CREATE TABLE IF NOT EXISTS {name} {body}{terms.engine}",
            f"{terms.create_view} {view} AS SELECT {buckets}, {numbers} FROM {name} GROUP BY {buckets} HAVING {any_}",
        ),
        look=f"SELECT 1 FROM {name} WHERE 1 = 0",
        fits=f"SELECT {names}, n FROM {name} WHERE 1 = 0",
        add=f"INSERT INTO {name} ({names}, n) VALUES ({values}, :count){more}",
    )
