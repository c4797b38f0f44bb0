"""What is sent to Spark's Python in an option: without what is secret, which stands in options of its own."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xq.bulk import Bulk
from xq.errors import ConfigurationError
from xq.extract import Extract
from xq.store import Address


def packed(**sent: Extract | Bulk) -> dict[str, str]:
    """Options by which each is sent under its name, to one database."""
    found: dict[str, str] = {}
    for name, one in sent.items():
        found |= {name: as_text(replace(one, address=one.address.shown)), **secrets_of(one.address)}
    return found


def as_text(sent: object) -> str:
    return base64.b64encode(pickle.dumps(sent)).decode()


def secrets_of(address: Address) -> dict[str, str]:
    """Options whose values Spark shows to nobody, by their names."""
    password = {} if address.password is None else {"password": address.password}
    return password | ({"secrets": as_text(dict(address.secrets))} if address.secrets else {})


def with_secrets(address: Address, options: Mapping[str, str]) -> Address:
    secrets = pickle.loads(base64.b64decode(options["secrets"])) if options.get("secrets") else {}
    return replace(address, password=options.get("password"), secrets=secrets)


def unpacked(name: str, options: Mapping[str, str]) -> Any:
    """What was sent under this name. Raises ConfigurationError."""
    text = options.get(name)
    if not text:
        raise ConfigurationError('format("xq") needs .options(**xq.spark.options(Page)), or those of a tube')
    found = pickle.loads(base64.b64decode(text))
    return replace(found, address=with_secrets(found.address, options))
