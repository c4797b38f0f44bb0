"""Write a report's small tables as Parquet, from the driver: Spark needs a job for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetWriter
from pyspark.sql.pandas.types import to_arrow_schema

from xq.adapters.spark.files import Folder
from xq.adapters.spark.tables import TABLES, Row, TubeFacts

CHUNK = 50_000  # rows that are written at once


@contextmanager
def written(folder: Folder, under: str) -> Iterator[Callable[[TubeFacts], Mapping[str, Sequence[Row]]]]:
    """Yield a function that adds a tube's rows to the tables, and returns them by the table."""
    schemas = {name: to_arrow_schema(table.schema, timezone="UTC") for name, table in TABLES.items()}
    waiting: dict[str, list[Row]] = {name: [] for name in schemas}

    def add(tube: TubeFacts) -> Mapping[str, Sequence[Row]]:
        found = {name: list(table.rows(tube)) for name, table in TABLES.items()}
        for name, rows in found.items():
            waiting[name] += rows
            if len(waiting[name]) >= CHUNK:
                write(name)
        return found

    def write(name: str) -> None:
        columns = zip(*waiting[name], strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schemas[name].types, strict=False)]
        if arrays:
            writers[name].write_table(pa.Table.from_arrays(arrays, schema=schemas[name]))
        waiting[name].clear()

    with ExitStack() as ending:
        local = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="xq-report-")))
        writers = {name: ending.enter_context(ParquetWriter(local / name, schema)) for name, schema in schemas.items()}
        yield add
        for name, writer in writers.items():
            write(name)
            writer.close()
            folder.put(f"{under}/{name}/part-00000.parquet", local / name)
