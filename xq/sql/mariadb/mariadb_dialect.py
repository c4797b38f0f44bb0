"""MariaDB 10.6 and later: what it says in another way than MySQL. The rest is in ../innodb/."""

from __future__ import annotations

from collections.abc import Sequence

from xq.core.compile import Charge
from xq.core.connections import Connections
from xq.core.kinds import ErrorKind
from xq.drivers.pymysql import AS_TRANSACTION
from xq.sql.innodb.innodb_dialect import Innodb
from xq.sql.innodb.innodb_language import InnodbLanguage, InnodbShared
from xq.sql.language import Form


class MariadbLanguage(InnodbLanguage):
    """Blocks of statements with variables, RETURNING, and settings for one statement."""

    database = "mariadb"
    product = "MariaDB"
    collation = "utf8mb4_nopad_bin"
    differ = Form("NOT (BINARY {} <=> BINARY {})")
    new_value = Form("VALUES({})")
    commits = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_LSN_CURRENT'"

    status_in = "information_schema"
    of_check = ", table_name"  # a check's name is its table's
    # The next statement follows one that would wait, if the server did not roll back the transaction.
    unless_locked = (
        "DECLARE CONTINUE HANDLER FOR 1205 IF @@innodb_rollback_on_timeout THEN RESIGNAL; END IF",
        Form(""),
    )
    at_once = Form("SET STATEMENT innodb_lock_wait_timeout = 0 FOR {}")
    within_a_second = Form("SET STATEMENT innodb_lock_wait_timeout = 1 FOR {}")
    block = Form("BEGIN NOT ATOMIC {}; END")
    as_transaction = Form(AS_TRANSACTION["mariadb"])
    variable = Form("xq_{}")
    when = Form("IF {} THEN {}; END IF")
    by_level = Form("IF @@tx_isolation = 'REPEATABLE-READ' THEN {}; ELSE {}; END IF")  # at SERIALIZABLE each read locks
    holders_of_locks = (  # with the plugin METADATA_LOCK_INFO alone
        "SELECT CONCAT('connection ', id, ' of ', user, ' from ', host), MAX(time), CONCAT('KILL ', id) "
        "FROM information_schema.metadata_lock_info JOIN information_schema.processlist ON id = thread_id WHERE "
        "table_schema = {schema} AND table_name = :name AND id <> CONNECTION_ID() GROUP BY id ORDER BY 2 DESC LIMIT 3"
    )
    session = "SET SESSION wait_timeout = 31536000, slow_query_log = 0, max_statement_time = 0"
    # The pauses grow from 1 to 20 ms. Outside of a SELECT, InnoDB would lock what it reads.
    watch = Form(
        "BEGIN NOT ATOMIC DECLARE xq_found BOOLEAN; DECLARE xq_pause DOUBLE DEFAULT 0.001; "
        "DECLARE xq_end DOUBLE DEFAULT @@timestamp + 5; REPEAT DO SLEEP(xq_pause); "
        "SET xq_pause = LEAST(xq_pause * 1.04, 0.02); SELECT {} INTO xq_found; "
        "UNTIL xq_found OR @@timestamp > xq_end END REPEAT; SELECT 1 FROM DUAL WHERE xq_found; END"
    )

    def declare(self, names: Sequence[str], kind: str, value: str = "") -> str:
        return f"DECLARE {', '.join(names)} {kind}{f' DEFAULT {value}' * bool(value)}"

    def if_charged(self, charge: Charge, sql: str, back: str, keys: Sequence[str], refused: str) -> str:
        otherwise = f"ELSEIF {keys[0]} IS NOT NULL THEN {refused}; END IF"
        return f"{charge.sql}; IF ROW_COUNT() > 0 OR {charge.free} THEN {sql}; {back}; {otherwise}"

    def alter(self, table: str, *steps: str) -> str:
        return f"ALTER TABLE {table} {', '.join(steps)}"

    def create_index(self, name: str, table: str, listed: str) -> str:
        return f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({listed})"

    def create_trigger(self, name: str, table: str, rest: str) -> tuple[str, ...]:
        return (f"CREATE OR REPLACE TRIGGER {name} {rest}",)

    def in_a_script(self, sql: str) -> Sequence[str]:
        # A client ends no statement within a string.
        return [f"EXECUTE IMMEDIATE {self.in_any_mode(sql)}" if ";" in sql else sql]


class MariadbShared(MariadbLanguage, InnodbShared):
    """The SQL for what the queues in a MariaDB database share."""


class Mariadb(MariadbLanguage, Innodb):
    """MariaDB's dialect."""

    shared_kind = MariadbShared

    def locked(self, store: Connections) -> bool:
        try:
            probe = f"SELECT 1 FROM {self.table_in_schema} LIMIT 0 FOR UPDATE"
            store.execute(f"SET STATEMENT lock_wait_timeout = 0 FOR {probe}")
        except Exception as error:
            return store.classify(error) is ErrorKind.LOCKED
        return False
