"""Write the small tables of a report as Parquet, from the driver: Spark needs a job for each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter
from pyspark.sql.pandas.types import to_arrow_schema

from xq.adapters.spark.files import Folder
from xq.adapters.spark.tables import TABLES, Row, TubeFacts

CHUNK = 50_000  # rows that are written at once
FILE = "part-00000.parquet"


class Tables(AbstractContextManager["Tables"]):
    """Writes the tables that follow from facts, of one tube after the other."""

    def __init__(self, folder: Folder, under: str) -> None:
        self.folder = folder
        self.under = under
        self.open = ExitStack()
        self.waiting: dict[str, list[Row]] = {name: [] for name, table in TABLES.items() if table.rows}

    def __enter__(self) -> Tables:
        self.local = Path(self.open.enter_context(tempfile.TemporaryDirectory(prefix="xq-report-")))
        self.schemas = {name: to_arrow_schema(TABLES[name].schema, timezone="UTC") for name in self.waiting}
        self.writers: dict[str, Any] = {
            name: self.open.enter_context(ParquetWriter(self.local / name, schema))
            for name, schema in self.schemas.items()
        }
        return self

    def add(self, tube: TubeFacts) -> Mapping[str, Sequence[Row]]:
        """Add the rows of a tube to the tables, and return them by the table."""
        found = {name: list(table.rows(tube)) for name, table in TABLES.items() if table.rows}
        for name, rows in found.items():
            self.waiting[name] += rows
            if len(self.waiting[name]) >= CHUNK:
                self._write(name)
        return found

    def _write(self, name: str) -> None:
        schema, rows = self.schemas[name], self.waiting[name]
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        self.writers[name].write_table(pa.Table.from_arrays(arrays, schema=schema))
        self.waiting[name] = []

    def __exit__(self, kind: object, *error: object) -> None:
        with self.open:
            if kind is None:
                for name, writer in self.writers.items():
                    self._write(name)
                    writer.close()
                    self.folder.put(f"{self.under}/{name}/{FILE}", self.local / name)
