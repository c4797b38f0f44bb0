"""What is sent to Spark's Python in an option: without what is secret, which stands in options of its own.

What is sent is a pickle, and a pickle runs code where it is read. So it is signed, and a source reads only what was
signed with the key of the process that registered it. A program that merely writes options (in SQL, by
USING xq OPTIONS) has no such key.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import pickle
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from pyspark.sql.datasource import DataSource

from xq.core.errors import ConfigurationError
from xq.core.ports import Address
from xq.pipeline.bulk import Bulk
from xq.pipeline.scan import Extract

SHARED = "XQ_SPARK_KEY"  # the variable with the key of several processes
OWN = secrets.token_bytes(32)


def _key() -> bytes:
    return os.environ.get(SHARED, "").encode() or OWN


def _signature(key: bytes, name: str, text: str) -> str:
    return hmac.new(key, f"{name}\n{text}".encode(), "sha256").hexdigest()


class Source(DataSource):
    """A source that is told by signed options what it reads or writes."""

    key: ClassVar[bytes] = b""

    @classmethod
    def signed(cls) -> type[Self]:
        """The class with the key of this process. It travels by value, as no module has it."""
        return type(cls.__name__, (cls,), {"key": _key()})

    def sent(self, name: str) -> Any:
        """What was sent under this name. Raises ConfigurationError, also for what this process has not signed."""
        given = self.options.get(name)
        if not given:
            raise ConfigurationError('format("xq") needs .options(**xq.spark.options(Page)), or those of a tube')
        signature, _, text = given.partition(":")
        if not self.key or not hmac.compare_digest(signature.encode(), _signature(self.key, name, text).encode()):
            raise ConfigurationError(
                f"the option {name!r} was not made by the process that registered this session: call xq.spark.options "
                f"there, on a session of xq.spark.session or register; or set {SHARED} to one secret text in both "
                "processes before they do"
            )
        return pickle.loads(base64.b64decode(text))


def packed(**sent: Extract | Bulk) -> dict[str, str]:
    """Options by which each is sent under its name, to one database."""
    found: dict[str, str] = {}
    for name, one in sent.items():
        found |= {**signed(name, replace(one, address=one.address.shown)), **secrets_of(one.address)}
    return found


def signed(name: str, sent: object) -> dict[str, str]:
    """The option by which something is sent under this name."""
    text = base64.b64encode(pickle.dumps(sent)).decode()
    return {name: f"{_signature(_key(), name, text)}:{text}"}


def secrets_of(address: Address) -> dict[str, str]:
    """Options whose values Spark shows to nobody, by their names. Raises ConfigurationError for what is no text."""
    found = {} if address.password is None else {"password": address.password}
    if address.secrets:
        try:
            found["secrets"] = json.dumps(dict(address.secrets), default=os.fspath)
        except TypeError as error:
            raise ConfigurationError(
                f"the options {', '.join(sorted(address.secrets))} of the database cannot all be sent to Spark "
                f"({error}): give them as text, a certificate as the path of its file"
            ) from error
    return found


def with_secrets(address: Address, options: Mapping[str, str]) -> Address:
    secrets = json.loads(options["secrets"]) if options.get("secrets") else {}
    return replace(address, password=options.get("password"), secrets=secrets)
