"""Bringing what a queue needs into a database, looking whether it is there, and taking it away again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.ports import REFUSALS, UNANSWERED, ErrorKind, Store
from xq.core.words import PLAIN, Wording
from xq.engine.stats import corrections

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

# The part of a structure with a digest of each feature that the application wrote. It only names what differs: whether
# anything does, the digest of all transitions says, and version 0.1 recorded no other.
OWN: Final = "own"


class Installation:
    """One queue in one database. `structure` is what must be the same in every process that uses it."""

    def __init__(
        self, store: Store[Any], dialect: Dialect, structure: Mapping[str, Any], wording: Wording = PLAIN
    ) -> None:
        self.store = store
        self.dialect = dialect
        self.wording = wording
        self.fingerprint = json.dumps(structure, sort_keys=True, default=str)

    def ddl(self) -> str:
        """The SQL that installs the queue on an existing table; may be run twice, within a transaction as well."""
        record = self.dialect.record(self.dialect.layout, self.fingerprint)
        counted = [self.dialect.count_what_is_there, *self._heads()]
        statements = [*self._statements(), *counted, *record]
        return "".join(f"{self.dialect.in_a_script(sql)};\n" for sql in statements)

    def _statements(self) -> list[str]:
        return [sql for item in [*self.dialect.shared(), *self.dialect.objects()] for sql in item.create]

    def install(self) -> None:
        """Create what is missing. Does nothing when all is there, so any number of processes may call it."""
        self._check_table()
        self.check_statuses()
        self.dialect.prepare(self.store)
        if not self.missing():
            return
        try:
            with self.dialect.installing(self.store):
                if self.missing():  # else another process came first
                    self.dialect.refuse(self.store)
                    self._check_states()
                    self.close_outbox()
                    self.create()
        except Exception as error:
            if self.store.classify(error) not in REFUSALS:
                raise
            raise ConfigurationError(
                f"{self.store.name} cannot be installed: rows that are there already hold one value of the role "
                f"'unique' twice, or more tasks of a utube are taken than may be ({error}). Change or finish them first"
            ) from error

    def make_stage(self) -> None:
        """Create the tables that bulk puts need, which no other queue has, where they are missing."""
        tables = self.dialect.staging.tables
        existing = self.dialect.existing(self.store)
        if all(table.name in existing for table in tables):
            return
        try:
            with self.dialect.installing(self.store):
                for sql in [sql for table in tables for sql in table.create]:
                    self.store.execute(sql)
        except Exception as error:
            if self.store.classify(error) in (ErrorKind.CONFLICT, *UNANSWERED):
                raise
            raise ConfigurationError(
                f"{self.store.name} has no tables yet to stage jobs in, and they cannot be made ({error}): have the "
                "owner of its table begin a job, and grant what is needed anew"
            ) from error

    def _check_states(self) -> None:
        """Tasks must not be left behind in states that this definition does not have."""
        if not self._shared_are_in(self.dialect.existing(self.store)):
            return
        records = self.store.execute(self.dialect.installed)
        there = json.loads(records[0][1]).get("states", {}) if records else {}
        lost = {state: word for state, word in there.items() if word not in self.dialect.letters}
        counts = dict(map(tuple, self.store.execute(self.dialect.statuses_in_use))) if lost else {}
        stranded = {state: counts[word] for state, word in lost.items() if counts.get(word)}
        if stranded:
            raise ConfigurationError(
                f"{self.store.name} was installed with states that this definition lacks, and tasks are in them, "
                f"{self.wording.counts(stranded)}: start with the definition that is installed, and "
                "reconfigure(features, move=...) from it"
            )

    def _check_table(self) -> None:
        """An index on a column that is not there would be an index on a constant, and corrupt once it is."""
        missing = self.missing_columns()
        if missing:
            raise self._not_there(missing)

    def check_statuses(self) -> None:
        """Raise ConfigurationError where a task in one state would be found in another as well."""
        if alike := self._alike():
            raise ConfigurationError(f"{self.store.name} cannot be installed: {alike[0]}")

    def _alike(self) -> list[str]:
        """Say which statuses the database does not tell apart, in words."""
        column, words = self.dialect.source.roles["status"].column, self.dialect.words
        found = self.store.execute(self.dialect.statuses_alike)
        pairs = [[self.dialect.machine.states[place] for place in row] for row in found]
        return [
            f"the column {self.dialect.source.name}.{column} does not tell the statuses {words[one]!r} ({one}) and "
            f"{words[other]!r} ({other}) apart: choose others, or give it a collation that does"
            for one, other in pairs
        ]

    def _not_there(self, missing: list[str]) -> NotInstalled:
        return NotInstalled(self.store.name, missing, self.store.advice)

    def missing_columns(self) -> list[str]:
        """What of the table itself is missing, in words."""
        columns = self.dialect.table_columns(self.store)
        table = self.dialect.source.name
        if not columns:
            return [f"the table {table} is missing"]
        wanted = [field.column for field in self.dialect.source.fields]
        return [f"the column {table}.{column} is missing" for column in wanted if column not in columns]

    def create(self) -> None:
        """Create everything anew, but for the counters, which go on."""
        self.take_down()
        existing = self.dialect.existing(self.store)
        if "owner" in self.dialect.roles and self.dialect.name("owner") in existing:  # of an earlier definition
            self.store.change(self.dialect.adopt_owners)
        for sql in [*self.dialect.stale(existing), *self._statements()]:
            self.store.execute(sql)
        self.recount()
        for sql in self.dialect.record(self.dialect.layout, self.fingerprint):
            self.store.execute(sql)

    def take_down(self) -> None:
        """Drop triggers and indexes, for the rest of a transaction that creates them anew."""
        for item in reversed(self.dialect.objects()):
            if item.kind != "table":
                self.store.execute(item.drop)

    def missing(self) -> list[str]:
        """What the queue needs and does not find, in words; quick, and empty when all is there."""
        return self.missing_columns() or self._missing_objects()

    def is_recorded(self) -> bool:
        """Whether it is on record as this definition has it, which is quicker to find out than what is missing."""
        return not self._differences(self.store.execute(self.dialect.installed))

    def on_record(self) -> bool | None:
        """Whether what is on record is this definition, be it of another layout, or another; None where nothing is."""
        if not self._shared_are_in(self.dialect.existing(self.store)):
            return None
        records = self.store.execute(self.dialect.installed)
        return not self.differences(json.loads(records[0][1])) if records else None

    def not_installed(self) -> NotInstalled | None:
        """What is missing, as an error, which says what to do."""
        columns = self.missing_columns()
        if columns:
            return self._not_there(columns)
        missing = self._missing_objects()
        return NotInstalled(self.store.name, missing, self.store.installs) if missing else None

    def _missing_objects(self) -> list[str]:
        existing = self.dialect.existing(self.store)
        wanted = [*self.dialect.shared(), *self.dialect.objects()]
        missing = [f"the {item.kind} {item.name} is missing" for item in wanted if item.name not in existing]
        if not self._shared_are_in(existing):
            return missing
        try:
            # PostgreSQL ends a transaction in which anything fails.
            with self.store.atomic() if self.store.in_transaction() else nullcontext():
                records = self.store.execute(self.dialect.installed)
        except Exception as error:
            if self.store.classify(error) in UNANSWERED or self._shared_are_in(self.dialect.existing(self.store)):
                raise
            return self._missing_objects()  # another process has dropped them since
        return missing + self._differences(records)

    def _shared_are_in(self, existing: Mapping[str, str]) -> bool:
        """Whether the tables that all queues of the database share are among what exists."""
        return all(table.name in existing for table in self.dialect.shared())

    def _differences(self, records: list[Any]) -> list[str]:
        if not records:
            return ["it was never installed here"]
        ((version, fingerprint),) = records
        if version != (layout := self.dialect.layout):
            return [f"it was installed by another version of xq (layout {version}, this is {layout})"]
        return self.differences(json.loads(fingerprint))

    def differences(self, there: Mapping[str, Any]) -> list[str]:
        """How another structure differs from this one, in words; empty where both are the same."""
        here = json.loads(self.fingerprint)
        if {**there, OWN: None} == {**here, OWN: None}:
            return []
        features = [
            *(
                f"the feature {name!r} is {_switch(old)} there and {_switch(new)} here"
                for name, old, new in _unlike(there, here, "features")
            ),
            *(
                f"the feature {name!r} has other transitions, timers or columns there than here"
                for name, old, new in _unlike(there, here, OWN)
                if old and new
            ),
        ]
        roles = [
            f"the role {name!r} is {_field(old)} there and {_field(new)} here"
            for name, old, new in _unlike(there, here, "roles")
        ]
        if there.get("transitions") != here["transitions"] and not features and not roles:
            on = ", ".join(here["features"])
            features = [f"its transitions are others there than here, where its features are {on}"]
        statuses = [
            f"the status of {state} is {_word(old, state)} there and {_word(new, state)} here"
            for state, old, new in _unlike(there, here, "statuses")
        ]
        known = {"features", OWN, "roles", "transitions", "statuses", "states"}
        others = [
            f"its {name} are {there.get(name)!r} there and {here.get(name)!r} here"
            for name in sorted({*there, *here} - known)
            if there.get(name) != here.get(name)
        ]
        return [*features, *roles, *statuses, *others]

    def grant(self, user: str, role: str, run: bool) -> list[str]:
        """Give a user of the database the rights that a role needs. Returns the SQL, which is run, or not."""
        statements = self.dialect.grants(self.store, user, role)
        if run:
            with self.dialect.installing(self.store):  # two at once would be in each other's way
                for sql in statements:
                    self.store.execute(sql)
        return statements

    def tune(self) -> list[str]:
        """Have the database keep up with a table whose rows change all the time. Returns the SQL that was run."""
        statements = self.dialect.tuned(self.store)
        for sql in statements:
            self.store.execute(sql)
        return statements

    def set_unlogged(self) -> list[str]:
        """Have the database not keep the tasks through a crash, where it can. Returns the SQL that was run."""
        statements = self.dialect.unlogged(self.store)
        for sql in statements:
            self.store.execute(sql)
        return statements

    def advice(self) -> list[str]:
        """Say what would be cheaper, in words."""
        if "owner" in self.dialect.roles:
            return []
        return [
            "advice: map the role 'owner' to a nullable text field of 64 characters or more: "
            f"without it each take also writes the table {self.dialect.name('owner')}"
        ]

    def check(self) -> list[str]:
        """As `missing`, and whether the numbers are still exact: reads the whole table."""
        missing = self.missing()
        unfit = self.dialect.unfit(self.store)
        alike = [] if self.missing_columns() else self._alike()
        found = [*missing, *([unfit] if unfit else []), *alike]
        if missing:
            return found  # there are no counters, or those of another definition
        if self.dialect.groups:
            ((wrong,),) = self.store.execute(self.dialect.groups.wrong)
            if wrong:
                found.append(f"{wrong} heads of utubes are not as the table has them: recount() repairs it")
        return found + [
            f"{abs(n)} tasks {'of tube ' + repr(tube) if tube else 'in all'} that are {self.wording.state(state)} "
            f"were {'written' if n > 0 else 'removed'} uncounted: recount() repairs it"
            for (tube, state), n in sorted(self._corrections().items())
        ]

    def _corrections(self) -> dict[tuple[str, str], int]:
        # Both by one statement, and so at one moment, whoever writes meanwhile.
        found = [(tube, source, target, n) for tube, source, target, n, _ in self.store.execute(self.dialect.audit)]
        actual = {(tube, target): n for tube, source, target, n in found if source is None}
        return corrections([row for row in found if row[1] is not None], actual)

    def _heads(self) -> list[str]:
        """SQL that makes the heads of utubes as the table has them."""
        return self.dialect.groups.built if self.dialect.groups else []

    def recount(self) -> None:
        """Set the counts to what the table holds, and heads of utubes. Leaves the transitions as they are."""
        within = self.store.in_transaction()
        with self.store.atomic():
            self.dialect.one_at_a_time(self.store, within)  # two would both put right what is wrong
            for (tube, state), n in self._corrections().items():
                self.add_counter(tube, "", state, n)
            utubes = self.dialect.groups
            for sql in [utubes.alone, *utubes.built] if utubes else []:
                if sql:
                    self.store.execute(sql)

    def reset(self, within: bool) -> None:
        """Set the transitions to none, in a transaction, which may be `within` the application's.

        What was counted is taken away: what others count meanwhile stays.
        """
        self.dialect.one_at_a_time(self.store, within)
        counted: list[Any] = [row[:4] for row in self.store.execute(self.dialect.counters)]
        for (tube, state), n in corrections(counted, {}).items():
            self.add_counter(tube, "", state, -n)
        for tube, source, target, n in counted:
            self.add_counter(tube, source, target, -n)

    def add_counter(self, tube: str, source: str, target: str, n: int) -> None:
        values = {"tube": tube, "source": source, "target": target, "count": n}
        self.dialect.execute(self.store, self.dialect.add_counter, values)

    def drop(self, drop: Callable[[], object]) -> int:
        """Have the table dropped with all that belongs to it, unless tasks are taken. Returns how many are.

        Nobody takes one between the look and the drop.
        """
        with self.dialect.closing(self.store) as taken:
            if not taken:
                drop()
        return taken

    def uninstall(self) -> None:
        """Take away all that was installed, and leave the plain table."""
        self._drop_outbox()  # who archives is waited for before anything is kept from him
        with self.dialect.installing(self.store):
            self._drop_outbox()
            for item in reversed([*self.dialect.staging.tables, *self.dialect.objects()]):
                self.store.execute(item.drop)
            for sql in [*self.dialect.stale(self.dialect.existing(self.store)), *self.dialect.untuned(self.store)]:
                self.store.execute(sql)
            if self._shared_are_in(self.dialect.existing(self.store)):
                for sql in (self.dialect.forget, self.dialect.exports.unnumbered):
                    self.store.execute(sql)
                if not self.store.execute(self.dialect.queues):
                    for table in self.dialect.shared():
                        self.store.execute(table.drop)

    def close_outbox(self) -> None:
        """Have none where this definition archives nothing. Raises ConfigurationError while tasks are in it."""
        if not self.dialect.exports.is_needed:
            self._drop_outbox()

    def _drop_outbox(self) -> None:
        outbox = self.dialect.exports
        if not self.dialect.columns_of(self.store, outbox.name):
            return
        with outbox.closed(self.store):
            if self.store.execute(outbox.runs):
                raise ConfigurationError(
                    f"tasks of {self.store.name} are in {outbox.name}, on their way to an archive or back: "
                    "finish that first"
                )
            self.store.execute(outbox.drop)


def _unlike(there: Mapping[str, Any], here: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any, Any]]:
    """What of a part of two structures differs: its name, and what it is there and here; None where it is missing."""
    old, new = there.get(part, {}), here.get(part, {})
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _switch(value: Any) -> str:
    return "off" if value is None else "on" if value is True else repr(value)


def _field(column: str | None) -> str:
    return "mapped to no field" if column is None else f"the column {column!r}"


def _word(word: Any, state: str) -> str:
    return repr(state if word is None else word)
