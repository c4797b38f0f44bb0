"""What stands in an option of Spark's is read only where this process has made it."""

from __future__ import annotations

import base64
import os
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import xq
from xq.adapters.spark.packed import secrets_of
from xq.adapters.spark.source import Xq
from xq.core.ports import Address


class Trap:
    """What runs code as it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_an_option_that_another_has_written_is_not_unpickled(spark, make_live, tmp_path):
    options, file = xq.spark.options(make_live()), tmp_path / "made"
    trap = base64.b64encode(pickle.dumps(Trap(file))).decode()
    signature = options["extract"].partition(":")[0]
    forged = [trap, f":{trap}", f"{signature}:{trap}", f"ü:{trap}", options["bulk"]]  # also: what is signed as another
    for text in forged:
        with pytest.raises(PySparkException, match=r"'extract' was not made by the process that registered"):
            spark.read.format("xq").options(**{**options, "extract": text}).load()
    with pytest.raises(PySparkException, match="'bulk' was not made by the process that registered"):
        spark.range(1).write.format("xq").options(**{**options, "bulk": f"{signature}:{trap}"}).mode("append").save()
    with pytest.raises(PySparkException):  # it is JSON
        spark.read.format("xq").options(**options, secrets=trap).load().collect()
    with pytest.raises(xq.ConfigurationError, match="was not made by the process"):
        Xq(options).sent("extract")  # of a class that has no key, as anybody may register it
    assert not file.exists()


def test_an_option_of_the_connection_that_is_no_text_is_refused():
    address = Address("mariadb", {"database": "app"}, "a-secret", {"ssl": ssl.create_default_context()})
    with pytest.raises(xq.ConfigurationError, match="options ssl of the database cannot all be sent") as refused:
        secrets_of(address)
    assert "a-secret" not in str(refused.value)


def test_processes_with_one_key_read_what_the_others_have_made(spark, make_live, monkeypatch):
    options = xq.spark.options(make_live({"history": True}), "history")
    monkeypatch.setenv("XQ_SPARK_KEY", "of both")
    theirs = xq.spark.register(spark.newSession())
    with pytest.raises(PySparkException, match="XQ_SPARK_KEY"):
        theirs.read.format("xq").options(**options).load()
    theirs.read.format("xq").options(**xq.spark.options(make_live())).load().collect()
