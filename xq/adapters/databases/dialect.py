"""The base of the dialects: the SQL of one queue, with its installation, and what pipelines read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from xq.adapters.databases.installer.installation import Installation
from xq.adapters.databases.parts import Parts
from xq.core.dialect import Checkpoints, Jobs, Rollup
from xq.core.ports import Address, Store
from xq.core.words import PLAIN, Wording
from xq.pipeline.scan import Extract, What
from xq.pipeline.sql import tables as pipeline_tables
from xq.pipeline.sql.scans import Scans


class Dialect(Parts):
    """The SQL for one queue in one database."""

    scans_kind: type[Scans]

    @cached_property
    def jobs(self) -> Jobs:
        return pipeline_tables.jobs(self)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        return pipeline_tables.checkpoints(self)

    def rollup(self, table: str) -> Rollup:
        """Return the SQL of an application's table that counts transitions."""
        return pipeline_tables.rollup(self, table)

    def extract(self, what: What, name: str, address: Address, states: str) -> Extract:
        """Return what another program needs to read the model `name` at `address`; of the tasks, those in `states`.

        Raises BadValue, ConfigurationError.
        """
        return self.scans_kind(self, self.looks).of(what, name, address, states)

    def installation(
        self,
        store: Store[Any],
        structure: Mapping[str, Any],
        wording: Wording = PLAIN,
        values: Callable[[], Mapping[str, Any]] = lambda: {"now": None},
    ) -> Installation:
        """Return the installation of the queue in the database of a store. The arguments are those of its class."""
        return Installation(store, self, structure, wording, values)
