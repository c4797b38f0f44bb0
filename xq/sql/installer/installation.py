"""Install what a queue needs in a database, change it, and remove it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from xq.core.counters import corrections
from xq.core.errors import ConfigurationError, FeatureOff, InTransaction, shown
from xq.core.kinds import OUTCOME_UNKNOWN, REFUSALS, ErrorKind
from xq.core.machine import ABSENT, ENDED, EXPIRIES, LEFT, ONWARD, READY, TAKEN
from xq.core.words import Wording
from xq.sql.installer.findings import DURATIONS, PUTS, Findings
from xq.sql.installer.online import MANY, Installing
from xq.sql.shared import GENERATIONS, TUBES

log = logging.getLogger("xq")

DELETED: Final = (
    "the queue %s is installed: the table %s has rows, and %s deletes the row of its task; the feature keep leaves it "
    "in the table when it is done, and zombie for a while"
)
END_FIRST: Final = "let them end, or kill() them, by what is installed, and call again"
UNSET: Final = "; or set group(name).then = None there"
RENAMED: Final = "made with other words of statuses"
GONE: Final = "archived"  # a word that no state has, for rows that have ended
UNGUARDED: Final = " (the guard refuses that: install the earlier definition with 'guard': 'log' first)"
BLOCKED: Final = (
    "the queue %s: %s has about %d rows, whose writers wait until install() ends; on a server they do not with "
    "install(online=True), and install(plan=True) shows the steps"
)


class Installation(Findings):
    """One queue's installation in one database."""

    def ddl(self, stale: Sequence[str] = (), columns: bool = True) -> list[str]:
        """Return the statements that install the queue on a table. They may run twice, also in a transaction.

        `stale`: what `refuse_if_reached` returns. `columns`: whether to add the columns that xq brings.
        """
        heads = self.dialect.heads.built if self.dialect.heads else []
        filling = [self.queries.count_what_is_there, *heads, *self._timing]
        added = self.installer.add_own(self.store) if columns and self.store.adds_columns else []
        statements = [*added, *stale, *self._statements(), *filling, *self._recording]
        return self._in_a_script(statements)

    def ddl_to_uninstall(self, columns: bool = True) -> list[str]:
        """Return the statements that uninstall this definition's queue. The tables that all queues share stay."""
        dropped = self.installer.drop_own(self.installer.own) if columns and self.store.adds_columns else []
        statements = [*self._drops(), *self.dialect.records.forget_all.values(), *dropped]
        return self._in_a_script(statements)

    def ddl_to_replace(self, successor: Installation) -> list[str]:
        """Return the statements that drop what another definition has not, or has otherwise; triggers first.

        They leave the tables that both have, the history, and the record.
        """
        kept = {(item.name, item.create) for item in successor.installer.objects.mine() if item.kind == "index"}
        kept |= {(item.name, ()) for item in successor.installer.objects.mine() if item.kind == "table"}
        kept.add((self.dialect.name("history"), ()))
        found = reversed(self.installer.objects.mine())
        dropped = [item for item in found if (item.name, () if item.kind == "table" else item.create) not in kept]
        return self._in_a_script(item.drop for item in dropped)

    def _in_a_script(self, statements: Iterable[str]) -> list[str]:
        return [each for sql in statements for each in self.installer.in_a_script(sql)]

    def _drops(self) -> list[str]:
        objects = self.installer.objects
        found = dict.fromkeys([objects.jobs, *objects.mine(), *objects.views()])
        return [item.drop for item in reversed(found)]

    def _statements(self) -> list[str]:
        return [sql for item in self.installer.objects.all() for sql in item.create]

    def install(
        self,
        drop_history: bool = False,
        online: bool = False,
        lock_timeout: float = 1,
        downgrade: bool = False,
        views: bool = False,
        forward: bool = False,
    ) -> None:
        """Create what is missing; do nothing if all is there. Any number of processes may call it at once.

        Raises ConfigurationError if the rows or the recorded definition do not fit, or if there is a history with rows
        that this definition lacks, unless `drop_history`, or if it is older, unless `downgrade`, or withdrawn, unless
        also `forward`; NotInstalled without the table. With `online` it runs beside writers. None waits for longer than
        `lock_timeout` seconds.
        """
        if online and drop_history:
            raise ConfigurationError("install(online=True) has no drop_history=: leave one of them out")
        if online and self.store.in_transaction():
            raise InTransaction("install(online=True)", ", or leave online= out")
        with self.making_views(views):
            self._install(drop_history, online, lock_timeout, downgrade, forward)

    @contextmanager
    def making_views(self, wanted: bool) -> Iterator[None]:
        """Make the views on the history too in this block, if `wanted`; those that are there are kept in any case."""
        if wanted and not self.dialect.has_history:
            raise FeatureOff(f"the views of {self.store.name} show its history: turn on 'history'", feature="history")
        self.makes_views = wanted
        self._want_views(())
        try:
            yield
        finally:
            self.makes_views = False

    def _install(self, drop_history: bool, online: bool, lock_timeout: float, downgrade: bool, forward: bool) -> None:
        self._check_table()
        self.installer.refuse(self.store)  # first: an enum cannot even be compared with a status that it lacks
        self.check_statuses()
        self.installer.prepare(self.store)
        if self.is_whole():
            there, here = self._recorded(), json.loads(self.fingerprint)
            if all(there.get(part) == here[part] for part in (DURATIONS, PUTS)):
                return
            with self.installer.installing(self.store):
                if self.is_whole():  # else another process has uninstalled it since
                    for sql in self.dialect.limits.defaults if self.dialect.limits else ():
                        self.store.execute(sql)
                    if self.dialect.heads:
                        self.dialect.heads.relimit(self.store, "")
                    self.record()
                    return
        self._refuse_user()
        self.refuse()
        is_new = not self._recorded()
        steps = Installing(self, online and not self.dialect.is_local, self._count)
        with self._explained():
            if steps.online:
                self._refuse_online()
                steps.run(lock_timeout)
                self._warn(is_new)
                return
            if is_new and (rows := steps.rows()) > MANY:
                log.warning(BLOCKED, self.store.name, self.store.table, rows)
            with self.installer.installing(self.store):
                if self.is_whole():  # another process was faster
                    return
                with self.one_look():
                    self.admit(drop_history, downgrade, forward)
                    is_new = not self._recorded()
                self.create()
                self._warn(is_new)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.store.classify(error) not in REFUSALS:
                raise
            raise ConfigurationError(
                f"{self.store.name} cannot be installed: rows that are there already hold one value of the role "
                f"'unique' twice, or more tasks of a utube are taken than may be ({error}). "
                "Change or finish them first"
            ) from error

    @contextmanager
    def change_online(self, downgrade: bool) -> Iterator[None]:
        """Build the missing indexes beside writers, before install() replaces another definition in the block.

        An error, also of the block, removes them: a unique one would refuse rows of the program that goes on.
        Raises what install() raises; it does nothing on MariaDB.
        """
        self.refuse_all(downgrade=downgrade, forward=True)
        there, left = self.existing(), [*Installing(self, True, self._count).left()]
        steps = [step for step in left if step.kind == "index" and step.makes[0].name not in there]
        steps, is_noted = steps if self.installer.transactional_ddl else [], self._made() is not None
        with self._explained():
            try:
                for step in steps:
                    noting = self.installer.noting(step.makes) if is_noted else ()  # else install() makes it anew
                    for sql in (*step.sql, *noting):
                        self.store.execute(sql)
                yield
            except BaseException:
                for step in steps:
                    self.store.execute(step.undo)
                raise

    def plan(self, online: bool, downgrade: bool = False, forward: bool = False) -> str:
        """Return the steps that install() would run, as text. Raises as `install` does without a table."""
        self._check_table()
        self.installer.refuse(self.store)
        steps = Installing(self, online and not self.dialect.is_local, self._count)
        try:
            self.refuse_all(steps.online, downgrade, forward)
        except ConfigurationError as error:
            return f"{steps.plan()}\nIt is refused: {error}"
        return steps.plan()

    def refuse_all(self, online: bool = False, downgrade: bool = False, forward: bool = False) -> None:
        """Raise ConfigurationError for all that install() refuses before it changes anything."""
        self._refuse_user()
        self._refuse_definition(online, downgrade, forward)

    def _refuse_user(self) -> None:
        if denied := self.installer.denied(self.store):
            raise ConfigurationError(f"{self.store.name} cannot be installed: {denied}")

    def _refuse_definition(self, online: bool = False, downgrade: bool = False, forward: bool = False) -> None:
        self.check_statuses()
        self.refuse()
        if online:
            self._refuse_online()
        else:
            self.admit(downgrade=downgrade, forward=forward)

    def refuse_if_reached(self) -> list[str]:
        """Raise what install() raises, and return SQL that drops what an earlier definition had, or had otherwise.

        The history stays. Do nothing if the database does not answer.
        """
        history = self.installer.objects.drop("table", self.dialect.name("history"))
        try:
            if not self.missing_columns() and self.missing():
                self._refuse_definition()  # another user may run the SQL
            changed = self.changed()
            others = [item.drop for item in self.installer.objects.mine() if changed.get(item.name) == "index"]
            return [sql for sql in [*self.stale(), *others] if sql != history]
        except Exception as error:
            if isinstance(error, ConfigurationError) or self.store.classify(error) not in OUTCOME_UNKNOWN:
                raise
            return []

    def admit(self, drop_history: bool = False, downgrade: bool = False, forward: bool = False) -> None:
        """Raise ConfigurationError if this definition may not replace the installed one."""
        replaced = None if downgrade else self.replaced()
        if replaced and not (forward and replaced.is_withdrawn):
            back = f"Install it from the newer program; or, to go back to this one, {self.store.downgrades}"
            forth = f"A program that starts leaves it so: to go forward to it again, {self.store.forwards}"
            raise ConfigurationError(
                f"{self.store.name} cannot be installed as this process defines it: it is {replaced.why}. "
                f"{forth if replaced.is_withdrawn else back}"
            )
        refused = [*self._left_open(), *([] if drop_history else filter(None, [self._lost_history()]))]
        # All at once: else the application changes rows first, for an installation that is refused anyway.
        self._refuse_lost("".join(f"{each}. " for each in refused))
        if refused:
            raise ConfigurationError(". ".join(refused))

    def _refuse_online(self) -> None:
        if unfit := self.installer.not_online(self.store):
            raise ConfigurationError(f"{self.store.name} cannot be installed online: {unfit}")
        self.refuse_change()

    def _warn(self, is_new: bool) -> None:
        for line in [*self._unowned(), *self.untimed()]:
            log.warning("the queue %s is installed: %s", self.store.name, line)
        machine = self.dialect.machine
        timers = {each.event for each in machine.due if each.event in EXPIRIES and each.target == ABSENT}
        deletes = ["an ack"] * machine.ack_deletes + [f"the timer {timer!r}" for timer in sorted(timers)]
        if is_new and deletes and self.has_rows():
            log.warning(DELETED, self.store.name, self.store.table, " or ".join(deletes))

    def has_rows(self) -> bool:
        return bool(self.store.execute(f"SELECT 1 FROM {self.dialect.table_in_schema} LIMIT 1"))

    def make_jobs(self, create: str) -> None:
        """Create the table that bulk puts need, if it is missing. Raises ConfigurationError if that fails."""
        table = self.installer.objects.jobs
        if table.name in self.existing():
            return
        try:
            with self.installer.installing(self.store):
                self.store.execute(create)
        except Exception as error:
            if self.store.classify(error) in (ErrorKind.CONFLICT, *OUTCOME_UNKNOWN):
                raise
            raise ConfigurationError(
                f"{self.store.name} has no table yet of the jobs that were put, and it cannot be made ({error}): have "
                "the owner of its table begin a job, and grant the rights on it"
            ) from error

    def _refuse_lost(self, before: str) -> None:
        """Raise ConfigurationError if tasks have a status in the installed definition that this one lacks."""
        there, status = self._recorded(), self.dialect.roles["status"]
        lost = {word: state for state, word in there.get("states", {}).items() if word not in self.dialect.letters}
        found = self.store.execute(self.installer.statuses_in_use) if lost else []
        full = [(lost[word], word, n) for word, n in sorted(found, key=str) if word in lost]
        if full:
            counts = {state: n for state, _, n in full}
            old = Wording({state: word for state, word, _ in full if word != state})
            exactly = self.dialect.exact(status, self.dialect.kind("status"))
            is_guarded = there["features"].get("guard") is True and TAKEN in counts
            literal, guarded = self.dialect.literal, UNGUARDED * is_guarded
            moving = [f"{self._moving(state)} WHERE {exactly} = {literal(word)};" for state, word, _ in full]
            raise ConfigurationError(
                f"{before}{self.store.name} has tasks in states, or with words of them, that this definition lacks, "
                f"{old.counts(counts)}: move them where you want them, by these statements or your own, and call "
                f"again{self.store.merged}. The installed triggers count it{guarded}:\n" + "\n".join(moving)
            )

    def _moving(self, state: str) -> str:
        """Return the start of SQL that moves a state's tasks to one in this definition."""
        dialect, machine = self.dialect, self.dialect.machine
        ends = [each for each in ENDED if each in machine.states]
        target = state if state in machine.states else READY if state not in ENDED else next(iter(ends), ABSENT)
        if target == ABSENT:  # it has ended: the row leaves the queue, and stays in the application's table
            is_text, table = dialect.kind("status") == "text", dialect.table_in_schema
            gone = "NULL" if dialect.source.roles["status"].null else dialect.literal(GONE) if is_text else ""
            return f"UPDATE {table} SET {dialect.roles['status']} = {gone}" if gone else f"DELETE FROM {table}"
        values, there = {"status": dialect.literal(dialect.words[target])}, self.installer.table_columns(self.store)
        if target != state:
            goes_on = ["deadline"] * (machine.timer(target, "deadline") is not None)
            values |= dict.fromkeys({"runat", "deadline"} - {*goes_on}, "NULL")
        if target != TAKEN and LEFT.keys() & dialect.roles:
            first, second = map(dialect.literal, ONWARD)  # the triggers empty what leaves their queue, under a new word
            values["owner"] = f"CASE WHEN {dialect.roles['owner']} = {first} THEN {second} ELSE {first} END"
        elif target == TAKEN and self.queries.times_unowned:
            values["owner"] = "NULL"  # so the ttr begins anew
        known = {role: field for role, field in dialect.source.roles.items() if field.column in there}
        written = ", ".join(f"{dialect.roles[role]} = {values[role]}" for role in known if role in values)
        return f"UPDATE {dialect.table_in_schema} SET {written}"

    def _left_open(self) -> Iterator[str]:
        """Yield an error for what would end otherwise by this definition: dependants, open groups, steps."""
        dialect, there = self.dialect, self._recorded()
        words = there.get("states", {}).items()
        renamed = {state for state, word in words if dialect.words.get(state, word) != word}.difference(ENDED)
        if ((lost := "after" not in dialect.machine.roles) or renamed) and dialect.name("after") in self.existing():
            rows = f"SELECT DISTINCT {', '.join(dialect.parts)} FROM {dialect.side('after')}"
            if n := len(self.store.execute(rows)):
                why = "which need the feature 'after'" if lost else RENAMED
                yield f"{self.store.name} has tasks that wait for others, {why}: {n}; {END_FIRST}"
        steps = there.get("roles", {}).get("steps", "")
        if steps and "steps" not in dialect.machine.roles and steps in self.installer.table_columns(self.store):
            done = f"SELECT COUNT(*) FROM {dialect.table_in_schema} WHERE {dialect.quote(steps)} IS NOT NULL"
            ((n,),) = self._allowed(done, {}) or [(0,)]
            if n:
                yield f"{self.store.name} has tasks with steps, which need the feature 'steps': {n}; {END_FIRST}"
        table = dialect.in_full(self.store).table_in_schema
        thens = (f"INSERT INTO {table} (",) * (READY in renamed) + (f"UPDATE {table} SET ",) * bool(renamed)
        for (queue,) in self.store.execute(dialect.shared.queues) if there else ():
            is_mine, other = queue == dialect.source_name, dialect.of_table(queue.rpartition(".")[2])
            lost = is_mine and not dialect.machine.settings.groups
            if (lost or renamed) and self.installer.columns_of(self.store, other.name("group")):
                groups = f"SELECT name, then_sql FROM {other.side('group')} WHERE done IS NULL ORDER BY name"
                found = self._allowed(groups, {}) or []
                if held := [shown(group) for group, then in found if is_mine or (then or "").startswith(thens)]:
                    why = "which need the feature 'groups'" if lost else RENAMED
                    listed = f"{len(held)}, {', '.join(held[:5])}{' ...' * (len(held) > 5)}"
                    yield f"{queue} has open groups, {why}: {listed}; {END_FIRST}{UNSET * (not is_mine)}"

    def _lost_history(self) -> str:
        """Return an error if the history has rows, which this definition would drop; "" if not."""
        any_row = f"SELECT id FROM {self.dialect.side('history')} LIMIT 1"
        if not self._lacks_history(self.existing()) or not self.store.execute(any_row):
            return ""
        return (
            f"{self.store.name} has a history, whose rows are in {self.dialect.name('history')}, and this "
            f"definition lacks the feature 'history', so that install() would drop them: {self._keeps_history()}"
        )

    def create(self) -> None:
        """Create what is not as this definition has it; the counters keep their values."""
        if self._recorded() and self.installer.keep_others_out:
            self.store.execute(self.installer.keep_others_out)
        there = (self.installer.columns_of(self.store, self.dialect.name(table)) for table in ("count", "history"))
        if self.queries.add_up_history and all(there):
            self.store.execute(self.queries.add_up_history)
        for sql in (sql for item in self.installer.objects.all() if item.kind == "table" for sql in item.create):
            self.store.execute(sql)
        for step in Installing(self, False, self._count).left():
            for sql in step.sql if step.kind != "count" else ():
                self.store.execute(sql)
        self.recount()
        for timed in self._timing:
            self.dialect.execute(self.store, timed, self.values())
        self.record()

    @property
    def _timing(self) -> list[str]:
        return [*filter(None, [self.queries.times_unowned, self.queries.times_finished])]

    @property
    def _recording(self) -> list[str]:
        recorded = self.dialect.records.record(self.dialect.layout, self.fingerprint)
        return [*recorded, *self.installer.noting(self.installer.objects.mine())]

    def record(self) -> None:
        """Record this definition as installed."""
        for sql in self._recording:
            if sql == self.dialect.records.forget:  # what was installed is noted
                self._note_durations()
            self.dialect.execute(self.store, sql, self.values())

    def _note_durations(self) -> None:
        """Leave this definition in its place among those that were installed, if only its durations are new."""
        alike = [row for row in self._generations() if row[1] == self.dialect.layout and not self._is_unlike(row[0])]
        if alike and all(definition != self.fingerprint for definition, *_ in alike):
            values = {"definition": self.fingerprint, "generation": alike[-1][2]}
            self.dialect.execute(self.store, self.dialect.records.note_durations, values)

    def forget_schedules(self) -> None:
        """Forget which sets of schedules were the newest in turn: none is older any more."""
        if GENERATIONS in self.existing():
            self.store.execute(self.dialect.records.forget_schedules)

    def _count(self) -> None:
        self.recount()
        self.record()

    def recount(self) -> None:
        """Set the task counts and the group heads to what the table holds. Leave the transition counts."""
        within = self.store.in_transaction()
        if hidden := self.hidden():
            raise ConfigurationError(f"{self.store.name} cannot be counted: {hidden}")
        with self.store.atomic():
            self.dialect.one_at_a_time(self.store, within)  # two at once would correct the counters twice
            for (tube, state), n in self._corrections().items():
                self.add_counter(tube, "", state, n)
            heads = self.dialect.heads
            # What a limit that was lowered since has left taken is no reason to refuse.
            is_first = heads is not None and heads.name not in self._recorded().get("features", {})
            built = [heads.alone, *(heads.built_first if is_first else heads.built)] if heads else []
            for sql in [*self.installer.continuing, *built]:
                if sql:
                    self.store.execute(sql)

    def reset(self, within: bool) -> None:
        """Set the transition counts to zero, in a transaction; `within`: whether it is the application's.

        It subtracts what it read, so what other processes count meanwhile remains.
        """
        self.dialect.one_at_a_time(self.store, within)
        counted: list[Any] = [row[:4] for row in self.store.execute(self.queries.counters)]
        for (tube, state), n in corrections(counted, {}).items():
            self.add_counter(tube, "", state, -n)
        for tube, source, target, n in counted:
            self.add_counter(tube, source, target, -n)

    def add_counter(self, tube: str, source: str, target: str, n: int) -> None:
        values = {"tube": tube, "source": source, "target": target, "count": n}
        self.dialect.execute(self.store, self.queries.add_counter, values)

    def drop(self, drop: Callable[[], object]) -> int:
        """Call `drop`, which drops the table, unless tasks are taken. Return how many are taken.

        No task can be taken between the count and the drop.
        """
        with self.installer.closing(self.store) as taken:
            if not taken:
                drop()
        return taken

    def uninstall(self, keep_columns: bool = False) -> None:
        """Remove all that was installed, and leave the plain table; with `keep_columns` also what xq added to it."""
        with self.installer.installing(self.store):
            for sql in [*self._drops(), *self.stale()]:
                self.store.execute(sql)
            if self._records_are_in(there := self.existing()):
                for sql in self.dialect.records.forget_all.values():
                    self.store.execute(sql)
                if TUBES not in there and not self.store.execute(self.dialect.shared.queues):
                    for shared in self.installer.objects.shared():
                        self.store.execute(shared.drop)
            if self.store.adds_columns and not keep_columns:
                for sql in self.installer.drop_own(
                    self.installer.own.keys() & self.installer.table_columns(self.store)
                ):
                    self.store.execute(sql)
