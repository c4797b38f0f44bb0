"""The kind of an error, as the driver that raised it classifies it."""

from __future__ import annotations

import sqlite3

import pytest
from psycopg import DataError, ProgrammingError, errors
from pymysql import err

from xq.adapters.drivers import DRIVERS
from xq.core.ports import PASSING, ErrorKind


def of_sqlite(kind: type[sqlite3.Error], code: int, text: str = "") -> sqlite3.Error:
    error = kind(text)
    error.sqlite_errorcode = code
    return error


def of_postgres(kind: type[errors.Error], function: str = "", context: str = "") -> errors.Error:
    """An error as a function of the server raised it, beneath a function or a trigger if there is a context."""
    diagnostic = type("Diagnostic", (), {"source_function": function, "context": context})()
    raised: type[errors.Error] = type("Raised", (kind,), {"diag": diagnostic})
    return raised("")


EXPECTED = [
    ("sqlite", of_sqlite(sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT_UNIQUE), "DUPLICATE"),
    ("sqlite", of_sqlite(sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT_CHECK), "CONSTRAINT"),
    ("sqlite", of_sqlite(sqlite3.OperationalError, sqlite3.SQLITE_READONLY_DIRECTORY), "READ_ONLY"),
    ("sqlite", of_sqlite(sqlite3.OperationalError, sqlite3.SQLITE_ERROR), "PERMANENT"),
    ("sqlite", of_sqlite(sqlite3.OperationalError, sqlite3.SQLITE_BUSY), "TRANSIENT"),
    ("sqlite", sqlite3.ProgrammingError("Error binding parameter 1: type 'X' is not supported"), "BAD_TYPE"),
    ("sqlite", OverflowError("int too large"), "BAD_VALUE"),
    ("postgres", of_postgres(errors.DeadlockDetected), "CONFLICT"),
    ("postgres", of_postgres(errors.SerializationFailure), "CONFLICT"),
    ("postgres", of_postgres(errors.LockNotAvailable), "LOCKED"),
    ("postgres", of_postgres(errors.UniqueViolation), "DUPLICATE"),
    ("postgres", of_postgres(errors.ForeignKeyViolation), "CONSTRAINT"),
    ("postgres", of_postgres(errors.ReadOnlySqlTransaction), "READ_ONLY"),
    ("postgres", of_postgres(errors.InsufficientPrivilege, "aclcheck_error"), "DENIED"),
    ("postgres", of_postgres(errors.InsufficientPrivilege, "aclcheck_error", "a trigger"), "PERMANENT"),
    ("postgres", of_postgres(errors.InsufficientPrivilege, "ExecWithCheckOptions"), "PERMANENT"),
    ("postgres", of_postgres(errors.UndefinedFunction), "BAD_TYPE"),
    ("postgres", of_postgres(errors.UndefinedFunction, context="a trigger"), "PERMANENT"),
    ("postgres", of_postgres(errors.NumericValueOutOfRange), "BAD_VALUE"),
    ("postgres", of_postgres(errors.FeatureNotSupported, "numeric_int4"), "BAD_VALUE"),
    ("postgres", of_postgres(errors.FeatureNotSupported, "transformStmt"), "PERMANENT"),
    ("postgres", of_postgres(errors.ObjectNotInPrerequisiteState), "PERMANENT"),
    ("postgres", of_postgres(errors.DiskFull), "TRANSIENT"),
    ("postgres", DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), "BAD_VALUE"),
    ("postgres", ProgrammingError("cannot adapt type 'X'"), "BAD_TYPE"),
    ("mariadb", err.OperationalError(1213, "Deadlock found"), "CONFLICT"),
    ("mariadb", err.OperationalError(1305, "SAVEPOINT s1 does not exist"), "CONFLICT"),
    ("mariadb", err.OperationalError(1305, "FUNCTION f does not exist"), "PERMANENT"),
    ("mariadb", err.OperationalError(1205, "Lock wait timeout exceeded"), "LOCKED"),
    ("mariadb", err.IntegrityError(1062, "Duplicate entry"), "DUPLICATE"),
    ("mariadb", err.IntegrityError(1451, "a foreign key constraint fails"), "CONSTRAINT"),
    ("mariadb", err.OperationalError(4025, "CONSTRAINT `c` failed"), "CONSTRAINT"),
    ("mariadb", err.OperationalError(1290, "the --read-only option"), "READ_ONLY"),
    ("mariadb", err.OperationalError(1142, "UPDATE command denied"), "DENIED"),
    ("mariadb", err.DataError(1264, "Out of range value"), "BAD_VALUE"),
    ("mariadb", err.ProgrammingError("nan can not be used with MySQL"), "BAD_VALUE"),
    ("mariadb", TypeError("a collection is no value"), "BAD_TYPE"),
    ("mariadb", err.OperationalError(1021, "Disk full"), "TRANSIENT"),
    ("mariadb", err.ProgrammingError(1146, "Table 't' doesn't exist"), "PERMANENT"),
    *((name, error, "NOT_DATABASE") for name in DRIVERS for error in (KeyError("a"), RuntimeError({}), SystemExit(1))),
]


@pytest.mark.parametrize(
    ("driver", "error", "kind"), EXPECTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_driver_names_the_kind_of_an_error(driver, error, kind):
    assert DRIVERS[driver].classify(error) is ErrorKind[kind]


def test_a_missing_privilege_may_be_granted_later_on_mariadb_only():
    passing = {name: driver.passing - PASSING for name, driver in DRIVERS.items()}
    assert passing == {"sqlite": set(), "postgres": set(), "mariadb": {ErrorKind.DENIED}}
