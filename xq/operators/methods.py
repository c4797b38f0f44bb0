"""A queue's methods for operators and migrations: `Queue` in `xq.api` inherits them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from xq.core.acting import By, block, log_act
from xq.core.compile import Selector, Statement
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import T
from xq.core.machine import Transition
from xq.core.options import count_of, seconds_of
from xq.database.transactions import retried
from xq.engine.pauses import Pause

if TYPE_CHECKING:
    from xq.operators.doctor import Finding
    from xq.operators.failures import Failures
    from xq.operators.inspection import Health, Process, Snapshot, TimelineEntry
    from xq.operators.operations import Operation
    from xq.operators.search import Found
    from xq.parts import Parts

CHUNK = 500  # tasks in one transaction of an operation, unless the call says


class Operators(Generic[T]):
    """What operators and migrations do with a queue. Workers and producers need nothing here."""

    parts: Parts[T]

    # SQL

    def sql(self, event: str, *options: str, update: Sequence[str] = (), n: int = 1) -> str:
        """Return the SQL that a call of `event` runs on the model's database: `print(Page.xq.sql("take"))`.

        `options` names the call's options, `update` the fields that it writes, and `n` is the number of tasks. Raises
        BadType, BadValue, FeatureOff, NotInstalled.
        """
        if isinstance(update, str) or not isinstance(update, Collection):
            raise BadType(f"sql takes update= as a list of names of fields, not {shown(update)}")
        if not all(isinstance(name, str) for name in (event, *options, *update)):
            raise BadType("sql takes the names of an event, of its options and of fields")
        machine, tasks, n = self.parts.definition.machine, self.parts.tasks, count_of(n)
        unique = machine.single if event == "put" else None
        words = [*tasks.options.parameters(event), *["on_conflict"] * bool(unique)]
        given = frozenset(tasks.options.check(event, {name: 1.0 for name in options if name not in words}))
        names = tuple((tasks.brings if event == "put" else tasks.known)(name).name for name in update)
        binding, before = self.parts.executor.open(), ""
        found = [machine.choose(state, event, given) for state in machine.sources(event)]
        rows = [row for row in found if row is not None and not row.named]
        if not rows:
            raise BadValue(f"{event} has no SQL of its own: it leaves no state, or names the one that it enters")
        if unique:
            before = (
                f"{binding.dialect.moves.holders(unique, n)};  -- if a value is refused: the tasks that hold them\n"
            )
        if len(rows) > 1 and not rows[0].picks:
            before = f"{binding.dialect.queries.look()};  -- the task, whose state selects one of these\n"

        def statement(row: Transition) -> Statement:
            if event == "put":
                return binding.insert(row, given, names, n)
            which = Selector("key", row.source, "take" if row.fenced else "")
            if row.picks:
                which = self.parts.named.statements.oldest(row, n, "tube" in options)
            return binding.move(which, row, given, names)

        return before + "\n".join(f"{sql};{why}" for row in rows for sql, why in statement(row).parts)

    # acting

    def acting(self, actor: str | None, reason: str | None = None) -> AbstractContextManager[None]:
        """Write who acts, and why, into the history: `with Page.xq.acting("ann", reason="bad deploy"): Page.dig(7)`.

        The block is one transaction in this thread, or a savepoint within the application's; an exception rolls it
        back. Calls with `on=` are part of the caller's transaction. In a coroutine each call is on its own, unless
        `aio.atomic()` is around them. Each transition that xq makes in the block, in any queue of the database, has the
        `actor` and the `reason` in `History`; expired timers and the application's own writes do not. Of nested blocks
        the inner one counts. Without the feature history, the log `xq.<queue>` names them at INFO. Returns a context
        manager. Raises BadType and BadValue.
        """
        return self._acting(By.of(actor, reason))

    @contextmanager
    def _acting(self, by: By) -> Iterator[None]:
        from asyncio import current_task  # which a program without coroutines need not import

        store, awaits = self.parts.store, False
        with suppress(RuntimeError):  # no event loop runs in this thread
            awaits = current_task() is not None
        if not awaits:
            self.parts.executor.begin(locks=True)
        # Other coroutines of the thread run within the block, so it can be no transaction of the thread's connection.
        with nullcontext() if awaits else store.atomic_if_used():
            with block(store.database, by):
                yield
            if self.parts.definition.machine.settings.history is None:
                log_act(store, by, "acted")

    def act(
        self,
        event: str,
        filter: str,
        *,
        actor: str | None = None,
        reason: str | None = None,
        chunk: int = CHUNK,
        **options: Any,
    ) -> Operation[T]:
        """Return an operation on all tasks that a filter shows: `Page.xq.act("dig", "state:buried tube:mail").run()`.

        `event` is dig, kill, cancel, release (also from other sessions, as snatch), restart, bury with buried="any", or
        reprioritise with `priority=`, which leaves out the tasks that have it. The call itself moves nothing: `preview`
        shows what would move, and `run`, or a loop over the operation, moves it, up to `chunk` tasks in one
        transaction. It moves the tasks whose state the event leaves, each task once. Nothing is stored: after a crash,
        an operation with the same filter moves the other tasks.

        `actor` and `reason` stand in the history, as with `acting`, and in the log. `options` are the event's, as
        delay. Raises BadType, BadValue and FeatureOff.
        """
        from xq.operators.operations import Operation

        return Operation(self.parts.several, self.parts.search, event, filter, By.of(actor, reason), chunk, options)

    def pauses(self) -> list[Pause]:
        """Return the pauses as (tube, since, actor, reason, group): without both names the whole queue's.

        `since` is in seconds since 1970.
        """
        return self.parts.pauses.all()

    # looking

    def find(self, filter: str = "", n: int = 50, after: str | None = None) -> Found[T]:
        """Return a page of tasks that a filter selects: `find("state:buried tube:mail error:Timeout age>1h")`.

        docs/filters.md has the grammar. Returns up to `n` tasks (at most 1,000). If the filter names one state with an
        index in take order (ready without utubes, buried), the next ones come first, else the greatest keys. `after` is
        another page's cursor `next`. A call examines at most 10,000 rows, and reports how many in `looked`: go on with
        the cursor while `ended` is False. Raises BadValue, BadType and FeatureOff.
        """
        return self.parts.search.find(filter, count_of(n), after)

    def failures(self, filter: str = "", n: int = 20) -> Failures:
        """Return the `n` largest groups of failed tasks: buried, or ready or waiting with an error.

        A group's errors have the same class and the same message, but for numbers, identifiers and quoted texts. Its
        `filter` selects the tasks again. Examines at most 10,000 rows, the buried ones first: if `ended` is False, a
        `count` is a lower bound. Needs the role error. Raises BadValue, BadType and FeatureOff.
        """
        return self.parts.search.failures(filter, count_of(n))

    def timeline(self, key: object) -> list[TimelineEntry]:
        """Return a task's transitions, in order, with the time that it spent in each state up to now.

        Raises FeatureOff without the feature history.
        """
        return self.parts.doctor.timeline(key)

    def why(self, key: object) -> list[str]:
        """Return why a task is not running, in sentences: it is delayed, its utube is busy, the queue is paused ...

        Raises NotFound.
        """
        return self.parts.doctor.why(key)

    def doctor(self) -> list[Finding]:
        """Return problems and remedies, as (what, do): from `check`, sessions, pauses, open transactions and more.

        It reads the whole table. A remedy is a shell command, in which TARGET stands for this queue.
        """
        return list(self.parts.doctor.findings())

    def snapshot(self) -> Snapshot:
        """Return the queue's numbers now: statistics, pauses, room, how long tasks wait, and a standstill.

        `oldest` is exact if the ready tasks became so within the last 100,000 transitions in the history, else a lower
        bound; 0 without a ready task. There is no `standstill` while the queue, or every tube with ready tasks, is
        paused, or the feature rate limits the takes. Without the feature history both are bounds by what this process
        has seen in the counters: the first call knows no age, and a standstill since the newest take of a taken task.
        """
        return self.parts.doctor.snapshot()

    def health(self, *, max_age: float | timedelta = 600, max_buried: int = 0) -> Health:
        """Return whether the queue does its tasks in time, as (state, sentence), for probes.

        The worst that holds. "unreachable": the database does not answer. "error": the queue is not installed as this
        process defines it. "failing": more than `max_buried` tasks are buried, or dependants wait for a parent that is
        buried or gone. "late": tasks are ready and no process takes, or `oldest` or `standstill` in the `snapshot` is
        more than `max_age` seconds. "unknown": `oldest` is only a bound and may be more; or, without history, the first
        call sees no process take within a second. Else "healthy". With `max_age=math.inf` tasks may wait, and no
        process is needed. Pauses excuse nothing. Raises BadType and BadValue.
        """
        return self.parts.doctor.health(seconds_of("max_age", max_age), count_of(max_buried))

    def processes(self) -> list[Process]:
        """Return the database's open sessions, oldest first, with their processes and taken tasks in this queue.

        If several processes have joined a session, its process is the last one to register or resume it.
        """
        return self.parts.doctor.processes()

    def sweep(self) -> int:
        """Run the maintenance thread's duties: fire the due schedules, and move tasks until none is due.

        Returns how many transitions it made.
        """
        moved = self.parts.schedules.fire_due() + self.parts.takes.timers.sweep(within=True)
        self.parts.takes.statements.tidy()
        return moved

    # installing

    def install(
        self,
        *,
        drop_history: bool = False,
        online: bool = False,
        lock_timeout: float | timedelta = 1,
        plan: bool = False,
        downgrade: bool = False,
        forward: bool = False,
        views: bool = False,
    ) -> str | None:
        """Create what the queue needs in the database; does nothing if it is there. Sets SQLite files to WAL.

        With other features than the installed ones, it changes the installation, and processes with the old ones get
        NotInstalled. Raises ConfigurationError if tasks are in states that the features lack: the message has the
        UPDATE that moves them. It also raises if the features lack a history with rows, unless `drop_history`; and if
        the status column refuses a status (a CHECK, a length).

        A definition or xq version that was installed and has been replaced since is older: its install() raises
        ConfigurationError. With `downgrade` it replaces the newer ones, which are withdrawn, and so do its schedules
        when its workers start. With `forward` a withdrawn one is installed again: in the script of a deploy, not at
        each start of a program. `xq install` and Django's `migrate` go forward by themselves.

        With `online`, the table's writers go on: on PostgreSQL and MariaDB each step waits for its lock for at most
        `lock_timeout` seconds (MariaDB: whole ones), pauses, and tries again without end. An interrupted installation
        is completed by the next call. Raises ConfigurationError to change an installed queue, and with utube (MariaDB:
        also unique); InTransaction within a transaction. SQLite has one writer at a time, which waits in any case.

        With `views`, make two views on the history for readers without xq, which later calls keep: `<table>_xq_events`
        and `<table>_xq_hourly` (docs/howto/ten-questions.md). Raises FeatureOff without the feature history.

        With `plan`, change nothing and return the steps as text: their locks, about how many rows they read, and the
        open transactions that they would wait for now.
        """
        seconds = seconds_of("lock_timeout", lock_timeout, ends=True)
        installation = self.parts.executor.installation
        if plan:
            with installation.making_views(views):
                return installation.plan(online, downgrade, forward)
        with self.parts.store.on_one_connection():
            retried(
                self.parts.store,
                lambda: installation.install(drop_history, online, seconds or 0, downgrade, views, forward),
            )
        if downgrade:
            retried(self.parts.store, lambda: self.parts.store.execute(installation.dialect.records.forget_schedules))
        self.parts.executor.close()
        return None

    @overload
    def ddl(self, *, split: Literal[False] = False, uninstall: bool = False, views: bool = False) -> str: ...
    @overload
    def ddl(self, *, split: Literal[True], uninstall: bool = False, views: bool = False) -> list[str]: ...
    def ddl(self, *, split: bool = False, uninstall: bool = False, views: bool = False) -> str | list[str]:
        """Return the SQL that `install` runs as one script, which may be run twice: keep the text in your migrations.

        Raises ConfigurationError for what `install` refuses, if the database is in reach. MySQL and MariaDB must be:
        the connection tells which of the two it is. With `uninstall`, return the SQL that `uninstall` runs; the tables
        that all queues share stay, as others may need them. `views` are as in `install`.

        With `split`, return the statements, in order and without a `;` at their ends: Alembic's `op.execute(text)` and
        drivers such as asyncpg take one at a time. In the script an empty line follows each, and none has one.
        """
        installation = self.parts.executor.installation
        with installation.making_views(views):
            statements = (
                installation.ddl_to_uninstall() if uninstall else installation.ddl(installation.refuse_if_reached())
            )
        return statements if split else installation.installer.script(statements)

    def check(self) -> list[str]:
        """Return a message for each missing or changed object, each wrong count, and each status that is refused.

        It reads the whole table.
        """
        return retried(self.parts.store, self.parts.executor.installation.check)

    def recount(self) -> None:
        """Set the counters to what the table holds, after writes that bypassed the triggers (see `check`).

        On PostgreSQL the sequence of the key goes on above the keys in the table and in the history.
        """
        _, binding = self.parts.executor.begin()
        retried(self.parts.store, binding.installation.recount)

    def reset(self) -> None:
        """Set the transition counters to zero, and keep the counters for states."""
        within, (_, binding) = self.parts.store.in_transaction(), self.parts.executor.begin()
        self.parts.executor.transaction(lambda: binding.installation.reset(within), locks=False)  # `reset` locks

    def uninstall(self, *, keep_columns: bool = False) -> None:
        """Remove everything that `install` created, and leave the plain table.

        The columns that xq brought go with what they hold, the tasks' states, say; `keep_columns` leaves them for the
        next `install`.
        """
        retried(self.parts.store, lambda: self.parts.executor.installation.uninstall(keep_columns))
        self.parts.executor.close()
