"""The inner parts that a queue is made from, and their wiring."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from xq.core.clock import Clock
from xq.core.connections import Store
from xq.core.kinds import T
from xq.core.values import Tasks
from xq.engine.binding import Definition
from xq.engine.executor import Executor
from xq.engine.history import History
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.insert import Inserts
from xq.engine.limits import Limits
from xq.engine.named import NamedMoves
from xq.engine.observers import Observers
from xq.engine.pauses import Pauses
from xq.engine.several import SeveralMoves
from xq.engine.statements import Statements
from xq.engine.take import Takes
from xq.engine.timers import Timers, UnattendedMoves
from xq.runtime.group import Groups
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.runtime.schedules import Schedules
from xq.runtime.waiters import Waiters
from xq.runtime.waiting import Waiting

if TYPE_CHECKING:
    from xq.operators.doctor import Doctor
    from xq.operators.search import Search
    from xq.pipeline.pipeline import Pipeline


class Parts(Generic[T]):
    """What ORM adapters, tubes, workers and tests use beside a queue's methods: `Page.xq.parts`.

    What operators and other processes use is imported and made on its first use: most programs only put and take.
    """

    def __init__(self, store: Store[T], definition: Definition, clock: Clock | None, woken: Callable[[], None]) -> None:
        """Make them, each from parts above it. `woken` may raise, to end a call that waits."""
        self.store = store  # reads and writes rows
        self.definition = definition  # what `upgrade` was given
        machine, off = definition.machine, definition.catalogue
        # Reads keys and fields, and makes tasks from rows.
        self.tasks: Tasks[T] = Tasks(store, definition.table, machine, off, definition.wording)
        self.observers: Observers[T] = Observers(store, self.tasks.returned)  # run around puts, and after commits
        self.executor = Executor(store, definition, clock, self.observers)  # runs SQL
        self.history = History(self.executor, self.tasks)
        self.waiters = Waiters(self.executor, self.tasks)  # the callers that wait
        self.pauses = Pauses(self.executor, self.waiters.takers.wake_first)
        self.limits = Limits(self.executor, self.waiters.takers.wake_first)
        statements = Statements(self.executor, self.tasks)
        settlers = {each.name: each.settler(statements, self.pauses) for each in machine.features if each.settler}
        statements.settling.settlers += settlers.values()  # what the ends of tasks set off
        self.brought = {each.name: each.part(self) for each in machine.features if each.part}  # of methods of features
        if "groups" in settlers:
            self.groups: Groups = settlers["groups"]  # the groups of tasks
        unattended = UnattendedMoves(statements)
        in_doubt, timers = InDoubtTakes(unattended), Timers(unattended)
        self.inserts: Inserts[T] = Inserts(self.tasks, statements)  # the puts
        # Moves one task that a call names, and those that workers have.
        self.named: NamedMoves[T] = NamedMoves(self.tasks, statements, in_doubt)
        self.several: SeveralMoves[T] = SeveralMoves(self.named)  # moves many
        self.schedules: Schedules[T] = Schedules(self.executor, self.tasks, self.inserts)
        # What the maintenance thread does for the queue.
        self.maintenance = QueueMaintenance(timers, self.named, self.pauses, self.waiters, self.schedules)
        self.takes: Takes[T] = Takes(timers, in_doubt, self.pauses, self.maintenance)
        self.waiting: Waiting[T] = Waiting(self.inserts, self.takes, self.maintenance, woken)  # the calls that wait
        self.observers.listen(self.waiters, self.maintenance)

    def brought_by(self, method: str) -> Any:
        """Return what a method of a feature calls. Raises FeatureOff."""
        by = next((feature.name for feature in self.definition.machine.features if method in feature.methods), "")
        if not by:
            self.tasks.options.refuse_event(method)
        return self.brought[by]

    @cached_property
    def doctor(self) -> Doctor:
        """What answers operators."""
        from xq.operators.doctor import Doctor

        return Doctor(self.pauses, self.history, self.takes.unmovable)

    @cached_property
    def search(self) -> Search[T]:
        from xq.operators.search import Search

        return Search(self.executor, self.tasks)

    @cached_property
    def pipeline(self) -> Pipeline:
        from xq.pipeline.pipeline import Pipeline

        return Pipeline(self.history, self.named.statements)
