"""A folder that Spark writes into: on this machine, or wherever Hadoop's file systems reach."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

LOCAL = "file:"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
GLOB = re.compile(r"[\\{}\[\]*?]")  # of which Spark makes patterns where it reads


class Folder:
    """A folder by its path or URI. Text without a scheme is a path of the file system that Spark has as its default."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        default: str = configuration.get("fs.defaultFS", LOCAL)
        named = os.fspath(path)
        if isinstance(path, Path) or (default.startswith(LOCAL) and not SCHEME.match(named)):
            named = f"{LOCAL}//{Path(path).absolute()}"  # Java does not know when this process changes its directory
        self._files: Any = self._path(named).getFileSystem(configuration)
        self.path = str(self._files.makeQualified(self._path(named)).toString()).rstrip("/")

    def of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _at(self, name: str) -> Any:
        return self._path(self.of(name))

    def stage(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return it as it is read from there."""
        table.write.parquet(self.of(name))
        return self.read(name, table)

    def read(self, name: str, like: DataFrame) -> DataFrame:
        """A table that was written there, with the columns of another."""
        return self.spark.read.schema(like.schema).parquet(GLOB.sub(r"\\\g<0>", self.of(name)))

    def move(self, name: str, to: str) -> None:
        """Give it another name, in the place of what has that name."""
        self.delete(to)
        if not self._files.rename(self._at(name), self._at(to)):
            raise OSError(f"{self.of(name)} cannot be renamed to {to}")

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
        return re.sub(f"^{LOCAL}/+", "/", self.of(name))
