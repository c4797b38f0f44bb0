"""The inner parts that a queue is made from, and their wiring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic

from xq.core.clock import Clock
from xq.core.connections import Store
from xq.core.kinds import T
from xq.core.values import Tasks
from xq.engine.binding import Definition
from xq.engine.executor import Executor
from xq.engine.history import History
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.insert import Inserts
from xq.engine.observers import Observers
from xq.engine.one import NamedMoves
from xq.engine.pauses import Pauses
from xq.engine.several import SeveralMoves
from xq.engine.steps import Steps
from xq.engine.take import Takes
from xq.engine.timers import Timers, UnattendedMoves
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.runtime.schedules import Schedules
from xq.runtime.waiters import Waiters
from xq.runtime.waiting import Waiting

if TYPE_CHECKING:
    from xq.operators.doctor import Doctor
    from xq.operators.search import Search
    from xq.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Parts(Generic[T]):
    """What ORM adapters, tubes, workers and tests use beside a queue's methods: `Page.xq.parts`.

    What operators and other processes use is imported and made on its first use: most programs only put and take.
    """

    store: Store[T]  # reads and writes rows
    definition: Definition  # what `upgrade` was given
    tasks: Tasks[T]  # reads keys and fields, and makes tasks from rows
    observers: Observers[T]  # run around puts, and after commits
    executor: Executor  # runs SQL
    history: History
    waiters: Waiters  # the callers that wait
    pauses: Pauses
    inserts: Inserts[T]  # the puts
    named: NamedMoves[T]  # moves one task that a call names, and those that workers have
    several: SeveralMoves[T]  # moves many
    schedules: Schedules[T]
    maintenance: QueueMaintenance  # what the maintenance thread does for the queue
    takes: Takes[T]
    waiting: Waiting[T]  # the calls that wait

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
        from xq.pipeline.archive import Archive
        from xq.pipeline.pipeline import Pipeline

        return Pipeline(self.executor, self.tasks, self.history, Archive(self.named.steps))


def parts_of(
    store: Store[T], definition: Definition, clock: Clock | None = None, woken: Callable[[], None] = lambda: None
) -> Parts[T]:
    """Make them. Each is made from parts above it. `woken` may raise, to end a call that waits."""
    tasks: Tasks[T] = Tasks(store, definition.table, definition.machine, definition.catalogue, definition.wording)
    observers = Observers(store, tasks.returned)
    executor = Executor(store, definition, clock, observers)
    history = History(executor, tasks)
    waiters = Waiters(executor, tasks)
    pauses = Pauses(executor, waiters.takers.wake_first)
    # moves
    steps = Steps(executor, tasks)
    unattended = UnattendedMoves(steps)
    in_doubt, timers = InDoubtTakes(unattended), Timers(unattended)
    inserts = Inserts(tasks, steps)
    named = NamedMoves(tasks, steps, in_doubt)
    several = SeveralMoves(named)
    schedules = Schedules(executor, tasks, inserts)
    maintenance = QueueMaintenance(timers, named, pauses, waiters, schedules)
    takes: Takes[T] = Takes(timers, in_doubt, pauses, maintenance)
    waiting = Waiting(inserts, takes, maintenance, woken)
    observers.listen(waiters, maintenance)
    return Parts(
        store, definition, tasks, observers, executor, history, waiters, pauses,
        inserts, named, several, schedules, maintenance, takes, waiting,
    )  # fmt: skip
