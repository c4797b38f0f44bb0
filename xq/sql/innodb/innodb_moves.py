"""Task moves on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from xq.core.acting import PART
from xq.core.compile import Change, Known, Selector, Statement
from xq.core.connections import Connection, Run
from xq.core.kinds import Row, Values
from xq.core.machine import Guard
from xq.sql.innodb.innodb_language import InnodbTerms
from xq.sql.innodb.known import Columns, row_of, unread
from xq.sql.named import filled
from xq.sql.server import ServerMoves
from xq.sql.terms import UNIQUE

TIMED = f"CONCAT(SUBSTRING_INDEX(:context, '{PART}', 4), '{PART}', {{}}, '{PART}')"  # the context at that time
PER_CHANGE = 999  # rows that one statement changes by key: given 1,000 keys, the server reads and locks the whole table
PASSED: Final = 1_000  # locked rows that a statement in the application's transaction passes over
ONE: Final = frozenset({"key", "first"})  # the modes that select one row
NAMES: Final = ("k", "other")  # a block's variables: for the row's key, and for that of others


class InnodbMoves(ServerMoves):
    """UPDATE has no RETURNING, so it locks rows by SELECT, updates by key, and reads again.

    One block does so for one row: variables hold its key. Several rows come to the client, which names their keys.
    """

    terms: InnodbTerms
    deletes_unread = True

    @cached_property
    def _columns(self) -> Columns:
        return {}

    @cached_property
    def may_pass_by(self) -> bool:
        # A take that leaves out tubes locks their rows for a moment, until it has read the tube.
        return self.has_dirty_heads or "tube" in self.terms.roles

    def _of_states(self, rows: Selector) -> str:
        # Not by an index on states: it would miss tasks that move meanwhile to an already read state.
        return f"{self.terms.table_in_schema}{self.terms.by_primary * bool(rows.more)}"

    def _locked(self, rows: Selector, columns: str) -> str:
        """Return a query that locks the rows and returns them unchanged."""
        if rows.mode in ("all", "each"):
            return f"SELECT {columns} FROM {self._of_states(rows)} WHERE {self.where(rows)}{self.terms.lock}"
        if rows.mode not in ("key", "keys"):
            return self.select(columns, rows)
        # By the key: by the index on states the server would also lock the tasks that others have taken.
        there = f"{self.terms.table_in_schema}{self.terms.by_primary}"
        locked = f"SELECT {columns} FROM {there} WHERE {self.named(rows)}{self.fence(rows)}{self.terms.lock}"
        return self.terms.within_a_second(locked) if rows.briefly else locked

    def _with_locks(self, statement: Statement, rows: Selector, columns: str) -> Statement:
        """Return a statement with the queries that lock the rows which it changes."""
        locks = self._locks(rows, columns)
        if rows.mode in ("key", "keys", "each"):
            return replace(statement, **locks)
        by_key = zip(("lock", "others"), self._by_key(rows, columns), strict=False)
        either = {part: self.terms.by_level(sql, locks[part]) for part, sql in by_key}
        return replace(statement, **locks, within=replace(statement, **locks | either))

    def _by_key(self, rows: Selector, columns: str) -> Iterator[str]:
        """Yield queries that find rows by an index without locks, and lock them by their keys, and so no gap."""
        terms, table = self.terms, f"{self.terms.table_in_schema}{self.terms.by_primary}"
        wanted, same = zip(*((f"{key} AS xq_c{i}", f"{key} = xq_c{i}") for i, key in enumerate(self._keys_of_table)))
        of_tasks = f"{table} ON {' AND '.join(same)}"
        if heads := self.heads_for(rows):
            found = heads.by_keys(wanted, of_tasks, rows)
        else:
            by, chosen = terms.choice(rows)
            query = f"SELECT {', '.join(wanted)} FROM {terms.table_in_schema}{by} WHERE {chosen} LIMIT 1"
            found = [(query, of_tasks, chosen.rpartition(" ORDER BY ")[0] or chosen)]
        for name, (query, join, condition) in zip(NAMES, found, strict=False):
            some = f"({query.rpartition(' LIMIT ')[0]} LIMIT :most) AS xq_c STRAIGHT_JOIN {join} WHERE {condition}"
            yield f"SELECT {self._into(rows, columns, name)} FROM {some} LIMIT {terms.limit(rows)}{terms.skip}"

    def _into(self, rows: Selector, columns: str, name: str) -> str:
        return columns + f" INTO {', '.join(self._variables(name))}" * (rows.mode in ONE)

    def _locks(self, rows: Selector, columns: str) -> dict[str, Any]:
        one, heads = rows.mode in ONE, self.heads_for(rows)
        mine, other = (self._into(rows, columns, name) for name in NAMES)
        found = {"lock": self._locked(rows, mine)}
        _, *others = heads.candidates([other], rows) if heads else [""]
        for query in others:
            found["others"] = f"{query}{self.terms.skip}"
            # A locking read: a plain one might read an old snapshot, without these rows.
            either = " OR ".join(map(self._is_row, NAMES)) if one else ":chosen"
            found["among"] = (
                f"SELECT {self._into(rows, ', '.join(self.terms.keys), NAMES[0])} "
                f"FROM {self.terms.table_in_schema}{self.terms.by_primary} "
                f"WHERE {either} ORDER BY {self.terms.order} LIMIT {self.terms.limit(rows)}{self.terms.lock}"
            )
        return found

    def _variables(self, name: str) -> list[str]:
        return [self.terms.variable(f"{name}{i}") for i in range(len(self.terms.keys))]

    def _is_row(self, name: str) -> str:
        """Return the condition for the row with its key in these variables. If they are NULL, it finds none at once."""
        return " AND ".join(f"{key} = {it}" for key, it in zip(self.terms.keys, self._variables(name), strict=True))

    def listing(self, rows: Selector) -> str:
        return self._locked(rows, ", ".join(self._keys_of_table))

    def insert(self, change: Change, names: Sequence[str], count: int, guarded: bool = True) -> Statement:
        made = super().insert(change, names, count, guarded)
        row = row_of(self.terms, change, names) if count == 1 and not made.admitted else None
        alone = made.sql.removesuffix(self.returned("", self.terms.columns))
        return replace(made, known=Known(alone, row)) if row else made

    def update(self, rows: Selector, change: Change) -> Statement:
        table, names = self.terms.table_in_schema, self.brings(change)
        if rows.mode == "all":  # the caller needs no rows back
            return Statement(f"UPDATE {table} SET {self.sets(rows, change)} WHERE {self.where(rows)}", names=names)
        chosen = self._is_row(NAMES[0]) if rows.mode in ONE else ":chosen"
        statement = Statement(
            f"UPDATE {table}{self.terms.by_primary} SET {self.sets(rows, change)} WHERE {chosen}",
            names=names,
            charge=self.charge(rows, change, chosen),
            # An UPDATE that changes nothing makes no version: an older snapshot would not have a row put since.
            back=f"SELECT {self.terms.columns} FROM {table}{self.terms.by_primary} WHERE {chosen}{self.terms.afresh}",
        )
        return self._with_locks(statement, rows, ", ".join(self._keys_of_table))

    def delete(self, rows: Selector, change: Change) -> Statement:
        table, names = self.terms.table_in_schema, self.brings(change)
        if rows.mode == "all":
            deleted = (
                f"DELETE {table} FROM {self._of_states(rows)} WHERE {self.where(rows)} AND {self.terms.sets_context}"
            )
            return Statement(deleted, names=names)
        # With ORDER BY and LIMIT: else the server would read and lock the whole table if most rows match.
        in_order = f"ORDER BY {', '.join(self.terms.keys)} LIMIT"
        if rows.mode in ("key", "keys"):
            # It accepts no FORCE INDEX here. By the index on states it would lock the tasks that others have taken.
            fenced = self.named(rows, by_key=True) + self.fence(rows, f"CONCAT({self.terms.roles['owner']})")
            some, returned = "1" if rows.mode == "key" else ":many", ", ".join(self.last(change))
            deleted = f"DELETE FROM {table} WHERE {fenced} AND {self.terms.sets_context} {in_order} {some}"
            deleted = self.terms.within_a_second(deleted) if rows.briefly else deleted
            if rows.unread:
                return Statement(deleted, names=names, unread=True)
            return Statement(self.returned(deleted, returned), names=names)
        deleted = f"DELETE FROM {table} WHERE :chosen AND {self.terms.sets_context} {in_order} :many"
        columns = ", ".join([*self.last(change, f"{self.terms.table}."), *self._keys_of_table])
        return self._with_locks(Statement(deleted, names=names), rows, columns)

    @property
    def _keys_of_table(self) -> list[str]:
        return [f"{self.terms.table}.{key}" for key in self.terms.keys]

    def run_one(self, statement: Statement, width: int) -> Run:
        """Return a function that runs a statement that locks nothing beforehand."""
        return super().run_alone(statement, width)

    def run_alone(self, statement: Statement, width: int = 0) -> Run:
        if statement.unread:
            text, values_of = self.terms.filled(statement.sql)
            return lambda connection, values: [values["left"]] * connection.change(text, values_of(values))
        if not statement.lock:
            read = self.run_one(statement, width)
            return unread(self.terms, self._columns, statement, width, read) if statement.known else read
        if statement.within:
            alone, within = map(self.run_alone, (replace(statement, within=None), statement.within))

            def either(connection: Connection, values: dict[str, Any]) -> list[Row]:
                n = values.get("n", 1)
                is_within = connection.in_transaction and connection.open_block != "transaction"
                if is_within and n != self.terms.no_limit:  # all of them are also those that an old snapshot lacks
                    if rows := within(connection, {**values, "most": n + PASSED}):
                        return rows  # else its snapshot may be older than what is there
                return alone(connection, values)

            return either
        if filled(statement.sql, chosen="") == statement.sql:
            return self._in_a_block(statement)
        find, others = (
            self.terms.query(statement.lock),
            self.terms.query(statement.others) if statement.others else None,
        )
        wide = len(self.terms.keys)
        both = self.terms.block(f"{statement.sql}; {statement.back}") if statement.back else statement.sql
        of_size: dict[int, Run] = {}  # by row count

        def change(connection: Connection, values: dict[str, Any], found: list[Row]) -> list[Row]:
            """Change the locked rows, and return them."""
            many = len(found)
            run = of_size.get(many) or of_size.setdefault(
                many, self.terms.query(filled(both, chosen=self._chosen(many)))
            )
            values = {**values, **self._named([row[-wide:] for row in found]), "many": many}
            back = run(connection, values)
            return back if statement.back else [row[: len(row) - wide] for row in found]

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            found = find(connection, values)
            more = others(connection, values) if others else []
            if found and more:
                found = self._among(statement, connection, values, [*found, *more])
            found = found or more
            batches = (found[i : i + PER_CHANGE] for i in range(0, len(found), PER_CHANGE))
            return [row for batch in batches for row in change(connection, values, batch)]

        return lambda connection, values: connection.atomically(values, run)

    def _in_a_block(self, statement: Statement) -> Run:
        """Return a function that runs a one-row statement's parts in a block: one round trip."""
        mine, other = map(self._variables, NAMES)
        steps = [
            self.terms.declare([name], f"TYPE OF {self.terms.table_in_schema}.{key}")
            for names in ((mine, other) if statement.others else (mine,))
            for name, key in zip(names, self.terms.keys, strict=True)
        ]
        steps.append(statement.lock)
        if statement.others:
            steps += [statement.others, self.terms.when(f"{other[0]} IS NOT NULL", statement.among)]
        change = f"{statement.sql}; {statement.back}"
        if charge := statement.charge:
            refused = f"SELECT {', '.join(['NULL'] * len(self.terms.source.fields))}"  # it cannot be charged by now
            change = self.terms.if_charged(charge, statement.sql, statement.back, mine, refused)
        text = "; ".join([*steps, change])
        if charge:  # one time for the take, its charge and its history
            terms, now, us = self.terms, self.terms.variable("now"), self.terms.variable("us")
            timed = filled(text.replace(terms.now_us, us), now=now, context=TIMED.format(now))
            declares = terms.declare([now], "DOUBLE", terms.now), terms.declare([us], "BIGINT", terms.now_us)
            text = "; ".join([*declares, charge.declares, timed])
        text, values_of = self.terms.filled(self.terms.block(text))
        alone = self.terms.as_transaction(text)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return connection.execute(alone if connection.begins else text, values_of(values))

        return run

    def _among(self, statement: Statement, connection: Connection, values: Values, found: list[Row]) -> list[Row]:
        wide = len(self.terms.keys)
        keys = [row[-wide:] for row in found]
        among = filled(statement.among, chosen=self._chosen(len(keys)))
        meant = set(map(tuple, self.terms.execute(connection, among, {**values, **self._named(keys)})))
        return [row for row in found if tuple(row[-wide:]) in meant]

    def _chosen(self, many: int) -> str:
        """Return the condition that finds rows by `many` keys."""
        keys = (", ".join(f":k{i}_{j}" for j in range(len(self.terms.keys))) for i in range(many))
        return f"{self.terms.key} IN ({', '.join(f'({key})' for key in keys)})"

    @staticmethod
    def _named(keys: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the values for `_chosen`."""
        return {f"k{i}_{j}": part for i, key in enumerate(keys) for j, part in enumerate(key)}

    @property
    def lock_task(self) -> str:
        return f"SELECT 1 FROM {self.terms.table_in_schema} WHERE {self.terms.by_key()}{self.terms.skip}"

    def lock_all(self, states: Iterable[str]) -> str:
        first, *more = states
        return self._locked(Selector("all", first, more=tuple(more)), "COUNT(*)")

    def unless_duplicate(self, guard: Guard) -> str:
        return ""  # an error rolls back the statement, not the transaction

    def is_duplicate(self, refusal: str) -> bool:
        # The driver's error shows its message as Python does, which escapes a quote if both kinds occur.
        return f"{self.terms.name(UNIQUE)}'" in refusal.replace("\\'", "'")

    def unique_column(self, guard: Guard) -> tuple[str, str]:
        return self.terms.quote(self.terms.name("held")), f"CONVERT({self.terms.as_text(':unique')} USING ascii)"
