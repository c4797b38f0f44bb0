"""What is sent to Spark's Python in an option: without its password, which is an option of its own."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from xq.bulk import Bulk
from xq.errors import ConfigurationError
from xq.extract import Extract

T = TypeVar("T", Bulk, Extract)


def packed(sent: T) -> str:
    return base64.b64encode(pickle.dumps(replace(sent, address=replace(sent.address, password=None)))).decode()


def unpacked(option: str, options: Mapping[str, str]) -> Any:
    """Raises ConfigurationError."""
    text = options.get(option)
    if not text:
        raise ConfigurationError('format("xq") needs .options(**xq.spark.options(Page)), or those of a tube')
    found = pickle.loads(base64.b64decode(text))
    return replace(found, address=replace(found.address, password=options.get("password")))
