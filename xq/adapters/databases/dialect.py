"""The base of the dialects: the SQL of one queue, with its installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xq.adapters.databases.installer.installation import Installation
from xq.adapters.databases.parts import Parts
from xq.core.ports import Store
from xq.core.words import PLAIN, Wording


class Dialect(Parts):
    """The SQL for one queue in one database."""

    def installation(
        self,
        store: Store[Any],
        structure: Mapping[str, Any],
        wording: Wording = PLAIN,
        values: Callable[[], Mapping[str, Any]] = lambda: {"now": None},
    ) -> Installation:
        """Return the installation of the queue in the database of a store. The arguments are those of its class."""
        return Installation(store, self, structure, wording, values)
