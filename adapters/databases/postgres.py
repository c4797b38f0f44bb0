"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from xq.adapters.databases.links import Words
from xq.adapters.databases.servers import ALIVE, BYTES, INTEGERS, PART, ROLL_UP, Server
from xq.adapters.databases.sql import SESSIONS, SETTINGS, Object
from xq.compile import Change, Rows, Statement
from xq.errors import ConfigurationError
from xq.machine import ABSENT, TAKEN, Guard
from xq.store import HISTORY, Field, Kind, Store

SERVER_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS float8)"  # moves within a transaction, and is stable
CHANNEL = "xq"
HERE = "@here@"  # for the schema in which it is installed, in the text of a function


def _part(n: int) -> str:
    """A part of what the statement told, as SQL."""
    return f"split_part(current_setting('xq.told', true), '{PART}', {n})"


TEXT_OF_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS text)"  # of this statement and no other
OURS = f"{_part(2)} = {{queue}} AND {_part(4)} = {TEXT_OF_TIME}"  # what is told is of this statement, and of this queue


# A commit that notifies waits for all others that do, so it happens only when somebody listens, and has reason to.
WAITED_FOR = f"EXISTS (SELECT 1 FROM {ALIVE} WHERE uuid = '' AND waits)"
LISTENED_TO = f"EXISTS (SELECT 1 FROM {ALIVE} WHERE uuid = '')"
TIMES = ("datetime", "timestamptz")
LONG = 60  # seconds after which an open transaction is told of: takes beside it are slower already
SOON = 1.0  # seconds: what falls due later is found without being told of, by a look once a second
NOTIFY = f"PERFORM pg_notify('{CHANNEL}', '');"
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"
CHANGED = "SELECT 1 FROM changed"  # the rows of the statement that fired a trigger, be they new or gone


