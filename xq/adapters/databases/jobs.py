"""SQL of bulk puts: a table says which partitions of which jobs were put."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect
    from xq.adapters.databases.installer.objects import Object


class Jobs:
    """The SQL of one queue's bulk puts.

    Named values: `job`, `part` (a partition), `n` and `digest` (its rows, and what they are), `age` (the seconds for
    which it is remembered; NULL: for ever), `now`.
    """

    longest = 200  # characters of the name of a job

    def __init__(self, of: Dialect) -> None:
        table, name = of.side("put"), of.varying(self.longest)
        columns = f"job {name} NOT NULL, part BIGINT NOT NULL, n BIGINT NOT NULL, digest BIGINT NOT NULL"
        body = f"({columns}, ends DOUBLE PRECISION, PRIMARY KEY (job, part)){of.engine}"
        create = f"CREATE TABLE IF NOT EXISTS {table} {body}"
        this = "WHERE job = :job AND part = :part"
        self.table: Object = of.installer.objects.made("table", "put", create)
        # A second attempt waits here until the first has committed, and then writes no row.
        self.claim = (
            f"INSERT INTO {table} (job, part, n, digest, ends) VALUES (:job, :part, 0, 0, {of.now} + :age)"
            f"{of.on_conflict('job, part')}"
        )
        self.close = f"UPDATE {table} SET n = :n, digest = :digest {this}"
        self.content = f"SELECT n, digest FROM {table} {this}"
        self.forget = f"DELETE FROM {table} WHERE ends < {of.now}"
