"""What MariaDB and MySQL share: InnoDB, no arrays, no partial indexes, and collations that ignore case."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from xq.core.compile import Charge
from xq.core.connections import Connections
from xq.core.errors import ConfigurationError
from xq.core.kinds import INTEGERS, TIMES, Kind
from xq.core.machine import FOREVER
from xq.sql.language import Form
from xq.sql.server import Server, ServerLanguage
from xq.sql.session_connection import SessionSql
from xq.sql.shared import ALIVE, SharedSql

SERVER_TIME = "(@@timestamp * 1e0)"  # seconds since 1970 when the statement began, whatever the time zone
IS_ALIVE = f"table_schema = DATABASE() AND table_name = '{ALIVE}'"
EPOCH = "TIMESTAMP'1970-01-01 00:00:00'"


class InnodbLanguage(ServerLanguage):
    """What the languages of the family share; those say the rest: what has no value here, `product`, `collation`."""

    family = "innodb"

    status_in: ClassVar[str]  # the schema that has global_status
    of_check: ClassVar[str]  # what a check's name is unique with, besides the schema
    at_once: ClassVar[Form]  # a statement that fails in place of waiting for a locked row
    within_a_second: ClassVar[Form]  # a statement that waits for a locked row for a second at most
    block: ClassVar[Form]  # statements, joined by `; `, as one: for one round trip
    as_transaction: ClassVar[Form]  # statements, or a block, as a transaction; after an error it has to be rolled back
    when: ClassVar[Form]  # a statement of a block that is run if a condition holds
    by_level: ClassVar[Form]  # the first statement where each read locks gaps, else the second
    holders_of_locks: ClassVar[str]  # a query of who has locks on the table `:name` in {schema}
    session: ClassVar[
        str
    ]  # has a session connection wait for its next statement for a year, and log no `watch` as slow
    watch: ClassVar[Form]  # as in SessionSql
    # What begins a block that passes by locked rows; and what stands before a statement that inserts a row into a
    # table, where a condition finds it.
    unless_locked: ClassVar[tuple[str, Form]]

    @abstractmethod
    def if_charged(self, charge: Charge, sql: str, back: str, keys: Sequence[str], refused: str) -> str:
        """Return the end of a block: what is charged, and the change, or if it is refused what tells so."""

    @abstractmethod
    def alter(self, table: str, *steps: str) -> str:
        """Return ALTER TABLE with these steps, which say IF EXISTS and IF NOT EXISTS."""

    @abstractmethod
    def create_index(self, name: str, table: str, listed: str) -> str:
        """Return SQL that creates an index unless there is one of that name."""

    @abstractmethod
    def create_trigger(self, name: str, table: str, rest: str) -> tuple[str, ...]:
        """Return SQL that creates a trigger, also in place of one of that name: no writer comes between."""

    def clause(self, shown: str) -> str:
        """Return the condition of a check as SQL, from how information_schema shows it."""
        return shown

    @abstractmethod
    def in_a_script(self, sql: str) -> Sequence[str]:
        """Return SQL as statements of a script."""

    def ended_in_a_script(self, sql: str) -> str:
        """Return a statement with its end, for a client that ends one at each semicolon."""
        return f"{sql};"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "collation" in vars(cls):
            exact = Form(f"CONVERT({{}} USING utf8mb4) COLLATE {cls.collation}")
            cls.exact_text = cls.token_text = exact
            cls.folded, cls.lacks = Form(f"LOWER({exact})"), Form(f"INSTR({exact}, {{}}) = 0")
            cls.server_start = (
                f"(SELECT {SERVER_TIME} - variable_value FROM {cls.status_in}.global_status "
                "WHERE variable_name = 'UPTIME')"
            )
            cls.varying = Form(f"VARCHAR({{}}) CHARACTER SET utf8mb4 COLLATE {cls.collation}")
            cls.session_sql = SessionSql(
                connected=(
                    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                    cls.session,
                ),  # for xq's own tables
                is_installed=f"SELECT 1 FROM information_schema.tables WHERE {IS_ALIVE}",
                number="SELECT CONNECTION_ID()",
                listen=(),
                expect="",
                notify="",
                lock="GET_LOCK(CONCAT('xq.', :lock), 0)",
                unlock="RELEASE_LOCK(CONCAT('xq.', :lock))",
                living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE IS_USED_LOCK(CONCAT('xq.', process)) IS NOT NULL",
                forget="",
                time=SERVER_TIME,
                unless_there=" ON DUPLICATE KEY UPDATE uuid = uuid",
                briefly="SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
                nowait=cls.at_once,
                watch=cls.watch,
            )

    shared_file = Path(__file__).parent / "shared.sql"
    now = f"COALESCE(:now, {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS SIGNED)"
    instant = Form(f"CAST(TIMESTAMPADD(MICROSECOND, {{}}, {EPOCH}) AS DATETIME(6))")
    moments: ClassVar[Mapping[Kind, Form]] = {
        **dict.fromkeys(TIMES, Form(f"TIMESTAMPADD(MICROSECOND, ({{}}) * 1000000, {EPOCH})")),
        "datetime0": Form(f"TIMESTAMPADD(SECOND, CEIL({{}}), {EPOCH})"),
        "bigint": Form("CEIL({})"),  # rounded up, so that no task is due too early
    }
    times: ClassVar[Mapping[Kind, Form]] = dict.fromkeys(
        (*TIMES, "datetime0"), Form(f"(TIMESTAMPDIFF(MICROSECOND, {EPOCH}, {{}}) / 1e6)")
    )
    json_array = Form("JSON_ARRAY({})")
    as_text = Form("SHA2(CONVERT({} USING utf8mb4), 256)")  # a digest for text of any length
    ended = Form("CONCAT('-', {})")
    whole = Form("CAST({} AS SIGNED)")
    number_alone, text_alone = Form("0 + {}"), Form("CONCAT({})")
    quotes = "`"
    assigning_is_deprecated = False  # whether the server warns of := within an expression
    misread = ""  # a character in tables' names that the server shows wrong in the text of a trigger
    takes_in_block = True
    hint = Form(" FORCE INDEX ({})")
    forever = FOREVER  # there is no infinity
    never = f"{int(FOREVER)}e0"
    most_values = 10_000
    longest_name = 64
    first_schema = "DATABASE()"
    layout = "19"
    long_text = "LONGTEXT"
    wide_text = "MEDIUMTEXT"
    dashed = Form(
        "CASE LENGTH({0}) WHEN 32 THEN CONCAT(substr({0}, 1, 8), '-', substr({0}, 9, 4), '-', substr({0}, 13, 4), "
        "'-', substr({0}, 17, 4), '-', substr({0}, 21, 12)) ELSE {0} END"
    )
    # No other engine locks rows, and few roll back. A key with 255 characters does not fit into other row formats.
    engine = " ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    absent_rows = " FROM DUAL"
    partial_indexes = False
    settles = "after"  # within it, the snapshot may be old, and locking reads would lock gaps
    afresh = ServerLanguage.lock
    token_text: ClassVar[Form]
    as_literal = Form("CONCAT('_utf8mb4 X''', HEX(CONVERT({0} USING utf8mb4)), '''')")
    sets_context = f"(@xq_context := CONCAT(:context, {SERVER_TIME})) IS NOT NULL"
    list_kinds: ClassVar[Mapping[str, str]] = dict.fromkeys((*INTEGERS, "text", "uuid"), "")

    # A number, or since MariaDB 12 a word. A user with the privilege READ ONLY ADMIN can write to a replica all the
    # same, which then differs from its primary: so ask.
    read_only = "CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')"
    by_primary = " FORCE INDEX (PRIMARY)"
    open_transactions = (
        "SELECT CONCAT('connection ', id, ' of ', user, ' from ', host), TIMESTAMPDIFF(SECOND, trx_started, NOW()), "
        "CONCAT('KILL ', id) FROM information_schema.innodb_trx JOIN information_schema.processlist "
        "ON id = trx_mysql_thread_id WHERE id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL :n SECOND "
        "ORDER BY trx_started"
    )

    @staticmethod
    def lock_of(kind: str, name: str) -> str:
        """Return the name of a lock as SQL: it has 64 characters at most."""
        return f"CONCAT('xq.{kind}', LEFT(SHA2({name}, 256), 40))"

    @contextmanager
    def creating(self, store: Connections, schema: str = "") -> Iterator[None]:
        locks = [self.lock_of("", self.literal(name)) for name in self.to_lock(store, schema)]
        with store.on_one_connection():
            try:
                ((locked,),) = store.execute(f"SELECT {' AND '.join(f'GET_LOCK({lock}, 60)' for lock in locks)}")
                if not locked:
                    raise ConfigurationError("another process has been installing for a minute: try again")
                yield
            finally:
                store.execute(f"SELECT {', '.join(f'RELEASE_LOCK({lock})' for lock in locks)}")

    @staticmethod
    def literal(value: Any) -> str:
        text = ServerLanguage.literal(value)
        return text.replace("\\", "\\\\") if isinstance(value, str) else text

    def joined(self, texts: Sequence[str]) -> str:
        return texts[0] if len(texts) == 1 else f"CONCAT({', '.join(texts)})"

    def in_any_mode(self, text: str) -> str:
        # Whether a backslash escapes depends on the sql_mode; hexadecimal digits contain none.
        return f"_utf8mb4 X'{text.encode().hex()}'" if "\\" in text else self.literal(text)

    def bound(self, kind: Kind) -> str:
        return self.moment("datetime", self.now) if kind in self.times else self.now

    def of_limit(self, text: str) -> str:
        return text

    @staticmethod
    def key_of_limit(value: str) -> str:
        return sha256(value.encode()).hexdigest()

    def on_conflict(self, key: str, update: str = "") -> str:
        first = key.partition(",")[0]
        return f" ON DUPLICATE KEY UPDATE {update or f'{first} = {first}'}"


class InnodbShared(SharedSql, InnodbLanguage):
    """The SQL for what the queues in a database share."""

    more_of_queues = ", puts BIGINT NOT NULL DEFAULT 0"  # counts the puts into a limited queue


class InnodbTerms(InnodbLanguage, Server):
    """What the parts of a dialect of the family are written with."""