class Postgres(Server):
    """Rows are chosen and locked by one statement, which skips what others have locked."""

    now = f"COALESCE(CAST(:now AS float8), {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS bigint)"
    never = "CAST('Infinity' AS float8)"
    numbers = "CREATE TEMP TABLE IF NOT EXISTS xq_change (number bigint PRIMARY KEY)"
    add_number = "INSERT INTO pg_temp.xq_change (number) VALUES (:number)"
    take_number = "DELETE FROM pg_temp.xq_change WHERE number = :number RETURNING number"
    no_limit = None
    most_values = 65_535
    longest_name = 63
    telling = f"set_config('xq.told', :told || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(INTEGERS, "bigint"),
        "text": "text",
        "uuid": "uuid",
    }
    heard = f"IF FOUND THEN {NOTIFY} END IF;"
    # A number to tell by what is settled: all rows whose xid is less than pg_snapshot_xmin(pg_current_snapshot()).
    told: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}

    link = Words(
        connected=(
            # Whatever the application's is: single statements on tables of xq's own, which nobody tries again.
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) "
            "IS NOT NULL",  # since PostgreSQL 14
            # Of a machine that is gone nobody hears but by these; in seconds.
            "SET tcp_keepalives_idle = 2",
            "SET tcp_keepalives_interval = 2",
            "SET tcp_keepalives_count = 3",
            "SET tcp_user_timeout = 3000",  # milliseconds: keepalives rest while an answer is on its way
        ),
        number="SELECT pg_backend_pid()",
        listen=(
            f"DELETE FROM {ALIVE} WHERE uuid = '' AND pg_try_advisory_xact_lock_shared(process)",  # of the dead
            f"INSERT INTO {ALIVE} (uuid, process) VALUES ('', :process)",
            f"LISTEN {CHANNEL}",
        ),
        expect=f"INSERT INTO {ALIVE} (uuid, process, waits) SELECT '', :process, :waits "
        f"WHERE NOT EXISTS (SELECT 1 FROM {SETTINGS} WHERE name = 'notify' AND value = 0) "
        "ON CONFLICT (uuid, process) DO UPDATE SET waits = excluded.waits RETURNING 1",
        tell=f"SELECT pg_notify('{CHANNEL}', '')",
        lock="SELECT pg_try_advisory_lock(:lock)",
        unlock="SELECT pg_advisory_unlock(:lock)",
        join=f"INSERT INTO {ALIVE} (uuid, process) VALUES (:uuid, :process) ON CONFLICT DO NOTHING",
        part=f"DELETE FROM {ALIVE} WHERE uuid = :uuid AND process = :process",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE NOT pg_try_advisory_xact_lock_shared(process)",
        bury=f"DELETE FROM {ALIVE} WHERE uuid = :uuid",
        renew=f"UPDATE {SESSIONS} SET ends = {SERVER_TIME} + :lease WHERE uuid = :uuid AND ends > {SERVER_TIME}",
        there=f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > {SERVER_TIME})",
    )

    # words

    def moment(self, kind: Kind, seconds: str) -> str:
        if kind == "datetime":
            return f"(to_timestamp({seconds}) AT TIME ZONE 'UTC')"
        if kind == "timestamptz":
            return f"to_timestamp({seconds})"
        if kind == "bigint":
            return f"CAST(ceil({seconds}) AS bigint)"  # rounded up: nothing falls due too early
        return seconds

    def seconds(self, kind: Kind, column: str) -> str:
        timed = kind in ("datetime", "timestamptz")
        return f"CAST(extract(epoch FROM {column}) AS float8)" if timed else column

    def bound(self, kind: Kind) -> str:
        return self.moment(kind, self.now) if kind in ("datetime", "timestamptz") else self.now

    def amount(self, value: Any) -> str:
        return f"CAST({super().amount(value)} AS float8)"

    def differ(self, one: str, other: str) -> str:
        return f"{one} IS DISTINCT FROM {other}"

    @property
    def order(self) -> str:
        priority = self.roles.get("priority")
        return ", ".join([*([f"{priority} NULLS FIRST"] if priority else []), *self.keys])

    @property
    def held_by(self) -> str:
        return f'({self.roles["owner"]} COLLATE "C")'  # a range of bytes

    @property
    def keys_at_once(self) -> str:
        kind = self.list_kinds[self.source.key[0].kind]
        return f"SELECT CAST(listed AS {kind}) FROM json_array_elements_text(CAST(:keys AS json)) AS listed"

    def told_key(self, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return _told(self.source.key[0], parts[0])
        told = [_told(field, part, alone=False) for field, part in zip(self.source.key, parts, strict=True)]
        return f"CAST(json_build_array({', '.join(told)}) AS text)"

    # which rows

    def pick(self, columns: str, chosen: str, index: str = "", one: bool = False) -> str:
        locked = f"{super().pick(columns, chosen, index, one)}{self.lock} SKIP LOCKED"
        # Materialized: a query that locks must not run twice.
        return locked if one else f"WITH picked AS MATERIALIZED ({locked}) SELECT * FROM picked"

    def fenced(self, rows: Rows, chosen: str, state: str) -> str:
        if not rows.fence or "owner" in self.roles:
            return super().fenced(rows, chosen, state)
        # The row, then the owner beside it: what another transaction does to both it does in this order, too. A mere
        # look at the owner would be a look into the past, where the row had to be waited for.
        fence = {"session": "substr(o.owner, 1, 37) = :session", "take": "o.owner = :mark"}[rows.fence]
        keys = ", ".join(self.keys)
        locked = f"SELECT {keys} FROM {self.table_in_schema} WHERE {chosen} AND {state}{self.lock}"
        theirs = ", ".join(f"o.{key}" for key in self.keys)
        same = " AND ".join(f"o.{key} = locked.{key}" for key in self.keys)
        held = f"SELECT {theirs} FROM {self.owners} AS o, locked WHERE {same} AND {fence}{self.lock} OF o"
        return (
            f"{self.key} IN (WITH locked AS MATERIALIZED ({locked}), held AS MATERIALIZED ({held}) SELECT * FROM held)"
        )

    def picked(self, chosen: str, index: str = "", one: bool = False) -> str:
        if chosen.endswith(self.held) and "owner" not in self.roles:
            return self._picked_of_session()
        return super().picked(chosen, index, one)

    def _picked_of_session(self) -> str:
        keys = ", ".join(f"t.{key}" for key in self.keys)
        same = " AND ".join(f"o.{key} = t.{key}" for key in self.keys)
        taken = self.is_state(TAKEN, f"t.{self.roles['status']}")
        theirs = 'o.owner COLLATE "C" >= :session AND o.owner COLLATE "C" < :session_end'
        return (
            f"{self.key} IN (WITH picked AS MATERIALIZED (SELECT {keys} FROM {self.table_in_schema} AS t, "
            f"{self.owners} AS o WHERE {same} AND {taken} AND {theirs} LIMIT :n{self.lock} SKIP LOCKED) "
            "SELECT * FROM picked)"
        )

    # what changes

    def move(self, rows: Rows, change: Change) -> Statement:
        found = super().move(rows, change)
        sql = found.sql
        if change.target == ABSENT:
            sql = sql.replace(" WHERE ", f" WHERE {self.telling} AND ", 1)
        if not found.then:
            return Statement(sql, names=found.names)
        keys = ", ".join(self.keys)
        remembered = (
            f"INSERT INTO {self.owners} ({keys}, owner) SELECT {keys}, :owner FROM moved "
            f"ON CONFLICT ({keys}) DO UPDATE SET owner = excluded.owner"
        )
        return Statement(f"WITH moved AS ({sql}), remembered AS ({remembered}) SELECT * FROM moved", names=found.names)

    def remember_owner(self) -> str:
        return "by the statement itself"

    remember_owners = remember_owner

    def roll_up(self, store: Store[Any]) -> None:
        count = self.object(self.name("count"))
        # Those that another process adds up are passed by.
        some = f"SELECT ctid FROM {count} LIMIT {ROLL_UP}{self.lock} SKIP LOCKED"
        store.execute(
            f"WITH old AS (DELETE FROM {count} WHERE ctid = ANY(ARRAY({some})) RETURNING *) "
            f"INSERT INTO {count} (tube, source, target, n) "
            "SELECT tube, source, target, SUM(n) FROM old GROUP BY 1, 2, 3"
        )

    def tuned(self, store: Store[Any]) -> list[str]:
        # What is partitioned has no rows of its own, and takes no such settings.
        table = f"to_regclass({self.literal(self.table_in_schema)})"
        leaves = store.execute(f"SELECT CAST(relid AS text) FROM pg_partition_tree({table}) WHERE isleaf ORDER BY 1")
        tables = [
            *([leaf for (leaf,) in leaves] or [self.table_in_schema]),
            *(self.object(t.name) for t in self.side_tables() if t.name != self.name("count")),
        ]
        return [f"ALTER TABLE {table} SET ({BUSY})" for table in tables]

    def trouble(self, store: Store[Any]) -> str | None:
        oldest = store.execute(
            "SELECT pid, CAST(extract(epoch FROM statement_timestamp() - xact_start) AS int) FROM pg_stat_activity "
            "WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid() "
            f"AND xact_start < statement_timestamp() - interval '{LONG} seconds' ORDER BY 2 DESC LIMIT 1"
        )
        return "".join(
            f"process {pid} has had a transaction open for {seconds} seconds: rows that are deleted meanwhile stay in "
            "the indexes, and each take passes them by, more and more slowly until that transaction ends"
            for pid, seconds in oldest
        )

    def hold(self) -> str:
        # Written: that a row was merely locked would not be noticed under REPEATABLE READ.
        status = self.roles["status"]
        return f"UPDATE {self.table_in_schema} SET {status} = {status} WHERE {self.by_key()}"

    @contextmanager
    def installing(self, store: Store[Any]) -> Iterator[None]:
        elsewhere = store.execute(
            "SELECT CAST(relnamespace::regnamespace AS text), current_schema() FROM pg_class WHERE oid = "
            f"to_regclass({self.literal(self.table_in_schema)}) AND relnamespace::regnamespace <> "
            "to_regnamespace(quote_ident(current_schema()))"
        )
        if elsewhere and not self.source.schema:
            ((there, here),) = elsewhere
            raise ConfigurationError(
                f"{self.source.name} is in the schema {there}, and what belongs to it would come into {here}, "
                f"the first of search_path: say in the model where it is (class Meta: schema = {there!r})"
            )
        try:
            with store.atomic():
                # CREATE .. IF NOT EXISTS fails where another transaction creates the same.
                store.execute("SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext(current_schema()))")
                yield
        except Exception as error:
            unique = self.machine.guard("unique") and store.is_failure(error) and not store.is_refusal(error)
            if not unique or not store.execute(self._partitioned):
                raise
            raise ConfigurationError(
                f"{self.source.name} is partitioned, where PostgreSQL keeps unique only what the partitions are chosen "
                f"by ({error}): partition it by the role 'unique' alone, or leave the feature 'unique' away"
            ) from error

    @property
    def _partitioned(self) -> str:
        return f"SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass({self.literal(self.table_in_schema)})"

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        return f'"{self.name(guard.name)}"' in refusal

    # what is installed

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.object(name)}() CASCADE"  # and with it its triggers
        return super().drop(kind, name)

    def existing(self, store: Store[Any]) -> dict[str, str]:
        shared = ", ".join(f"to_regclass({self.literal(item.name)})" for item in self.shared())
        mine = f"to_regclass({self.literal(self.table_in_schema)})"
        beside = self.literal(self.name("").replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%")
        found = store.execute(
            "SELECT relname, 'table' FROM pg_class WHERE relkind IN ('r', 'p') AND "
            f"(oid IN ({shared}) OR (relname LIKE {beside} AND "
            f"relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = {mine}))) "
            "UNION ALL SELECT c.relname, 'index' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"WHERE i.indrelid = {mine} AND i.indisvalid "
            f"UNION ALL SELECT tgname, 'trigger' FROM pg_trigger WHERE tgrelid = {mine} AND NOT tgisinternal"
        )
        return {name: str(kind) for name, kind in found}

    def table_columns(self, store: Store[Any]) -> set[str]:
        found = store.execute(
            f"SELECT attname FROM pg_attribute WHERE attrelid = to_regclass({self.literal(self.table_in_schema)}) "
            "AND attnum > 0 AND NOT attisdropped"
        )
        return {name for (name,) in found} & {field.column for field in self.source.fields}

    def objects(self) -> list[Object]:
        return [*self.side_tables(), *self.indexes(), *self.triggers()]

    def side_tables(self) -> list[Object]:
        keys, parts = ", ".join(self.keys), ", ".join(self._parts())
        as_parts = ", ".join(f"{key} AS {part}" for key, part in zip(self.keys, self._parts(), strict=True))
        nothing = f"FROM {self.table_in_schema} WITH NO DATA"
        # In the types of the key, whatever they are.
        tables = {
            "count": ("(tube text, source text, target text, n bigint NOT NULL)", ""),
            "wait": (
                f"AS SELECT {as_parts}, CAST('' AS text) AS waiter, CAST('' AS text) AS session, "
                f"CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target {nothing}",
                f"{parts}, waiter",
            ),
        }
        if "owner" not in self.roles:
            tables["owner"] = (f"AS SELECT {keys}, CAST('' AS text) AS owner {nothing}", keys)
        if self.has_history:
            types = {
                "bigauto": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
                "bigint": "bigint",
                "text": "text",
            }
            columns = ", ".join(f'"{column}" {types[kind]}' for column, kind in HISTORY.items())
            xid = "xid bigint DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
            tables["history"] = (f"({columns}, {xid})", "")
        found = []
        for suffix, (body, key) in tables.items():
            name = self.name(suffix)
            create = [f"CREATE TABLE IF NOT EXISTS {self.object(name)} {body}"]
            if key:
                unique = self.quote(self.name(f"{suffix}_key"))
                create.append(f"CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {self.object(name)} ({key})")
            if suffix == "count":  # rewritten all the time
                create.append(f"ALTER TABLE {self.object(name)} SET ({BUSY})")
            found.append(Object("table", name, tuple(create), self.drop("table", name)))
        return found

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        name = self.name(suffix)
        create = (
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.quote(name)} "
            f"ON {self.table_in_schema} ({columns}) WHERE {condition}"
        )
        return Object("index", name, (create,), self.drop("index", name))

    # triggers. A change of many rows is counted at once where the rows are new or gone; a change of a row on its own,
    # since what was and what is can be told from one another only then, be its key another.

    def triggers(self) -> list[Object]:
        status = self.roles["status"]
        watched = " OR ".join(self.differ(f"OLD.{column}", f"NEW.{column}") for column in self.watched())
        if self.has_history:  # a statement of xq that writes a status enters it, be it the one that is there
            watched += " OR COALESCE(current_setting('xq.told', true), '') <> ''"
        ready = self.is_state("R", f"changed.{status}")
        # One look at the rows, in which who listens is looked for once, if at all.
        called = [f"({ready} AND {WAITED_FOR})", *(f"({due} AND {LISTENED_TO})" for due in self._soon("changed"))]
        inserted = [
            *self._count_and_note(came=True),
            self.if_(f"EXISTS ({CHANGED} WHERE {' OR '.join(called)})", NOTIFY),
        ]
        deleted = [*self._count_and_note(came=False), *self._all_went()]
        rows = f"FROM {self.table_in_schema} AS changed"
        truncated = [text.replace("FROM changed", rows) for text in deleted]
        return [
            self._trigger("insert", "AFTER INSERT", "REFERENCING NEW TABLE AS changed FOR EACH STATEMENT", inserted),
            self._trigger("delete", "AFTER DELETE", "REFERENCING OLD TABLE AS changed FOR EACH STATEMENT", deleted),
            self._trigger("truncate", "BEFORE TRUNCATE", "FOR EACH STATEMENT", truncated),
            self._update_trigger(watched, [*self.row_changed(), self.if_(self._calls(), NOTIFY)]),
        ]

    @property
    def _crowd(self) -> list[str]:
        """The states of the feature limit."""
        limit = self.machine.guard("limit")
        return self.holding(limit) if limit else []

    def _count_and_note(self, came: bool) -> list[str]:
        """What is counted, and told by the history, of all rows of a statement that have come, or gone."""
        counts = self.object(self.name("count"))
        body = [
            f"INSERT INTO {counts} (tube, source, target, n) SELECT {n.tube}, {n.source}, {n.target}, COUNT(*) "
            f"FROM changed WHERE {n.when} GROUP BY 1, 2, 3;"
            for n in self.numbers_of("changed", came)
        ]
        if self.has_history:
            _, source, target, when = self.numbers_of("changed", came)[0]
            body.append(self.note("changed", source, target, f"FROM changed WHERE {when}"))
        return body

    def _all_went(self) -> list[str]:
        """What follows when all rows of a statement are gone."""
        status = f"changed.{self.roles['status']}"
        pending = self.in_states(self.machine.pending, status)
        word = f"UPDATE {self.waits} AS w SET event = {self.event}, target = '{ABSENT}' FROM changed"
        mine = f"{self.same_wait('w', 'changed')} AND w.event IS NULL AND {pending}"
        body = [self.if_(f"EXISTS (SELECT 1 FROM {self.waits})", f"{word} WHERE {mine};", self.heard)]
        if "owner" not in self.roles:
            theirs = f"{self._same('o', 'changed')} AND {self.is_state(TAKEN, status)}"
            body.insert(0, f"DELETE FROM {self.owners} AS o USING (SELECT * FROM changed) AS changed WHERE {theirs};")
        if self._crowd:
            left = f"{WAITED_FOR} AND EXISTS ({CHANGED} WHERE {self.in_states(self._crowd, status)})"
            body.append(self.if_(left, NOTIFY))
        return body

    def _update_trigger(self, watched: str, body: Sequence[str]) -> Object:
        """Row by row; where the table is partitioned, all rows of a statement, each beside what it was.

        A row that moves to another partition is deleted here and inserted there, of which a trigger of the update of
        rows hears nothing, and no more do those of statements that delete and insert.
        """
        of_row = self._made("update", "AFTER UPDATE", f"FOR EACH ROW WHEN ({watched})", body)
        kind = self.table_in_schema if self.source.schema else f"{HERE}.{self.table}"
        same = " AND ".join(f"was.{key} = became.{key}" for key in self.keys)
        both = ", ".join(f"CAST({rows}.* AS {kind}) AS {rows}" for rows in ("was", "became"))
        each = [
            f"FOR pair IN SELECT {both} FROM was FULL JOIN became ON {same} LOOP old := pair.was; new := pair.became;",
            f"CONTINUE WHEN ({watched}) IS NOT TRUE;",
            *body,
            "END LOOP;",
        ]
        how = "REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT"
        of_all = self._made("update", "AFTER UPDATE", how, each, f"pair record; old {kind}; new {kind}; ")
        chosen = f"IF EXISTS ({self._partitioned}) THEN {' '.join(of_all)} ELSE {' '.join(of_row)} END IF;"
        return self._as_trigger("update", [chosen])

    def _soon(self, version: str) -> list[str]:
        """That a task has a timer which the next look, of whatever process, would find too late."""
        found, status = [], self.roles["status"]
        for state, timers in self.machine.timers.items():
            for timer in timers:
                column, kind = f"{version}.{self.roles[timer.column]}", self.kind(timer.column)
                bound = self.moment(kind, f"({SERVER_TIME} + {SOON})") if kind in TIMES else f"{SERVER_TIME} + {SOON}"
                found.append(f"{self.is_state(state, f'{version}.{status}')} AND {column} < {bound}")
        return found

    def _calls(self) -> str:
        """When a change of a row is of interest to others: it can be taken, or will be, or there is room."""
        status = self.roles["status"]
        called = [self.is_state("R", f"NEW.{status}")]
        if self._crowd:
            left = self.in_states(self._crowd, f"OLD.{status}"), self.in_states(self._crowd, f"NEW.{status}")
            called.append(f"({left[0]} AND NOT {left[1]})")
        soon = self._soon("NEW")
        known = f"(({' OR '.join(called)}) AND {WAITED_FOR})"
        return " OR ".join([known, *(f"({due} AND {LISTENED_TO})" for due in soon)])

    def _in_full(self, text: str) -> str:
        """The text of a function, with the schema in front of each table."""
        beside = [] if self.source.schema else [self.table, *(self.quote(table.name) for table in self.side_tables())]
        for name in [*beside, ALIVE]:
            for verb in ("FROM", "INTO", "UPDATE"):
                text = text.replace(f"{verb} {name}", f"{verb} {HERE}.{name}")
        return text

    @property
    def _queue(self) -> str:
        return self.literal(self.source_name)

    @property
    def event(self) -> str:
        return f"CASE WHEN {OURS.format(queue=self._queue)} THEN {_part(1)} ELSE 'write' END"

    def _trigger(self, suffix: str, event: str, how: str, body: Sequence[str]) -> Object:
        return self._as_trigger(suffix, self._made(suffix, event, how, body))

    def _as_trigger(self, suffix: str, made: Sequence[str]) -> Object:
        name = self.name(suffix)
        create = (
            f"DROP TRIGGER IF EXISTS {self.quote(name)} ON {self.table_in_schema}",
            f"DO $do$ BEGIN {' '.join(made)} END $do$",
        )
        return Object("trigger", name, create, self.drop("trigger", name))

    def _made(self, suffix: str, event: str, how: str, body: Sequence[str], variables: str = "") -> tuple[str, str]:
        """What makes the function of a trigger, and the trigger; in PL/pgSQL."""
        name = self.name(suffix)
        function = f"{self.object(name)}()"
        if self.has_history:
            given = f"{OURS.format(queue=self._queue)} AND {_part(3)} <> ''"
            at = f"CASE WHEN {given} THEN CAST({_part(3)} AS float8) ELSE {SERVER_TIME} END * 1000000"
            variables += f"told text := {self.event}; at_us bigint := {at}; "
        declared = f"DECLARE {variables}" if variables else ""
        text = f"#variable_conflict use_variable\n{declared}BEGIN {' '.join(body)} RETURN NULL; END"
        return (
            # In full, whatever the search_path of who writes; to have it set for each call costs a tenth of a put.
            f"EXECUTE replace($text$CREATE OR REPLACE FUNCTION {function} RETURNS trigger "
            f"LANGUAGE plpgsql AS $xq$ {self._in_full(text)} $xq$ $text$, '{HERE}', "
            "quote_ident(current_schema()));",
            f"CREATE TRIGGER {self.quote(name)} {event} ON {self.table_in_schema} {how} EXECUTE FUNCTION {function};",
        )


def _told(field: Field, part: str, alone: bool = True) -> str:
    """A part of a key as the history tells it."""
    if field.kind in ("auto", "bigauto", "integer", "bigint", "decimal") and not alone:
        return part
    if field.type.upper() in BYTES:
        return f"UPPER(encode({part}, 'hex'))"
    if field.kind == "uuid":  # the application's, too, which is written without dashes
        part = f"CAST({part} AS uuid)"
    return f"CAST({part} AS text)"
