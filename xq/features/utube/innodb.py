"""Group heads on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from xq.core.compile import Selector
from xq.core.connections import Connections, Runs
from xq.features.utube.heads import EMPTY, HeadChange
from xq.features.utube.server import FULL, OPEN, DirtyHead, ServerHeads
from xq.sql.heads import ByKey
from xq.sql.innodb.innodb_dialect import Innodb
from xq.sql.language import Form
from xq.sql.sql_file import filled_in, texts


class InnodbHeads(ServerHeads):
    """Heads that are called by the utube's digest: a text may be long, and compares as its collation does.

    There are no partial indexes: stored columns hold a task's utube, and whether a head is open.
    """

    terms: Innodb

    me = "CONNECTION_ID()"
    at_once = 200  # more could take longer than a take waits that finds them locked
    join = "STRAIGHT_JOIN"
    by_key = " FORCE INDEX (PRIMARY)"  # by an index on states the server would lock all the rows that it reads there
    by_open = " FORCE INDEX (open)"

    @property
    def column(self) -> str:
        """The table's column with the utube's digest."""
        return self.terms.quote(self.terms.name("turn"))

    def called(self, column: str) -> str:
        called = f"CONVERT({self.terms.as_text(self.terms.value_of('utube', column))} USING ascii)"
        return f"COALESCE({called}, '')" if self.fair else called

    def key_of_limit(self, utube: str) -> str:
        return utube

    now_served = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"

    def of_utube(self, utube: str, of: str) -> str:
        return f"{of}{self.column} = {utube}"

    @property
    def of_none(self) -> str:
        return f"{self.terms.table}.{self.column} IS NULL"

    def is_open(self, of: str = "") -> str:
        return f"{of}open = 1"

    def for_others(self, condition: str) -> str:
        return condition

    def index_of_none(self, suffix: str) -> str:
        return suffix if suffix.endswith("tube") else "utube"

    @property
    def index(self) -> tuple[str, str, bool]:
        return ", ".join([self.terms.roles["status"], self.column, self.terms.order]), "", False

    def stored(self, digest: Callable[[str, str], str]) -> tuple[str, str]:
        made = digest(self.role, "utube")
        return self.column, f"COALESCE({made}, '')" if self.fair else made

    def of_tables(self, stored: Callable[..., str]) -> Mapping[str, str]:
        pairs, listed = zip(self.columns, self.terms.ordered, strict=True), f"open, {self.in_turn()}"
        return {
            "ordered_as_columns": ", ".join(f"{self.terms.table}.{mine} AS {column}" for column, mine in pairs),
            "nulls": ", ".join(["NULL"] * len(self.columns)),
            "open": stored(self.table, "open", "BOOLEAN", super().is_open(), "open", listed),
        }

    def in_trigger(self, change: str, words: Collection[str], known: Mapping[str, str]) -> str:
        return "".join(f" {self._on(each, words)}" for each in self.changes_of(change))

    def _on(self, change: HeadChange, words: Collection[str]) -> str:
        """Return what a trigger does for a row."""
        known = {
            "when": f"({change.when})",
            "taken": change.taken,
            "utube": change.utube,
            "limit": self.limit(change.utube),
            "now_served": self.now_served,
            "heads": self.table,
            "adding": self.adding,
            "dirty_groups": self.dirty,
            "me": self.me,
        }
        return filled_in(texts(self.file)["changed"], words, known)

    def by_keys(self, keys: Sequence[str], table: str, rows: Selector) -> list[ByKey]:
        terms = self.terms
        mine, *others = self.candidates(["xq_h.utube AS xq_c0"], rows)
        heads = f"{self.table} AS xq_h{self.by_key} ON xq_h.utube = xq_c0"
        heads += f" STRAIGHT_JOIN {terms.table_in_schema}{terms.by_primary} ON {terms.same_wait('xq_h', terms.table)}"
        found = [(mine, heads, f"{self.is_open('xq_h.')} AND {self.takeable(rows)}")]
        if others:
            found += [(self.of_others(keys, rows), table, f"{self.of_none} AND {self.takeable(rows)}")]
        return found

    @property
    def adding(self) -> str:
        served = "served = GREATEST(served, VALUES(served)), " * self.fair
        # In this order: it sees what the assignments before it have written.
        changed = f"most = {self.most_after('VALUES(taken)')}, taken = taken + VALUES(taken), {served}"
        return self.terms.on_conflict("utube", changed + self.no_first_task)

    def select(self, columns: str, rows: Selector) -> str:
        # From the heads alone: another part of the statement locks the first tasks without a utube.
        return f"{self.candidates([columns], rows)[0]}{self.terms.skip}"

    def among(self, utubes: Collection[Any]) -> str:
        return f"IN ({', '.join(map(self.terms.literal, utubes))})"

    def rows_of(self, ids: Sequence[int]) -> str:
        return self._joined(self.dirty, "id", ids)

    def heads_of(self, utubes: Collection[Any]) -> str:
        return self._joined(self.table, "utube", [f"_ascii{self.terms.literal(utube)}" for utube in utubes])

    def place(self, store: Connections, utubes: Collection[Any]) -> None:
        unless_there = self.terms.on_conflict("utube", "taken = taken")
        limit, version = map(self.terms.variable, ("limit", "version"))
        begun, first = self.terms.unless_locked
        if store.ready().open_block != "transaction":
            first = Form("")  # in the application's transaction MySQL would keep the gap locked
        # By SELECT INTO, which locks no limit.
        each = (
            f"SELECT {self.limit(literal)} INTO {limit}; {first(self.table, f'utube = {literal}')}INSERT INTO "
            f"{self.table} (utube, taken, n, most, version) VALUES ({literal}, 0, {limit}, {limit}, {version})"
            f"{unless_there}"
            for literal in map(self.terms.literal, utubes)
        )
        declared = self.terms.declare([limit, version], "BIGINT")
        steps = [declared, *filter(None, [begun]), f"SELECT {self.version} INTO {version}", *each]
        store.change(self.terms.at_once(self.terms.block("; ".join(steps))))

    def look_at(self, store: Connections, utubes: Collection[Any], *then: str) -> None:
        """Write these groups' first tasks into their heads, and run the statements `then` in the same block."""
        # A statement that writes locks what it reads; a plain SELECT locks only under SERIALIZABLE.
        names = map(self.terms.literal, utubes)
        firsts = (f"SELECT {name}, xq_f.* FROM ({self.first(self.wanted, name)}) AS xq_f" for name in names)
        found = {row[0]: row for row in store.execute(self.terms.at_once(" UNION ALL ".join(firsts)))}
        none = [None] * len(self.columns)
        rows = [found.get(utube, [utube, *none]) for utube in utubes]
        values = {f"v{i}_{j}": value for i, row in enumerate(rows) for j, value in enumerate(row)}
        each = ", ".join("(0, " + ", ".join(f":v{i}_{j}" for j in range(len(row))) + ")" for i, row in enumerate(rows))
        known = self.terms.on_conflict("utube", ", ".join(f"{column} = VALUES({column})" for column in self.columns))
        written = f"INSERT INTO {self.table} (taken, utube, {', '.join(self.columns)}) VALUES {each}{known}"
        self.terms.execute(store, self.terms.block("; ".join([written, *then])), values)

    # Given a list of keys, the server may scan the table and wait for locked rows, so read key by key.

    def mark_again(self, utubes: Collection[Any]) -> str:
        rows = ", ".join(f"({self.terms.literal(utube)})" for utube in utubes)
        return f"INSERT INTO {self.dirty} (utube) VALUES {rows}"

    def refresh_open(self, executor: Runs, dirty: Sequence[DirtyHead]) -> int:
        return executor.transaction(partial(self._refresh, executor.store, dirty), locks=False)

    def _refresh(self, store: Connections, dirty: Sequence[DirtyHead]) -> int:
        dirty = self.held(store, dirty)
        # What it reads is at least as new as the head's lock, and so as what another connection has written there.
        locked = set(self.locked(store, dirty))
        # The statement that makes room in a full group makes it dirty.
        refreshed = [one.id for one in dirty if one.head == FULL or one.utube in locked]
        if locked:
            emptied = [] if self.fair else [self._empty(locked)]
            self.look_at(store, locked, *emptied, self.gone(refreshed))
        elif refreshed:
            store.change(self.gone(refreshed))
        return len(refreshed)

    def _empty(self, utubes: Collection[Any]) -> str:
        return self.terms.at_once(f"DELETE xq_o FROM {self.heads_of(utubes)} WHERE {EMPTY}")

    def forget_some(self, executor: Runs) -> int:
        # By their keys: a DELETE that looks for them would lock all heads, and wait.
        found = [DirtyHead(0, utube, OPEN) for (utube,) in executor.run(self.turns_over)]
        for i in range(0, len(found), self.at_once):
            executor.transaction(partial(self._forget, executor.store, found[i : i + self.at_once]), locks=False)
        return len(found)

    def _forget(self, store: Connections, over: Sequence[DirtyHead]) -> None:
        if locked := self.locked(store, over):
            store.change(self._empty(locked))

    def gone(self, ids: Sequence[int]) -> str:
        return self.terms.at_once(f"DELETE xq_o FROM {self.rows_of(ids)}")

    def disowned(self, ids: Sequence[int]) -> str:
        mine = f"xq_o.writer = {self.me}"
        return self.terms.at_once(f"UPDATE {self.rows_of(ids)} SET xq_o.writer = NULL WHERE {mine}")

    @staticmethod
    def _joined(table: str, key: str, keys: Iterable[Any]) -> str:
        """Return a JOIN with the rows `xq_o` for some keys, which reads them by key."""
        each = " UNION ALL ".join(f"SELECT {value} AS k" for value in keys)
        return f"({each}) AS xq_i STRAIGHT_JOIN {table} AS xq_o FORCE INDEX (PRIMARY) ON xq_o.{key} = xq_i.k"
