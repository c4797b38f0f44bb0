"""Values sent to Spark's Python workers in signed options. Secrets are sent in separate options.

The values are pickled, and unpickling can run code. So they are signed, and a source reads only what was signed with
the key of the process that registered it. A program that merely writes options (in SQL, by USING xq OPTIONS) does not
have the key.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import pickle
import secrets
from dataclasses import replace
from typing import Any, ClassVar, Self

from pyspark.sql.datasource import DataSource

from xq.adapters.spark.queues import LOCAL, check_reach
from xq.core.connections import Address
from xq.core.errors import ConfigurationError
from xq.pipeline.bulk import Bulk
from xq.pipeline.scan import Extract

SHARED = "XQ_SPARK_KEY"  # the environment variable with a key that several processes share
OWN = secrets.token_bytes(32)


def _key() -> bytes:
    return os.environ.get(SHARED, "").encode() or OWN


def _signature(key: bytes, name: str, text: str) -> str:
    return hmac.new(key, f"{name}\n{text}".encode(), "sha256").hexdigest()


class SignedSource(DataSource):
    """A Spark source that signed options configure."""

    key: ClassVar[bytes] = b""
    master: ClassVar[str] = LOCAL

    @classmethod
    def signed(cls, master: str) -> type[Self]:
        """Return the class for a session with this master, with this process's key.

        It is pickled by value, since no module contains it.
        """
        return type(cls.__name__, (cls,), {"key": _key(), "master": master})

    def sent(self, name: str) -> Any:
        """Return the value sent under this name. Raises ConfigurationError, also if this process has not signed it."""
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

    def complete(self, address: Address) -> Address:
        """Return an address that was sent, with its secrets. Raises ConfigurationError if no worker can reach it."""
        check_reach(self.master, address)
        secrets = json.loads(self.options["secrets"]) if self.options.get("secrets") else {}
        return replace(address, password=self.options.get("password"), secrets=secrets)


def packed(**sent: Extract | Bulk) -> dict[str, str]:
    """Return signed options that send each value under its name. All belong to one database."""
    found: dict[str, str] = {}
    for name, one in sent.items():
        text = base64.b64encode(pickle.dumps(replace(one, address=one.address.shown))).decode()
        found |= {name: f"{_signature(_key(), name, text)}:{text}", **secrets_of(one.address)}
    return found


def secrets_of(address: Address) -> dict[str, str]:
    """Return the options that Spark hides because of their names.

    Raises ConfigurationError for one that is not text.
    """
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
