"""What ORM adapters, tubes and other front ends use of a queue: `Page.xq.parts`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from xq.core.dialect import Installation
from xq.core.errors import BadType, FeatureOff, shown
from xq.core.machine import TAKEN
from xq.core.ports import Store, T
from xq.database.transactions import retried
from xq.engine.observers import Observers
from xq.engine.stats import counts
from xq.operators.doctor import Doctor
from xq.runtime.waiting import Waiting


class Parts(Generic[T]):
    """The parts of a queue that its users do not need: its store, its installation, its maintenance.

    `store` reads and writes the rows of the model (`xq.core.ports.Store`), `maintenance` is what the maintenance thread
    does for the queue, `inspection` what operators ask of it, and `observers` what runs around puts and after commits.
    `waiting` has the calls that wait, `waiters` the callers that do, `takes` the takes, `finish` the moves of named
    tasks, and `tasks` reads keys and fields.
    """

    def __init__(self, store: Store[T], waiting: Waiting[T], inspection: Doctor) -> None:
        self.store = store
        self.inspection = inspection
        self.waiting = waiting
        self.maintenance = waiting.maintenance
        self.waiters = waiting.waiters
        self.tasks = waiting.tasks
        self.takes = waiting.takes
        self.finish = waiting.finish
        self._executor = waiting.executor
        self.observers: Observers[T] = waiting.executor.observers

    @property
    def definition(self) -> dict[str, Any]:
        """The arguments that `upgrade` needs to make this queue: fields, features, statuses and tube_stats.

        Features that are off are left out, and statuses if all equal their letters.
        """
        definition = self._executor.definition
        return {
            "fields": {role: field.name for role, field in definition.table.roles.items()},
            "features": {name: on for name, on in definition.features.items() if on is not None and on is not False},
            "statuses": dict(definition.words) if definition.structure["statuses"] else {},
            "tube_stats": list(definition.tube_stats),
        }

    def state_of(self, status: object) -> str | None:
        """Return the letter of the state that a stored status means; None if it is none of this queue's."""
        words = self._executor.definition.words
        return next((letter for letter, word in words.items() if word == status), None)

    def tube(self, name: object, call: str = "take(tube=)") -> str | None:
        """Return the name of a tube that a call means. Raises FeatureOff and BadType."""
        if name is not None and "tube" not in self._executor.definition.machine.roles:
            raise FeatureOff(
                f"{call} needs the role 'tube': map it to a field, as in fields={{'tube': 'tube'}}", role="tube"
            )
        if name is not None and not isinstance(name, str):
            raise BadType(f"a tube is named by text, not by {shown(name)}")
        return name

    @property
    def installation(self) -> Installation:
        """The tables, indexes and triggers that the queue needs in the database."""
        return self._executor.bind().installation

    def only_reads(self) -> bool:
        """Return whether the database allows this thread's connection to read only."""
        return self._executor.only_reads()

    def create_by(self, create: Callable[[], None]) -> None:
        """Create the table by `create`, a call of the ORM, and install; in any number of processes at once."""
        binding = self._executor.bind()
        binding.installation.ddl()  # raises, before the table is there, what the database cannot have
        with binding.dialect.installer.creating(self.store):
            create()
        retried(self.store, binding.installation.install)
        self._executor.close()

    def drop(self, drop: Callable[[], object]) -> int:
        """Call `drop`, which drops the table, unless tasks are taken. Return how many are.

        It is one step: it waits for calls of all processes that move tasks. Later calls wait for it and raise
        NotInstalled when the table is gone. Orphaned tasks are reaped first. Raises on MariaDB within a transaction.
        """
        if counts(self._executor)[TAKEN]:  # first without a lock
            self.maintenance.reap()
            if taken := counts(self._executor)[TAKEN]:
                return taken
        return retried(self.store, lambda: self._executor.open().installation.drop(drop))
