"""Group heads on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from xq.core.compile import Selector
from xq.core.connections import Connections, Runs
from xq.core.kinds import INTEGERS
from xq.features.utube.server import FULL, MISSING, DirtyHead, ServerHeads
from xq.sql.postgres.postgres_objects import dollars
from xq.sql.sql_file import filled_in, texts


def _is_in(step: str) -> str:
    """Return the condition, for an index, that an earlier part of the statement found a utube."""
    return f"utube = ANY(ARRAY(SELECT utube FROM {step}))"


class PostgresHeads(ServerHeads):
    """PostgreSQL's group heads. A take locks a head together with its task."""

    me = "pg_current_xact_id()"

    @property
    def alone(self) -> str:  # type: ignore[override]
        return f"LOCK TABLE {self.table} IN EXCLUSIVE MODE"

    def called(self, column: str) -> str:
        # Whatever the column's collation, and without a CHAR's blanks at its end.
        if self.fair:
            return f"(COALESCE('=' || CAST({column} AS text), '') COLLATE \"C\")"
        return column if self.terms.kind("utube") in INTEGERS else f'(CAST({column} AS text) COLLATE "C")'

    now_served = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"

    @property
    def adding(self) -> str:
        served = f"served = GREATEST({self.itself}.served, excluded.served), " * self.fair
        name, taken = self.itself, f"{self.itself}.taken + excluded.taken"
        most = self.most_after("excluded.taken", f"{name}.")
        return self.terms.on_conflict("utube", f"taken = {taken}, most = {most}, {served}{self.no_first_task}")

    def of_tables(self, stored: Callable[..., str]) -> Mapping[str, str]:
        pairs = zip(self.terms.ordered, self.columns, strict=True)
        return {
            "utube": self.head(self.terms.table),
            "ordered_as_columns": ", ".join(f"{mine} AS {column}" for mine, column in pairs),
            "order": self.in_turn(),
            "is_open": self.is_open(),
        }

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        return {f"{old}_utube": self.head(version), f"{was}_in_group": self.is_in(version)}

    def in_trigger(self, change: str, words: Collection[str], known: Mapping[str, str]) -> str:
        mine = {
            **known,
            "heads": self.table,
            "dirty_groups": self.dirty,
            "adding": self.adding,
            "limit": self.limit("xq_new.utube"),
            "now_served": self.now_served,
            "watched": ", ".join(dict.fromkeys(self.watched)),
        }
        sql = texts(self.file)
        return f" {filled_in(sql[change], words, {**mine, 'write': filled_in(sql['write'], words, mine)})}"

    @property
    def kind(self) -> str:
        """The type of heads' keys."""
        return "bigint" if not self.fair and self.terms.kind("utube") in INTEGERS else "text"

    def among(self, utubes: Collection[Any]) -> str:
        return f"= ANY({self._listed()})"

    def rows_of(self, ids: Sequence[int]) -> str:
        return f"{self.dirty} AS xq_o WHERE id = ANY(CAST(:ids AS bigint[]))"

    def heads_of(self, utubes: Collection[Any]) -> str:
        return f"(SELECT * FROM {self.table} WHERE utube {self.among(utubes)}) AS xq_o"

    def _listed(self) -> str:
        return f"CAST(:utubes AS {self.kind}[])"

    def place(self, store: Connections, utubes: Collection[Any]) -> None:
        # All at once, or one by one if that would wait for a lock.
        kind, limit = self.kind, self.limit("one.utube")
        made = f"INSERT INTO {self.table} (utube, taken, n, most, version) SELECT utube, 0, n, n, {self.version} FROM "
        unless_locked = "ON CONFLICT DO NOTHING; EXCEPTION WHEN lock_not_available THEN"
        body = (
            f"DECLARE before text := current_setting('lock_timeout'); xq_one {kind}; "
            f"utubes {kind}[] := CAST(current_setting('xq.utubes') AS {kind}[]); "
            "BEGIN PERFORM set_config('lock_timeout', '1ms', true); "
            f"BEGIN {made} (SELECT utube, {limit} AS n FROM unnest(utubes) AS one (utube)) AS xq_e ORDER BY 1 "
            f"{unless_locked} FOREACH xq_one IN ARRAY utubes LOOP BEGIN {made} (SELECT utube, {limit} AS n "
            f"FROM (SELECT xq_one AS utube) AS one) AS xq_e {unless_locked} END; END LOOP; "
            "END; PERFORM set_config('lock_timeout', before, true); END"
        )
        noted = f"SELECT set_config('xq.utubes', CAST({self._listed()} AS text), true)"  # a DO has no parameters
        self.terms.execute(store, noted, {"utubes": list(utubes)})
        store.change(f"DO {dollars(body)}")

    def look_at(self, store: Connections, utubes: Collection[Any]) -> None:
        self.terms.execute(store, self._looking(f"utube {self.among(utubes)}"), {"utubes": list(utubes)})

    def _looking(self, which: str) -> str:
        """Return SQL that writes the heads' first tasks. An update that changes nothing would add a row version."""
        known = ", ".join(f"{self.itself}.{column}" for column in self.columns)
        first = self.first(f"ROW({self.wanted})", f"{self.itself}.utube")
        changed = f"{which} AND ROW({known}) IS DISTINCT FROM ({first})"
        return f"UPDATE {self.table} SET {self.set_first(f'{self.itself}.utube')} WHERE {changed}"

    def mark_again(self, utubes: Collection[Any]) -> str:
        return f"INSERT INTO {self.dirty} (utube) SELECT unnest({self._listed()})"

    def refresh_open(self, executor: Runs, dirty: Sequence[DirtyHead]) -> int:
        if all(one.head != MISSING for one in dirty):
            return self._refresh_placed(executor, dirty)

        def place_and_refresh() -> int:
            held = self.held(executor.store, dirty)
            self.place(executor.store, {one.utube for one in held if one.head == MISSING})
            return self._refresh_placed(executor, held)

        return executor.transaction(place_and_refresh, locks=False)

    def _refresh_placed(self, executor: Runs, dirty: Sequence[DirtyHead]) -> int:
        # One statement: its snapshot is at least as new as the dirty groups' rows that are still there.
        values = {
            "utubes": list(dict.fromkeys(one.utube for one in dirty if one.head != FULL)),
            "ids": [one.id for one in dirty],
            "of": [one.utube for one in dirty],
            "over": [one.id for one in dirty if one.head == FULL],  # the change that makes room makes them dirty again
        }
        ((refreshed,),) = executor.run(self._refreshing, values)
        return int(refreshed)

    def forget_some(self, executor: Runs) -> int:
        over = _is_in(f"({self.turns_over}{self.terms.skip}) AS xq_o")
        return len(executor.run(f"DELETE FROM {self.table} WHERE {over} RETURNING 1"))

    @property
    def _refreshing(self) -> str:
        """SQL that refreshes the groups `of` by the rows `ids`, and only deletes rows `over`."""
        kind, passing = self.kind, self.terms.skip
        rows = f"unnest(CAST(:ids AS bigint[]), CAST(:of AS {kind}[])) AS listed (id, utube)"
        # True or nothing; for EXISTS, PostgreSQL might hash all tasks that are ready.
        some = f"({self.first('TRUE', f'{self.itself}.utube')})"
        there = "" if self.fair else f" AND (taken > 0 OR {some})"
        gone = f"DELETE FROM {self.table} WHERE taken = 0 AND {_is_in('sure')} AND {some} IS NULL RETURNING 1"
        steps = {
            "locked": f"SELECT utube FROM {self.table} WHERE utube {self.among(())} AND {self.has_room()}{passing}",
            "there": f"SELECT id, utube FROM {self.dirty} WHERE id = ANY(CAST(:ids AS bigint[])){passing}",
            # If another connection refreshed some meanwhile, it may have seen more than this statement does.
            "lost": f"SELECT utube FROM {rows} WHERE id NOT IN (SELECT id FROM there)",
            "sure": "SELECT utube FROM locked WHERE utube NOT IN (SELECT utube FROM lost)",
            "looked": self._looking(_is_in("sure") + there) + " RETURNING 1",
            **({} if self.fair else {"gone": gone}),
            "refreshed": (
                f"DELETE FROM {self.dirty} WHERE id = ANY(ARRAY(SELECT id FROM there "
                f"WHERE id = ANY(CAST(:over AS bigint[])) OR {_is_in('sure')})) RETURNING 1"
            ),
        }
        parts = ", ".join(f"{name} AS ({step})" for name, step in steps.items())
        return f"WITH {parts} SELECT COUNT(*) FROM refreshed"

    def select(self, columns: str, rows: Selector) -> str:
        # It locks the heads with their tasks. Where some tasks have no utube it locks the first of those as well, and
        # keeps it until the transaction ends.
        terms, wanted = self.terms, self.mine
        # One head after the other, in their order, and then its task: a query that locks is not pulled up into a join,
        # which would be free to begin with all tasks, or to sort all heads.
        theirs = f"{terms.same_wait('xq_h', terms.table)} AND {self.takeable(rows)}"
        task = f"SELECT {', '.join(wanted)} FROM {terms.table_in_schema} WHERE {theirs}{terms.skip}"
        candidates = [
            f"SELECT xq_t.* FROM {self.table} AS xq_h CROSS JOIN LATERAL ({task}) AS xq_t "
            f"WHERE {self.is_open('xq_h.')} ORDER BY {self.in_turn('xq_h.')} LIMIT {terms.limit(rows)}"
            f"{terms.lock} OF xq_h SKIP LOCKED"
        ]
        if self.may_be_none:
            candidates.append(f"{self.of_others(wanted, rows)}{terms.skip}")
        tables = ", ".join(f"xq_p{i} AS MATERIALIZED ({query})" for i, query in enumerate(candidates))
        both = " UNION ALL ".join(f"SELECT * FROM xq_p{i}" for i in range(len(candidates)))
        order = self.terms.order
        first = f"SELECT {columns} FROM ({both}) AS xq_p ORDER BY {order} LIMIT {terms.limit(rows)}"
        return f"WITH {tables}, xq_picked AS MATERIALIZED ({first}) SELECT * FROM xq_picked"
