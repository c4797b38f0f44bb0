"""What a database has for a queue: what is missing or differs from its definition, and which rows are wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from xq.core.connections import Store
from xq.core.counters import corrections
from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.kinds import OUTCOME_UNKNOWN, ErrorKind, Row
from xq.core.machine import READY, TAKEN
from xq.core.words import PLAIN, Wording, alike
from xq.sql.dialect import Dialect
from xq.sql.shared import OBJECTS

# A structure's part with a digest for each feature that the application wrote. It only names the feature that differs.
# The digest over all transitions, the only one that version 0.1 recorded, decides whether one does.
OWN: Final = "own"
DURATIONS: Final = "durations"  # the part with the features' durations and limits, for programs without a definition
PUTS: Final = "puts"  # the part with digests of what puts write, by their options (xq.core.compile.puts)
UNCOMPARED: Final = {OWN: None, DURATIONS: None, PUTS: None}
GOES_ON: Final = "; its puts go on meanwhile, since they write what those of the installed definition write"

# What no column name in a CHECK is: texts and PostgreSQL's types.
NO_COLUMN: Final = re.compile(r"'[^']*'|::\w+")


class Replaced(NamedTuple):
    """Another definition is installed than this one, which may not replace it by itself."""

    why: str  # "older, as ..." or "withdrawn, as ..."
    is_withdrawn: bool = False  # a downgrade has replaced it


class Findings:
    """What a queue's database has. `structure` must be equal in every process that uses the queue."""

    remedy: Final = (  # for a status that the table refuses
        "Extend the CHECK or the type of the column, name another word in statuses=, or leave out the feature that has "
        "the state"
    )

    def __init__(
        self,
        store: Store[Any],
        dialect: Dialect,
        structure: Mapping[str, Any],
        wording: Wording = PLAIN,
        values: Callable[[], Mapping[str, Any]] = lambda: {"now": None},
    ) -> None:
        self.store = store
        self.dialect = dialect
        self.installer, self.queries = dialect.installer, dialect.queries
        self.wording = wording
        self.values = values  # each statement's named values
        self._seen_schema: Any = None  # in which `not_installed` has found nothing missing
        self.review_at = 0.0  # the monotonic time of the next check (Executor.review)
        # The record of a newer definition beside which the puts of this one go on, as `not_installed` has found it.
        self.puts_beside: list[Row] | None = None
        self.fingerprint = json.dumps(structure, sort_keys=True, default=str)
        self._look: ContextVar[Mapping[str, str] | None] = ContextVar("xq_look", default=None)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Have the block, which changes nothing, look once for what exists: that is slow on MariaDB."""
        token = self._look.set(self.installer.existing(self.store))
        try:
            yield
        finally:
            self._look.reset(token)

    def existing(self) -> Mapping[str, str]:
        """Return the kinds, by name, of the objects that exist."""
        found = self._look.get() or self.installer.existing(self.store)
        self._want_views(found)
        return found

    makes_views = False  # whether install() makes the views that are not there

    def _want_views(self, found: Collection[str]) -> None:
        objects = self.installer.objects
        names = [view.name for view in objects.views()]
        objects.wanted_views = frozenset(name for name in names if self.makes_views or name in found)

    def refuse_change(self) -> None:
        """Raise ConfigurationError if a queue with another definition is installed on the table."""
        if (records := self._records()) and (unlike := self._differences(records)):
            raise ConfigurationError(f"{self.store.name} is changed by install() alone, and {unlike[0]}")

    def _check_table(self) -> None:
        """Raise NotInstalled if the table or a column is missing.

        An index on a missing column would index a constant, and be corrupt once the column exists.
        """
        missing = self.missing_columns()
        if missing:
            raise self._not_there(missing)

    def refuse(self) -> None:
        """Raise ConfigurationError if the table cannot be a queue, or refuses a status."""
        self.installer.refuse(self.store)
        if refused := self.refused_words():
            raise ConfigurationError(f"{self.store.name} cannot be installed: {'; '.join(refused)}. {self.remedy}")

    def check_statuses(self) -> None:
        """Raise ConfigurationError if the database does not distinguish two states' statuses."""
        if alike := self._alike():
            raise ConfigurationError(f"{self.store.name} cannot be installed: {alike[0]}")

    def _alike(self) -> list[str]:
        if self._lacks_status:
            return []
        column, words = self.dialect.source.roles["status"].column, self.dialect.words
        found = self.store.execute(self.installer.statuses_alike)
        pairs = [[self.dialect.machine.states[place] for place in row] for row in found]
        return [
            f"the column {self.dialect.source.name}.{column} does not tell the statuses {words[one]!r} ({one}) and "
            f"{words[other]!r} ({other}) apart: choose others, or give it a collation that does"
            for one, other in pairs
        ]

    def refused_words(self) -> list[str]:
        """Return a message for each status that the table refuses, whatever else the row holds. It reads no row."""
        if self._lacks_status:
            return []
        dialect, table, found = self.dialect, self.dialect.source, list[str]()
        status, states = table.roles["status"].column, dialect.machine.states
        others = {name.lower() for name in self.installer.columns_of(self.store, table.name)} - {status.lower()}
        for what, condition in self.installer.checks(self.store):
            if others.isdisjoint(re.findall(r"\w+", NO_COLUMN.sub("", condition.lower()))):
                for state in (states[place] for (place,) in self.store.execute(self.installer.refused_by(condition))):
                    word = f"the column {table.name}.{status} refuses {dialect.words[state]!r}"
                    found.append(f"{word}, the status of the state {state}: {what} ({condition})")
        return found

    def _not_there(self, missing: list[str]) -> NotInstalled:
        file = self.dialect.file(self.store)  # often an empty one, made by opening a wrong path
        advice = self.store.advice
        if missing[0].startswith("the column "):
            advice = (
                "add the column (migrate), or name it as the table does (column_name= of Peewee, db_column= of Django)"
            )
            missing = self._lost() + missing
        return NotInstalled(self.store.name, missing, f"{advice}; the database is the file {file}" if file else advice)

    def _lost(self) -> list[str]:
        """Return a message if the table lacks a column in the installed definition, for example a renamed one."""
        table, roles = self.dialect.source.name, self._recorded().get("roles", {})
        there = {name.lower() for name in self.installer.columns_of(self.store, table)}
        gone = "which the installed triggers may name, is gone: until install() each write of the table may fail"
        return [f"the column {table}.{each}, {gone}" for each in roles.values() if each.lower() not in there]

    def missing_columns(self) -> list[str]:
        """Return a message for the missing table, or for each missing column."""
        columns = self.installer.table_columns(self.store)
        table = self.dialect.source.name
        if not columns:
            return [f"the table {table} is missing"]
        added = self.installer.own if self.store.adds_columns else {}
        wanted = [field.column for field in self.dialect.source.fields if field.column not in added]
        return [f"the column {table}.{column} is missing" for column in wanted if column not in columns]

    @property
    def _lacks_status(self) -> bool:
        own = self.dialect.source.own.get("status")
        return own is not None and own.column not in self.installer.table_columns(self.store)

    def missing_own(self) -> list[str]:
        """Return a message for each missing column that install() adds."""
        columns, table = self.installer.table_columns(self.store), self.dialect.source.name
        return [f"the column {table}.{column} is missing" for column in self.installer.own if column not in columns]

    def missing(self) -> list[str]:
        """Return a message for each missing thing that the queue needs; empty if it is installed. Fast."""
        return self.missing_columns() or self.missing_objects()

    def is_unchanged(
        self, records: list[Row] | None = None, schemas: dict[str, Any] | None = None, puts: bool = False
    ) -> bool:
        """Return whether the record equals this definition and layout, and nothing can have been dropped. Fast.

        `records`: what the query `installed` has found. `schemas`: what queues that look together have found. `puts`:
        whether only puts follow, which go on beside a newer definition.
        """
        with self.store.bookkeeping():
            found = self.store.execute(self.dialect.records.installed) if records is None else records
            if self._schema({} if schemas is None else schemas) != self._seen_schema:
                return False
        if puts and found == self.puts_beside:
            return True
        return found == [(self.dialect.layout, self.fingerprint)] or not self._differences(found)

    def _schema(self, known: dict[str, Any]) -> Any:
        """Return a number that each change to tables, indexes and triggers changes; None on a server."""
        sql = self.dialect.schema_version
        if sql and self.dialect.source.schema and self.store.in_transaction():
            return self._seen_schema  # the lock for writing is on the main file: to read another comes too early
        if sql and sql not in known:
            ((known[sql],),) = self.store.execute(sql)
        return known.get(sql)

    def _recorded(self) -> dict[str, Any]:
        """Return the installed structure, as its process recorded it; empty if there is no record."""
        records = self._records()
        return dict(json.loads(records[0][1])) if records else {}

    def installed_words(self) -> dict[str, Any]:
        """Return the words of the installed definition, by the letters of its states; empty if none is installed."""
        return dict(self._recorded().get("states", {}))

    def _records(self) -> list[Row] | None:
        """Return this queue's record, or none; None if there is no table of records."""
        for is_last in (False, True):
            if not self._records_are_in(self.installer.existing(self.store) if is_last else self.existing()):
                break
            try:
                # On PostgreSQL a failed statement aborts the transaction: use a savepoint.
                with self.store.atomic() if self.store.in_transaction() else nullcontext():
                    return self.store.execute(self.dialect.records.installed)
            except Exception as error:
                if is_last or self.store.classify(error) in OUTCOME_UNKNOWN:
                    raise  # the first time, another process may have dropped it since
        return None

    def not_installed(self) -> NotInstalled | None:
        """Return an error that names what is missing and the remedy; None if nothing is missing."""
        with self.store.bookkeeping():
            schema = self._schema({})  # first: a change after it is one that the next look notices
            columns = self.missing_columns()
            if columns:
                return self._not_there(columns)
            with self.one_look():
                missing = self.missing_objects()
                if not missing:
                    self._seen_schema = schema
                    return None
                missing, replaced = self._lost() + missing, self.replaced()
                lacks_history = self._lacks_history(self.existing())
                self.puts_beside = self._same_puts() if replaced else None
                self._seen_schema = schema if self.puts_beside else None
        advice = self._keeps_history() if lacks_history else self.store.installs
        if replaced:
            goes_on = GOES_ON * bool(self.puts_beside)
            advice = (
                f"end this process, or {self.instead(replaced)} (docs/howto/deploy.md): it is {replaced.why}{goes_on}"
            )
        return NotInstalled(self.store.name, missing, advice)

    def instead(self, replaced: Replaced) -> str:
        """Return what to do where this definition is replaced."""
        forward = f"start the older program, or, to go forward to this one again, {self.store.forwards}"
        return forward if replaced.is_withdrawn else "start the newer program"

    def replaced(self) -> Replaced | None:
        """Return why the installed definition or version counts as newer than this one; None if it does not."""
        mine = self.dialect.layout
        for version, there in self._records() or ():
            if int(version) > int(mine):
                newer = f"a newer version of xq has installed the queue (layout {version}, this is {mine})"
                return Replaced(f"older, as {newer}")
            changed, rows = self._is_unlike(there), list[Row]()
            if changed or version != mine:
                rows = self._generations()
            places = {(definition, layout): place for definition, layout, place, _ in rows}
            # Else a version of xq that notes no generations has installed it since, or the table was dropped.
            if (there, version) not in places or self._is_made_anew():
                return None
            for definition, layout, place, at_us in reversed(rows):
                if not self._is_unlike(definition) and (changed or layout == mine):
                    at = f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M} UTC"
                    if place > places[there, version]:
                        back = "a downgrade has replaced this definition by an older one"
                        return Replaced(f"withdrawn, as {back} ({at})", is_withdrawn=True)
                    before = "this definition was installed here before, and another one has replaced it"
                    return Replaced(f"older, as {before} ({at})")
        return None

    def _same_puts(self) -> list[Row] | None:
        """Return the record if the installed definition puts the rows that this one puts, by the same calls."""
        here, records = json.loads(self.fingerprint).get(PUTS), self._records() or []
        for version, there in records:
            alike = here and version == self.dialect.layout and here.items() <= json.loads(there).get(PUTS, {}).items()
            return records if alike and not self.missing_own() else None
        return None

    def _is_made_anew(self) -> bool:
        existing = self.existing()
        return not any(item.kind == "trigger" and item.name in existing for item in self.installer.objects.all())

    def _generations(self) -> list[Row]:
        """Return the definitions that were the newest in turn; none without the right."""
        return self._allowed(self.dialect.records.generations, {"kind": "definition"}) or []

    def _allowed(self, sql: str, values: Mapping[str, Any]) -> list[Row] | None:
        """Return a query's rows; None without the right."""
        try:
            with self.store.atomic() if self.store.in_transaction() else nullcontext():
                return self.dialect.execute(self.store, sql, values)
        except Exception as error:
            if self.store.classify(error) is not ErrorKind.DENIED:
                raise
            return None

    def _made(self) -> dict[str, str] | None:
        """Return what install() has made for this queue, with hashes; None without the right."""
        if OBJECTS not in self.existing():
            return {}
        rows = self._allowed(self.dialect.records.objects, {})
        return None if rows is None else dict(map(tuple, rows))

    def changed(self) -> dict[str, str]:
        """Return the kinds, by name, of changed indexes and triggers: those not as install() makes and leaves them.

        A hash alone says what has changed since: a script on its way to the database may have been changed before.
        """
        if (made := self._made()) is None:
            return {}
        items = {item.name: item for item in self.installer.objects.mine() if item.kind != "table"}
        there = self.store.execute(self.installer.hashes(items.values()))
        return {
            name: items[name].kind
            for name, hash, body, here in there
            if made.get(name) != hash or not body.endswith(here.join(items[name].body))
        }

    def is_whole(self) -> bool:
        """Return whether install() has nothing to do."""
        with self.one_look():
            return not self.missing() and not self.changed()

    def stale(self) -> list[str]:
        """Return SQL that drops what this queue's earlier definition had, and this one has not; triggers first."""
        prefix, objects = self.dialect.name(""), self.installer.objects
        with self.one_look():
            broken, made = self.installer.broken(self.store), {*(self._made() or ())}
            there = {**self.existing(), **broken}
        made |= {name for name in broken if name.startswith(prefix)}
        left = there.keys() & made - {item.name for item in objects.mine()}
        return [objects.drop(kind, name) for kind, name in sorted([(there[n], n) for n in left], reverse=True)]

    def _is_unlike(self, definition: str) -> bool:
        return bool(self.differences(json.loads(definition)))

    def missing_objects(self) -> list[str]:
        """Return a message for each missing thing that install() makes, and each difference to what it has recorded."""
        records = self._records()
        missing = self.missing_own() + self.lacking()
        return missing if records is None else self._differences(records) + missing

    def lacking(self) -> list[str]:
        """Return a message for each missing table, index or trigger."""
        existing, wanted = self.existing(), self.installer.objects.all()
        return [f"the {item.kind} {item.name} is missing" for item in wanted if item.name not in existing]

    def _records_are_in(self, existing: Mapping[str, str]) -> bool:
        return self.dialect.shared.table in existing

    def _differences(self, records: list[Any]) -> list[str]:
        if not records:
            return ["it was never installed here"]
        ((version, fingerprint),) = records
        if version != (layout := self.dialect.layout):
            return [f"it was installed by another version of xq (layout {version}, this is {layout})"]
        return self.differences(json.loads(fingerprint))

    def differences(self, there: Mapping[str, Any]) -> list[str]:
        """Return a message for each difference between another structure and this one; empty if they are equal."""
        here = json.loads(self.fingerprint)
        if {**there, **UNCOMPARED} == {**here, **UNCOMPARED}:
            return []
        features, roles, statuses = (
            [
                f"the {what.format(name)} is {shown(old, name)} there and {shown(new, name)} here"
                for name, old, new in _unlike(there, here, part)
            ]
            for part, (what, shown) in SHOWN.items()
        )
        features += [
            f"the feature {name!r} has other transitions, timers or columns there than here"
            for name, old, new in _unlike(there, here, OWN)
            if old and new
        ]
        if there.get("transitions") != here["transitions"] and not features and not roles:
            on = ", ".join(here["features"])
            features = [f"its transitions are others there than here, where its features are {on}"]
        known = {"features", *UNCOMPARED, "roles", "transitions", "statuses", "states"}
        others = [
            f"its {name} are {there.get(name)!r} there and {here.get(name)!r} here"
            for name in sorted({*there, *here} - known)
            if there.get(name) != here.get(name)
        ]
        return [*features, *roles, *statuses, *others]

    def check(self) -> list[str]:
        """Return the messages of `missing`, and one for each changed object and counter. Reads the whole table."""
        return [line for lines, _ in self.problems() for line in lines]

    def problems(self) -> Iterator[tuple[list[str], str]]:
        """Yield what `check` returns, as message lists with one remedy, in shell words, each with that."""
        missing = self.missing()
        unfit = self.installer.unfit(self.store) or self.hidden()
        columns = not self.missing_columns() and (self.dialect.is_local or not unfit)  # else as in install()
        if missing and (replaced := self.replaced()):
            told = f"this process is {replaced.why}{GOES_ON * bool(self._same_puts())}"
            yield [told], self.instead(replaced)
        yield missing, self.store.command("install")
        yield [*([unfit] if unfit else []), *(self._alike() if columns else [])], "change the table or the definition"
        yield self.refused_words() if columns else [], self.remedy
        yield self._left(), "DROP TRIGGER, after a look at each"
        if missing or not columns:
            return  # there are no counters, or those of another definition, or not all rows are seen
        changed = [f"the {kind} {name} is not as install() makes it" for name, kind in sorted(self.changed().items())]
        yield changed, self.store.command("install")
        if heads := self.dialect.heads:
            ((wrong,),) = self.store.execute(heads.wrong)
            if wrong:
                yield (
                    [f"{wrong} heads of {heads.name}s are not as the table has them: recount() repairs it"],
                    self.store.command("recount"),
                )
        for sequence, last, greatest in self.store.execute(self.installer.behind) if self.installer.behind else ():
            behind = f"the sequence {sequence} of the key has given {last:,}, and the table has keys up to {greatest:,}"
            yield [f"{behind}, so that puts fail: recount() repairs it"], self.store.command("recount")
        yield from self._unseen()
        yield self._unowned(), "release_all() returns all taken tasks, snatch() a single one"
        uncounted = [
            f"{abs(n)} tasks {'of tube ' + repr(tube) if tube else 'in all'} that are {self.wording.state(state)} "
            f"were {'written' if n > 0 else 'removed'} uncounted: recount() repairs it"
            for (tube, state), n in sorted(self._corrections().items())
        ]
        yield uncounted, self.store.command("recount")

    def _left(self) -> list[str]:
        """Return a message for each trigger that is there from before the table was renamed."""
        mine, all_mine = self.installer.terms.name(""), self.installer.objects.mine()
        ends = tuple("_xq_" + each.name.removeprefix(mine) for each in all_mine if each.kind == "trigger")
        there = sorted(name for name, kind in self.existing().items() if kind == "trigger" and name.endswith(ends))
        why = "is of a queue on a table of another name, and counts or refuses each move there"
        return [f"the trigger {name} {why}" for name in there if not name.startswith(mine)]

    def _unseen(self) -> Iterator[tuple[list[str], str]]:
        """Yield a message for each status meant as a state but the word of none, and SQL that mends it."""
        dialect, there = self.dialect, [json.loads(text).get("states", {}) for text, *_ in self._generations()]
        earlier = {word: state for states in there for state, word in states.items()}
        words, column, meant = dialect.letters, dialect.roles["status"], alike(dialect.letters)
        exactly = dialect.exact(column, dialect.kind("status"))
        # What was taken is taken anew. A state that exists no more may be for finished tasks: the operator decides.
        back = {state: dialect.literal(dialect.words[READY if state == TAKEN else state]) for state in words.values()}
        for word, n in self.store.execute(self.installer.statuses_in_use):
            state = earlier.get(word) or meant.get(str(word).strip().casefold())
            if state is None or word in words:
                continue
            why = "a word of an earlier definition" if word in earlier else f"like {self.wording.state(state)}"
            to, its = back.get(state, "... (a word of today's)"), dialect.literal(word)
            told = f"rows with the status {word!r}, {why}, that no call sees: {n:,}"
            yield [told], f"UPDATE {dialect.table_in_schema} SET {column} = {to} WHERE {exactly} = {its}"

    def hidden(self) -> str:
        """Return a message if the database hides rows from this user, else ""."""
        sql = self.dialect.found_tables
        return str(self.store.execute(sql)[0][-1] or "") if sql else ""

    def _unowned(self) -> list[str]:
        ((n,),) = self.store.execute(self.queries.unowned)
        of = f"tasks that are {self.wording.state(TAKEN)} and have no owner, since another program wrote their status"
        return [f"{of}: {n}; each {self.end_of_unowned}"] if n else []

    def untimed(self) -> list[str]:
        """Return a message if ended tasks have no timer, though the feature has seconds."""
        found = []
        kept: Any = getattr(self.store.model, "xq_keeps", tuple)()  # what the options of its tasks say
        updates = [*self.queries.times_ended.items(), *((each[0], self.queries.times_those(*each)) for each in kept)]
        for state, update in updates:
            rows = f"{self.dialect.table_in_schema} WHERE {update.partition(' WHERE ')[2]}"
            ((n,),) = self.store.execute(f"SELECT COUNT(*) FROM {rows}")
            of = f"tasks that are {self.wording.state(state)} and have no timer"
            mend = f"they are never deleted, unless you give them one: {self.installer.in_a_script(update)[0]}"
            found += [f"{of}: {n}; {mend}"] * bool(n)
        return found

    @property
    def end_of_unowned(self) -> str:
        """How a taken task that has no owner ends, as the end of a sentence."""
        if self.queries.times_unowned:
            return "returns to ready when the ttr of the queue passes, or by release_all() or snatch()"
        return "never returns to ready by itself: call release_all() or snatch()"

    def _corrections(self) -> dict[tuple[str, str], int]:
        # One statement reads both, so concurrent writes cause no difference.
        found = [(tube, source, target, n) for tube, source, target, n, _ in self.store.execute(self.queries.audit)]
        actual = {(tube, target): n for tube, source, target, n in found if source is None}
        return corrections([row for row in found if row[1] is not None], actual)

    def _lacks_history(self, existing: Mapping[str, str]) -> bool:
        """Return whether the queue has a history in the database, and none in this definition."""
        return not self.dialect.has_history and self.dialect.name("history") in existing

    def _keeps_history(self) -> str:
        if self.store.merged:
            delete = f"DELETE FROM {self.dialect.side('history')}"
            return f"to lose its rows, run last, while nothing writes to the table, {delete}{self.store.merged}"
        return (
            "give this process the feature 'history' as it is there; or, to drop the history with its rows, "
            f"run {self.store.command('install')} --drop-history, or call {self.store.name}.xq.install("
            "drop_history=True); to go back to this definition, with --downgrade, or downgrade=True, as well"
        )


def _unlike(there: Mapping[str, Any], here: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences in one part of two structures: name, old value, new value; None for a missing one."""
    old, new = there.get(part, {}), here.get(part, {})
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


# The structure's parts whose differences are shown value by value, and how.
SHOWN: Final[Mapping[str, tuple[str, Callable[[Any, str], str]]]] = {
    "features": ("feature {!r}", lambda value, _: "off" if value is None else "on" if value is True else repr(value)),
    "roles": ("role {!r}", lambda column, _: f"the column {column!r}" if column else "mapped to no field"),
    "statuses": ("status of {}", lambda word, state: repr(state if word is None else word)),
}
