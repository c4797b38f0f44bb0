"""What streams write beside a queue: which of their batches were, and how often transitions were seen, as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xq.adapters.databases.sql import Dialect

SINKS = "xq_sink"  # the batch that each sink has taken last, and of which stream


class Sinks:
    """Which batches were written."""

    def __init__(self, dialect: Dialect) -> None:
        text = dialect.varying(255)
        columns = f"sink {text} NOT NULL PRIMARY KEY, stream {text} NOT NULL, batch BIGINT NOT NULL"
        self.create = f"CREATE TABLE IF NOT EXISTS {SINKS} ({columns}){dialect.engine}"
        self.look = f"SELECT 1 FROM {SINKS} WHERE 1 = 0"
        self.last = f"SELECT stream, batch FROM {SINKS} WHERE sink = :sink{dialect.lock}"
        self.first = f"INSERT INTO {SINKS} (sink, stream, batch) VALUES (:sink, :stream, :batch)"
        self.next = f"UPDATE {SINKS} SET batch = :batch WHERE sink = :sink"
        self.forget = f"DELETE FROM {SINKS} WHERE sink = :sink"


class TallySql:
    """A table that counts transitions, by the time at which they were."""

    def __init__(self, dialect: Dialect, table: str) -> None:
        name, varying = dialect.quote(table), dialect.varying
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
        body = f"({columns}, n BIGINT NOT NULL, PRIMARY KEY ({names}))"
        more = dialect.on_conflict(names, f"n = {name}.n + :count")
        values = ", ".join(f":{column}" for column in types)
        self.create = f"CREATE TABLE IF NOT EXISTS {name} {body}{dialect.engine}"
        self.look = f"SELECT 1 FROM {name} WHERE 1 = 0"
        self.any = f"SELECT 1 FROM {name} LIMIT 1"
        self.add = f"INSERT INTO {name} ({names}, n) VALUES ({values}, :count){more}"
