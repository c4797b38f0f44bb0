"""What is sent to Spark's Python in an option: without its password, which is an option of its own."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xq.bulk import Bulk
from xq.errors import ConfigurationError
from xq.extract import Extract


def packed(**sent: Extract | Bulk) -> dict[str, str]:
    """Options by which each is sent under its name, to one database."""
    found: dict[str, str] = {}
    for name, one in sent.items():
        text = base64.b64encode(pickle.dumps(replace(one, address=replace(one.address, password=None)))).decode()
        password = one.address.password
        found |= {name: text, **({} if password is None else {"password": password})}
    return found


def unpacked(name: str, options: Mapping[str, str]) -> Any:
    """What was sent under this name. Raises ConfigurationError."""
    text = options.get(name)
    if not text:
        raise ConfigurationError('format("xq") needs .options(**xq.spark.options(Page)), or those of a tube')
    found = pickle.loads(base64.b64decode(text))
    return replace(found, address=replace(found.address, password=options.get("password")))
