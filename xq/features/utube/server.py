"""Group heads on a server, where many connections write at once.

A trigger sees the database as it was when its transaction began, and a put must wait for no other transaction. So a
trigger does not change the head: it appends a row to the table of dirty groups, whenever another task may be the
group's first. Takes and sweeps refresh dirty groups: they lock the head, find the first task, and delete the rows that
they have read. A head is right as long as its group is not dirty. Who changes a limit makes its groups dirty, too, and
raises the version of the limits. A head has its limit's version, by which one is known that an open transaction, or
one with an old snapshot, has written by former limits: it gets its limit before it is refreshed.

Two connections refreshing at once do different groups, as takes do: each skips heads that the other has
locked. A new group has no head, and a full group's head stays unlocked: there a refresh skips locked rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from xq.core.connections import Connections, Runs
from xq.core.kinds import ErrorKind
from xq.core.machine import READY
from xq.database.transactions import in_parts
from xq.features.utube.heads import UtubeHeads
from xq.sql.rows import Rows

DIRTY = "dirty_groups"
IS_VERSION = "feature = '' AND value = '' AND is_set = 1"  # of the row in the table of limits that counts changes
MANY = 1_000  # rows to read at once
PILE = 50  # rows of one group that could not be refreshed, which become one row
NEWEST = 100  # rows among which to look for new groups, if there are more than MANY
FEW = 20  # rows of other transactions to refresh within the application's, which keeps their heads locked


class DirtyHead(NamedTuple):
    """A row that marks a group as dirty: another task may be its first."""

    id: int
    utube: Any
    head: int  # as in HEADS


HEADS = range(4)
MISSING, OPEN, FULL, LIMITED = HEADS  # no head; one with room; a full one; one with its limit from other limits


class ServerHeads(UtubeHeads):
    """No step of a take waits for another transaction: a take skips heads that another connection has locked."""

    me: ClassVar[str]  # the transaction, or the connection, that appends a row; as SQL
    at_once = MANY  # rows to refresh in one transaction

    def __init__(self, terms: Rows) -> None:
        super().__init__(terms)
        self.dirty = terms.side(DIRTY)
        self.tables = {**self.tables, DIRTY: DIRTY}

    @abstractmethod
    def among(self, utubes: Collection[Any]) -> str:
        """Return the condition after `utube`: it is among these. Their values are in :utubes."""

    @abstractmethod
    def rows_of(self, ids: Sequence[int]) -> str:
        """Return what follows FROM: the dirty groups' rows `xq_o` with these ids. Their values are in :ids."""

    @abstractmethod
    def heads_of(self, utubes: Collection[Any]) -> str:
        """Return what follows FROM: these groups' heads `xq_o`. Their values are in :utubes."""

    @abstractmethod
    def place(self, store: Connections, utubes: Collection[Any]) -> None:
        """Insert these groups' missing heads. Skip the ones that another transaction is inserting."""

    @abstractmethod
    def look_at(self, store: Connections, utubes: Collection[Any]) -> None:
        """Write these groups' first tasks into their locked heads."""

    @abstractmethod
    def mark_again(self, utubes: Collection[Any]) -> str:
        """Return SQL to make groups dirty, with rows that belong to no transaction."""

    def gone(self, ids: Sequence[int]) -> str:
        """Return SQL that deletes rows from the table of dirty groups."""
        return f"DELETE FROM {self.dirty} WHERE id IN ({', '.join(map(str, ids))})"

    def disowned(self, ids: Sequence[int]) -> str:
        """Return SQL to detach rows from this transaction, so that it does not refresh them again."""
        rows = f"id IN ({', '.join(map(str, ids))})"
        return f"UPDATE {self.dirty} SET writer = NULL WHERE {rows} AND writer = {self.me}"

    @property
    def any_dirty(self) -> str:  # type: ignore[override]
        return f"SELECT 0 AS at FROM {self.dirty} LIMIT 1"

    def unless_dirty(self, utube: str) -> str:
        return f" AND {utube} NOT IN (SELECT utube FROM {self.dirty})"

    numbered = (DIRTY,)

    @property
    def version(self) -> str:
        """SQL for the version of the limits, a number that each change of them raises."""
        return f"COALESCE((SELECT n FROM {self.limits.table} WHERE {IS_VERSION}), 0)"

    @property
    def _raise_version(self) -> str:
        """SQL that raises the version. A second transaction that does so waits for the first."""
        made = f"INSERT INTO {self.limits.table} (feature, value, is_set, n, slack, given) VALUES ('', '', 1, 1, 0, '')"
        name = self.terms.quote(self.terms.name("limit"))
        return made + self.terms.on_conflict("feature, value, is_set", f"n = {name}.n + 1")

    def limits_of(self, utube: str) -> dict[str, str]:
        return {**super().limits_of(utube), "version": self.version}

    @property
    def is_limited(self) -> str:  # type: ignore[override]
        return f" AND xq_h.version = {self.version}"

    @property
    def no_first_task(self) -> str:
        """The assignments after SET that clear a head's first task."""
        return ", ".join(f"{column} = NULL" for column in self.columns)

    @property
    def first_known(self) -> str:
        table = self.terms.table
        rows = f"FROM {self.terms.table_in_schema} WHERE {self.is_in(table, [READY])}"
        return self.make_dirty(self.head(table), rows)

    # triggers

    def make_dirty(self, utube: str, rows: str = "") -> str:
        """Return SQL that makes one group dirty, or the group of each row in `rows`."""
        found = f"SELECT DISTINCT {utube}, {self.me} {rows}" if rows else f"VALUES ({utube}, {self.me})"
        return f"INSERT INTO {self.dirty} (utube, writer) {found}"

    def relimit(self, store: Connections, value: str) -> None:
        # By rows, as a trigger does: this waits for no transaction that has locked a head.
        store.change(self._raise_version)
        groups = " UNION ".join(f"SELECT utube FROM {t} WHERE {self.meant}" for t in (self.table, self.dirty))
        found = self.terms.execute(store, groups, {"value": value})
        for some in (found[i : i + MANY] for i in range(0, len(found), MANY)):
            utubes = [utube for (utube,) in some]
            self.terms.execute(store, self.mark_again(utubes), {"utubes": utubes})

    def _relimit(self, store: Connections, dirty: Sequence[DirtyHead]) -> set[int]:
        """Write the limits of these groups into the heads that can be locked, and return the rows of those."""
        wanted = dict.fromkeys(one.utube for one in dirty)
        limits = ", ".join(self.limits_of("xq_o.utube").values())
        heads = f"SELECT xq_o.utube, {limits} FROM {self.heads_of(wanted)}{self.terms.skip}"
        found = self.terms.execute(store, heads, {"utubes": list(wanted)})
        for utube, n, version in found:
            changed = "most = GREATEST(taken, :n), n = :n, version = :version"
            values = {"n": n, "version": version, "utube": utube}
            self.terms.execute(store, f"UPDATE {self.table} SET {changed} WHERE utube = :utube", values)
        limited = {utube for utube, *_ in found}
        return {one.id for one in dirty if one.utube in limited}

    # refreshing

    def refresh(self, executor: Runs, mine: bool = False) -> int:
        """Refresh a batch as `Heads.refresh`.

        The application's transaction may see an old snapshot, and may stay open for long. So it writes a first guess,
        which others refresh again, and it locks few heads.
        """
        store, unread = executor.store, partial(self._dirty, executor)
        if not store.in_transaction():
            refreshed, seen, read = 0, set[Any](), list[DirtyHead]()
            for read in unread("TRUE", MANY):
                # A transaction that has locked a group's earlier row may write an old state: leave the later row to it.
                dirty = [one for one in read if one.utube not in seen]
                seen.update(one.utube for one in read)
                parts = (dirty[i : i + self.at_once] for i in range(0, len(dirty), self.at_once))
                refreshed += sum(self._refresh_batch(executor, part) for part in parts)
                if refreshed > MANY // 2:  # else most are locked by others: those behind them may not be
                    break
            return refreshed + (self._refresh_new(executor) if self.fair and len(read) == MANY else 0)

        def within(own: bool, dirty: Sequence[DirtyHead]) -> int:
            return executor.transaction(partial(self._refresh_within, store, dirty, own), locks=False, caught=True)

        own = partial(self._refresh_each, store, partial(within, True))
        refreshed = sum(map(own, unread(f"writer = {self.me}", MANY)))
        if not refreshed and not mine:
            others = partial(self._refresh_each, store, partial(within, False))
            unknown = self._of_head(f"k0 IS NULL AND {self.has_room()}", "TRUE")
            refreshed = next(filter(None, map(others, unread(unknown, FEW))), 0)
        return refreshed

    def _dirty(self, executor: Runs, which: str, n: int) -> Iterator[list[DirtyHead]]:
        """Yield the dirty groups' rows by id, `n` at a time."""
        cases = f"CASE WHEN version <> {self.version} THEN {LIMITED} WHEN {self.has_room()} THEN {OPEN} "
        cases += f"ELSE {FULL} END"
        head = self._of_head(cases, f"{MISSING}")
        after: int | None = -1
        while after is not None:
            query = f"SELECT id, utube, {head} FROM {self.dirty} AS xq_n WHERE id > :after AND {which}"
            found = executor.run(f"{query} ORDER BY id LIMIT {n}", {"after": after})
            if found:
                yield [DirtyHead(*row) for row in found]
            after = found[-1][0] if len(found) == n else None

    def _of_head(self, found: str, missing: str) -> str:
        """Return a subquery on the head for the row `xq_n`; with a join the planner could read all heads."""
        return f"COALESCE((SELECT {found} FROM {self.table} AS xq_h WHERE xq_h.utube = xq_n.utube), {missing})"

    def _refresh_new(self, executor: Runs) -> int:
        """Refresh the new groups among the newest rows: they come first, and need not wait for the rows before.

        Only the new ones: into a head that is there, the reader of an earlier row may still write an old state.
        """
        newest = f"(SELECT id, utube FROM {self.dirty} ORDER BY id DESC LIMIT {NEWEST}) AS xq_n"
        new = f"SELECT id, utube, {MISSING} FROM {newest} WHERE {self._of_head('FALSE', 'TRUE')} ORDER BY id"
        found = executor.run(new)
        return self._refresh_batch(executor, [DirtyHead(*row) for row in found])

    def _refresh_batch(self, executor: Runs, dirty: list[DirtyHead]) -> int:
        if limited := [one for one in dirty if one.head == LIMITED]:
            done = executor.transaction(partial(self._relimit, executor.store, limited), locks=False)
            ready = [one._replace(head=OPEN) for one in limited if one.id in done]
            dirty = [one for one in dirty if one.head != LIMITED] + ready
        refreshed = self._refresh_each(executor.store, partial(self.refresh_open, executor), dirty)
        for of_one in _one_by_one(dirty):
            if len(of_one) >= PILE and of_one[0].head != FULL:
                executor.transaction(partial(self._merge, executor.store, of_one), locks=False)
        return refreshed

    def _refresh_each(
        self, store: Connections, refresh: Callable[[Sequence[DirtyHead]], int], dirty: Sequence[DirtyHead]
    ) -> int:
        """Refresh these; if that would wait for a lock, in parts without the groups that are locked."""

        def refresh_some(groups: Sequence[list[DirtyHead]]) -> int:
            return refresh([one for group in groups for one in group])

        return in_parts(refresh_some, _one_by_one(dirty), lambda error: store.classify(error) is ErrorKind.LOCKED)[0]

    def locked(self, store: Connections, dirty: Sequence[DirtyHead], and_so: str = "") -> list[Any]:
        """Lock the groups' open heads as far as `and_so` holds, and return their groups."""
        absent = dict.fromkeys(one.utube for one in dirty if one.head == MISSING)
        wanted = dict.fromkeys(one.utube for one in dirty if one.head != FULL)
        if absent:
            self.place(store, absent)
        if not wanted:
            return []
        heads = f"SELECT xq_o.utube FROM {self.heads_of(wanted)}"
        which = f"WHERE {self.has_room()}{and_so}{self.terms.skip}"
        found = self.terms.execute(store, f"{heads} {which}", {"utubes": list(wanted)})
        return [utube for (utube,) in found]

    def held(self, store: Connections, dirty: Sequence[DirtyHead]) -> list[DirtyHead]:
        """Lock the rows that no head's lock protects. Return all but the groups that another connection has."""
        alone = [one for one in dirty if one.head != OPEN]
        there = self.there(store, alone)
        lost = {one.utube for one in alone if one.id not in there}
        return [one for one in dirty if one.utube not in lost]

    def there(self, store: Connections, dirty: Sequence[DirtyHead]) -> set[int]:
        """Lock the rows that no other connection has deleted or locked, and return their ids."""
        ids = [one.id for one in dirty]
        these = f"SELECT xq_o.id FROM {self.rows_of(ids)}{self.terms.skip}"
        return {id for (id,) in self.terms.execute(store, these, {"ids": ids})} if dirty else set()

    def last_change(self, store: Connections) -> int:
        return max((id for id, _ in self._mine(store, -1)), default=-1)

    def look_again(self, store: Connections, last: int) -> int | None:
        # Their heads are locked by this transaction, which has counted. The rows stay for the next refresh.
        if mine := self._mine(store, last):
            self.look_at(store, list(dict.fromkeys(utube for _, utube in mine)))
        return mine[-1][0] if mine else None

    def _mine(self, store: Connections, last: int) -> list[tuple[int, Any]]:
        mine = f"SELECT id, utube FROM {self.dirty} WHERE writer = {self.me} AND id > :last ORDER BY id"
        return [(id, utube) for id, utube in self.terms.execute(store, mine, {"last": last})]

    def _refresh_within(self, store: Connections, dirty: Sequence[DirtyHead], own: bool) -> int:
        """Refresh heads without a first task, or with `own` all these heads, in the application's transaction.

        Another connection may have refreshed them since this transaction began, and may have seen more. So this makes
        the groups dirty again wherever it may have written less than was known.
        """
        locked, known = self.locked(store, dirty, " AND k0 IS NULL"), []
        if own:
            known = self.locked(store, dirty, " AND k0 IS NOT NULL")
            # A row from an earlier transaction on this connection may be refreshed already: then the head is right.
            there = self.there(store, [one for one in dirty if one.utube in known])
            known = [utube for utube in known if any(one.id in there for one in dirty if one.utube == utube)]
            locked += known
        if not locked:
            return 0
        self.look_at(store, locked)
        ready = f"SELECT utube FROM {self.table}{self.by_key} WHERE utube {self.among(locked)} AND k0 IS NOT NULL"
        found = [utube for (utube,) in self.terms.execute(store, ready, {"utubes": locked})]
        if changed := list(dict.fromkeys([*known, *found])):
            self.terms.execute(store, self.mark_again(changed), {"utubes": changed})
        if own:
            store.change(self.disowned([one.id for one in dirty if one.utube in locked]))
        return len(found)

    @abstractmethod
    def refresh_open(self, executor: Runs, dirty: Sequence[DirtyHead]) -> int:
        """Write each open group's first task into its head, delete the rows, and return how many it deleted.

        All in one transaction. Without `fair` it also deletes a head that has neither a first nor taken tasks.
        """

    def _merge(self, store: Connections, dirty: Sequence[DirtyHead]) -> None:
        """Replace a group's many rows by one, which is newer: its reader needs none of the others."""
        there = self.there(store, dirty)
        if len(there) >= PILE:
            store.change(self.gone(sorted(there)))
            self.terms.execute(store, self.make_dirty(":utube"), {"utube": dirty[0].utube})


def _one_by_one(dirty: Iterable[DirtyHead]) -> list[list[DirtyHead]]:
    found: dict[Any, list[DirtyHead]] = {}
    for one in dirty:
        found.setdefault(one.utube, []).append(one)
    return list(found.values())
