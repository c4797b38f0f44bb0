"""Files in the file systems that Spark has from Hadoop: local folders, HDFS and others."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from xq.adapters.spark.queues import check_session, not_connected
from xq.core.errors import BadType, ConfigurationError, shown

LOCAL = "file:"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
PATTERN = re.compile(r"[\\{}\[\]*?]")  # Spark reads these characters in a path as a pattern


def literally(path: str) -> str:
    """Return a path with escaped pattern characters, as Spark reads it."""
    return PATTERN.sub(r"\\\g<0>", path)


class Folder:
    """A folder, by a Hadoop path or a local path. Names are relative to it.

    A rename is atomic in local file systems and HDFS, but not in object stores (s3a).
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise BadType(f"a folder is named by its path, not by {shown(path)}")
        check_session(spark)
        try:
            context: Any = spark.sparkContext
            self._java, settings = context._jvm, context._jsc.hadoopConfiguration()
        except AttributeError:
            raise not_connected("archives and reports") from None
        named, default = os.fspath(path), settings.get("fs.defaultFS", LOCAL)
        if isinstance(path, Path) or (default.startswith(LOCAL) and not SCHEME.match(named)):
            named = f"{LOCAL}//{Path(path).absolute()}"  # Java does not notice when this process changes its directory
        root = self._java.org.apache.hadoop.fs.Path(named)
        self._files = root.getFileSystem(settings)
        self.path: str = self._files.makeQualified(root).toString()

    def at(self, *names: str) -> str:
        return "/".join([self.path.rstrip("/"), *names])

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.at(name))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if there is no such folder."""
        path = self._path(folder)
        found = self._files.listStatus(path) if self._files.exists(path) else []
        return sorted(status.getPath().getName() for status in found)

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def move(self, old: str, new: str) -> None:
        """Rename to a name that must not exist. Raises ConfigurationError if that fails."""
        target = self._path(new)
        self._files.mkdirs(target.getParent())
        if self._files.exists(target) or not self._files.rename(self._path(old), target):
            raise ConfigurationError(f"{self.at(old)} cannot be renamed to {self.at(new)}: does that exist already?")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        self._files.delete(self._path(name), True)

    def write(self, name: str, text: str) -> None:
        with_what = self._files.create(self._path(name), True)
        try:
            with_what.write(bytearray(text.encode()))
        finally:
            with_what.close()

    def put(self, name: str, local: Path) -> None:
        """Copy a file from this machine here."""
        self._files.copyFromLocalFile(self._java.org.apache.hadoop.fs.Path(local.as_uri()), self._path(name))

    def read(self, name: str) -> str:
        opened = self._files.open(self._path(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
        finally:
            opened.close()
