"""The classes of errors: what they carry, what they note, and how drivers' errors become one of them."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import sqlite3
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import DataError, ProgrammingError, errors
from pymysql import err

import xq
from xq.core.kinds import ErrorKind
from xq.drivers import DRIVERS
from xq.engine.in_doubt import InDoubtTakes

ROOT = Path(__file__).resolve().parents[2]

# the errors


def test_errors_of_values_and_types_are_those_of_python_as_well():
    assert issubclass(xq.BadValue, ValueError)
    assert issubclass(xq.BadType, TypeError)
    assert issubclass(xq.Conflict, xq.ConfigurationError)


RAISED = [
    xq.NotFound("Task", 5),
    xq.WrongState("ack", 5, "R", ("T",)),
    xq.NotOwner("ack", 5, "me"),
    xq.SessionLost("ack", 5, "me"),
    xq.FeatureOff("put needs it", feature="delayed"),
    xq.Duplicate("Task", "a", 5),
    xq.Full("Task", 2),
    xq.NotInstalled("Task", ["a table"]),
    xq.UnknownSession("a"),
    xq.Conflict("keep", "zombie", "(T, ack)"),
    xq.TubeExists("mails", "fifo"),
    xq.UnknownTube("mails", []),
    xq.TubeBusy("mails", 1),
    xq.TubeDropped("mails"),
    xq.NotRunning("WAITING"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_reaches_another_process_whole_and_says_what_its_attributes_are(error):
    error.add_note("while the shop was closed")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    told = inspect.getdoc(type(error)) or ""
    assert [name for name in vars(error) if name != "__notes__" and f"`{name}`" not in told] == []


ERRORS = [value for name in xq.__all__ if isinstance(value := getattr(xq, name), type) and issubclass(value, xq.Error)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_a_traceback_names_the_section_that_explains_the_error(error):
    kinds: list[Any] = [error, type("OfTheApplication", (error,), {})]
    for kind in kinds:
        note = traceback.format_exception(kind.__new__(kind))[-1]
        page, _, anchor = note.split()[1].partition("#")
        headings = re.findall("^### (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor == error.__name__.lower()
        assert anchor in [heading.lower() for heading in headings]


# the kind of an error, as the driver that raised it classifies it


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
    ("sqlite", of_sqlite(sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT_CHECK), "CHECK"),
    ("sqlite", of_sqlite(sqlite3.OperationalError, sqlite3.SQLITE_BUSY), "TRANSIENT"),
    ("sqlite", of_sqlite(sqlite3.OperationalError, sqlite3.SQLITE_LOCKED_SHAREDCACHE), "CONFLICT"),
    ("sqlite", sqlite3.ProgrammingError("Error binding parameter 1: type 'X' is not supported"), "BAD_TYPE"),
    ("sqlite", OverflowError("int too large"), "BAD_VALUE"),
    ("postgres", of_postgres(errors.DeadlockDetected), "CONFLICT"),
    ("postgres", of_postgres(errors.SerializationFailure), "CONFLICT"),
    ("postgres", of_postgres(errors.UniqueViolation), "DUPLICATE"),
    ("postgres", of_postgres(errors.ForeignKeyViolation), "CONSTRAINT"),
    ("postgres", of_postgres(errors.ReadOnlySqlTransaction), "READ_ONLY"),
    ("postgres", of_postgres(errors.InsufficientPrivilege, "aclcheck_error"), "DENIED"),
    ("postgres", of_postgres(errors.InsufficientPrivilege, "aclcheck_error", "a trigger"), "PERMANENT"),
    ("postgres", of_postgres(errors.UndefinedFunction), "BAD_TYPE"),
    ("postgres", of_postgres(errors.NumericValueOutOfRange), "BAD_VALUE"),
    ("postgres", of_postgres(errors.FeatureNotSupported, "numeric_int4"), "BAD_VALUE"),
    ("postgres", of_postgres(errors.DiskFull), "TRANSIENT"),
    ("postgres", DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), "BAD_VALUE"),
    ("postgres", ProgrammingError("cannot adapt type 'X'"), "BAD_TYPE"),
    ("innodb", err.OperationalError(1213, "Deadlock found"), "CONFLICT"),
    ("innodb", err.OperationalError(1305, "SAVEPOINT s1 does not exist"), "CONFLICT"),
    ("innodb", err.OperationalError(1205, "Lock wait timeout exceeded"), "LOCKED"),
    ("innodb", err.IntegrityError(1062, "Duplicate entry"), "DUPLICATE"),
    ("innodb", err.IntegrityError(1451, "a foreign key constraint fails"), "CONSTRAINT"),
    ("innodb", err.OperationalError(1290, "the --read-only option"), "READ_ONLY"),
    ("innodb", err.OperationalError(1142, "UPDATE command denied"), "DENIED"),
    ("innodb", err.DataError(1264, "Out of range value"), "BAD_VALUE"),
    ("innodb", err.OperationalError(1021, "Disk full"), "TRANSIENT"),
    ("innodb", err.ProgrammingError(1146, "Table 't' doesn't exist"), "PERMANENT"),
    *((name, error, "NOT_DATABASE") for name in DRIVERS for error in (KeyError("a"), RuntimeError({}), SystemExit(1))),
]


@pytest.mark.parametrize(
    ("driver", "error", "kind"), EXPECTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_driver_names_the_kind_of_an_error(driver, error, kind):
    assert DRIVERS[driver].classify(error) is ErrorKind[kind]


# errors from which it is known that a take took nothing


# of a database that has raised none of these errors
DOUBTS: Any = InDoubtTakes(SimpleNamespace(store=SimpleNamespace(classify=lambda error: ErrorKind.NOT_DATABASE)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [xq.BadValue, xq.BadType, KeyError, KeyboardInterrupt])
def test_an_error_that_the_handler_of_a_signal_may_have_raised_leaves_a_take_in_doubt(kind):
    assert not DOUBTS.excluded_by(kind("by the application"))


def test_an_error_that_xq_raises_before_it_takes_leaves_no_doubt():
    assert DOUBTS.excluded_by(xq.ConfigurationError("other features"))
