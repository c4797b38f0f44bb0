"""Files wherever Spark has them: a local folder, HDFS, or what else Hadoop knows by the name of a path."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from xq.errors import ConfigurationError

LOCAL = "file:"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
GLOB = re.compile(r"[\\{}\[\]*?]")  # of which Spark makes patterns where it reads


class Folder:
    """A folder by its path or URI; text without a scheme is a path of the file system that Spark has as its default.

    Names within it are relative to it. A rename is one step where the file system has it so: local ones and HDFS do,
    those of objects (s3a) do not. Raises ConfigurationError for a session of Spark Connect.
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        try:
            context: Any = spark.sparkContext
            java, settings = context._jvm, context._jsc.hadoopConfiguration()
        except AttributeError:
            raise ConfigurationError(
                "Spark Connect has no file systems for its clients: use a session beside it"
            ) from None
        self._path = java.org.apache.hadoop.fs.Path
        self._text = java.org.apache.commons.io.IOUtils.toString
        default: str = settings.get("fs.defaultFS", LOCAL)
        named = os.fspath(path)
        if isinstance(path, Path) or (default.startswith(LOCAL) and not SCHEME.match(named)):
            named = f"{LOCAL}//{Path(path).absolute()}"  # Java does not know when this process changes its directory
        self._files: Any = self._path(named).getFileSystem(settings)
        self.path = str(self._files.makeQualified(self._path(named)).toString()).rstrip("/")

    def at(self, *names: str) -> str:
        """The path of what is there, to be written."""
        return "/".join([self.path, *names])

    def to_read(self, *names: str) -> str:
        """The path of what is there, as Spark's readers take it: none is a pattern."""
        return GLOB.sub(r"\\\g<0>", self.at(*names))

    def _at(self, name: str) -> Any:
        return self._path(self.at(name))

    def shown(self, name: str) -> str:
        """The path of what is there as people write it."""
        return re.sub(f"^{LOCAL}/+", "/", self.at(name))

    # files

    def names(self, folder: str) -> list[str]:
        """What is in a folder, in order; nothing where there is none."""
        found = self._files.listStatus(self._at(folder)) if self.exists(folder) else []
        return sorted(status.getPath().getName() for status in found)

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def move(self, old: str, new: str) -> None:
        """Rename, to what must not be there. Raises ConfigurationError when it cannot be."""
        target = self._at(new)
        self._files.mkdirs(target.getParent())
        if self._files.exists(target) or not self._files.rename(self._at(old), target):
            raise ConfigurationError(f"{self.at(old)} cannot be renamed to {self.at(new)}: is it there already?")

    def replace(self, old: str, new: str) -> None:
        """Rename, to what is deleted before where it is there."""
        self.delete(new)
        self.move(old, new)

    def delete(self, name: str) -> None:
        """Delete it, with what is in it, if it is there."""
        self._files.delete(self._at(name), True)

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all."""
        stream = self._files.create(self._at(f"{name}.new"), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.replace(f"{name}.new", name)

    def read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    # tables

    def stage(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return it as it is read from there."""
        table.write.parquet(self.at(name))
        return self.table(name, table)

    def table(self, name: str, like: DataFrame) -> DataFrame:
        """A table that was written there, with the columns of another."""
        return self.spark.read.schema(like.schema).parquet(self.to_read(name))
