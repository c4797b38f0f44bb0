"""A folder that Spark writes into: on this machine, or wherever Hadoop's file systems reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession


class Folder:
    """A folder by its path or URI. A path is one of the file system that Spark has as its default."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        named = Path(path).absolute().as_uri() if isinstance(path, os.PathLike) else str(path)
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        is_local = configuration.get("fs.defaultFS", "file:///").startswith("file:")
        if is_local and ":" not in named.split("/")[0]:
            named = Path(named).absolute().as_uri()  # Java does not know when this process changes its directory
        self._files: Any = self._path(named).getFileSystem(configuration)
        self.uri = str(self._files.makeQualified(self._path(named)).toString()).rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def _at(self, name: str) -> Any:
        return self._path(self.path(name))

    def stage(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return it as it is read from there."""
        table.write.parquet(self.path(name))
        return self.read(name, table)

    def read(self, name: str, like: DataFrame) -> DataFrame:
        return self.spark.read.schema(like.schema).parquet(self.path(name))

    def move(self, name: str, to: str) -> None:
        """Give it another name, in the place of what has that name."""
        self.delete(to)
        if not self._files.rename(self._at(name), self._at(to)):
            raise OSError(f"{self.path(name)} cannot be renamed to {to}")

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), True)

    def write(self, name: str, text: str) -> str:
        """Write a file, whole or not at all, and return its path."""
        stream = self._files.create(self._at(f"{name}.new"), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self.move(f"{name}.new", name)
        place = urlsplit(self.path(name))
        return unquote(place.path) if place.scheme == "file" else self.path(name)
