"""The tubes' tables, as Peewee models: one for each tube, and one that records all tubes."""

from __future__ import annotations

import json
import math
import secrets
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import peewee as pw

from xq.adapters.peewee import urls
from xq.adapters.peewee.connections import database_of
from xq.core.errors import BadType, ConfigurationError
from xq.database.database import Database
from xq.sql.shared import TUBES

LONGEST_NAME = 64  # characters, for tubes and for their types
READABLE = 20  # how many characters of a tube's name its table's name shows

# The fields by role.
FIELDS: Mapping[str, Callable[[], pw.Field[Any]]] = {
    "runat": lambda: pw.DoubleField(null=True),
    "deadline": lambda: pw.DoubleField(null=True),
    "priority": lambda: pw.BigIntegerField(default=0),
    "tube": lambda: pw.TextField(null=True),
    "owner": lambda: pw.CharField(max_length=64, null=True),
    "attempts": lambda: pw.IntegerField(default=0),
    "lost": lambda: pw.IntegerField(default=0),
    "ttl": lambda: pw.DoubleField(null=True),
    "ttr": lambda: pw.DoubleField(null=True),
    "utube": lambda: pw.TextField(default="nil"),
    "error": lambda: pw.TextField(null=True),
    "trace": lambda: pw.CharField(max_length=64, null=True),
}


class Record(NamedTuple):
    """A tube's record. JSON has no infinity, so an option that is math.inf is stored as null."""

    name: str
    type: str
    options: Mapping[str, Any]
    table: str


def database(where: object) -> pw.Database:
    """Return a Peewee database, given as such or as a URL.

    Raises as `urls.database`, BadType, and ConfigurationError for a DatabaseProxy that is not initialized.
    """
    if isinstance(where, pw.Proxy):
        where = where.obj
        if where is None:
            raise ConfigurationError("tubes are in a database: initialize the DatabaseProxy first")
    if isinstance(where, pw.Database):
        return where
    if not isinstance(where, str):
        raise BadType(f"tubes are in a database of Peewee's, or of a URL, not in a {type(where).__name__}")
    return urls.database(where)


def new_table(name: str) -> str:
    """Return a new, unique name for a tube's table. It begins with readable characters from the tube's name."""
    readable = "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())[:READABLE]
    return f"{TUBES}_{readable}_{secrets.token_hex(4)}"


def model(database: pw.Database, name: str, table: str, roles: Collection[str]) -> type[pw.Model]:
    """Return a tube's model: id, status and data, and a field for each role."""
    # Else SQLite would reuse the last task's number after its deletion.
    of_sqlite = isinstance(database, pw.SqliteDatabase)
    fields: dict[str, pw.Field[Any]] = {
        "id": pw.BigAutoField(constraints=[pw.SQL("AUTOINCREMENT")] if of_sqlite else None),
        "status": pw.CharField(max_length=1, default="R"),
        "data": pw.TextField(null=True),  # JSON
        "raw": pw.BlobField(null=True),  # or bytes; neither is JSON's null
    }
    if isinstance(database, pw.MySQLDatabase):  # its TEXT and BLOB hold at most 65,535 bytes
        vars(fields["data"])["field_type"], vars(fields["raw"])["field_type"] = "LONGTEXT", "LONGBLOB"
    fields |= {role: FIELDS[role]() for role in roles}
    meta = type("Meta", (), {"database": database, "table_name": table})
    return type(name, (pw.Model,), {**fields, "Meta": meta})


def key_types(model: type[pw.Model]) -> tuple[type, ...]:
    """Return the types of a model's keys. Text is not accepted for an integer key, though a database might cast it."""
    of_integers = isinstance(model._meta.primary_key, pw.IntegerField)
    return (int,) if of_integers else (int, str, bytes, uuid.UUID)


class TubeRecords:
    """The table that records a database's tubes, beside the tables that all queues share."""

    def __init__(self, database: pw.Database) -> None:
        class Tube(pw.Model):
            name = pw.CharField(max_length=LONGEST_NAME, primary_key=True)
            type = pw.CharField(max_length=LONGEST_NAME)
            options = pw.TextField()
            table = pw.CharField(max_length=LONGEST_NAME, column_name="table_name")

        Tube._meta.set_database(database)
        Tube._meta.set_table_name(TUBES)
        self.model: Any = Tube
        self._made = self._there = False  # set outside transactions only, since a rollback undoes the creation

    @property
    def database(self) -> Database:
        """The database that has them now."""
        return database_of(self.model._meta.database)

    def made(self) -> Database:
        """Return the database, after creating these tables if one does not exist."""
        database = self.database
        if not self._made:
            # Names compare byte by byte, whatever the database's default collation.
            self.model.name.collation = self.model.type.collation = database.sql.collation or None
            if not {TUBES, *database.sql.tables} <= {*self.model._meta.database.get_tables()}:
                self.check_transaction()
                database.install(self.model.create_table)
            self._made = not self._within_transaction()
        return database

    def are_there(self) -> bool:
        there = self._there or bool(self.model.table_exists())
        self._there = self._there or (there and not self._within_transaction())
        return there

    def check_transaction(self) -> None:
        """Raise ConfigurationError within a transaction that creating or dropping a table would end."""
        if isinstance(self.model._meta.database, pw.MySQLDatabase) and self._within_transaction():
            raise ConfigurationError(
                f"{self.database.sql.product} ends a transaction where a table is made or dropped: create and drop "
                "tubes outside of it"
            )

    def _within_transaction(self) -> bool:
        return bool(self.database.store.in_transaction())

    def __iter__(self) -> Iterator[Record]:
        """Yield the tubes by name; none if the table does not exist."""
        rows = self.model.select().order_by(self.model.name).tuples() if self.are_there() else ()
        return iter([_record(row) for row in rows])

    def find(self, name: str) -> Record | None:
        if not self.are_there():
            return None
        found = self.model.select().where(self.model.name == name).tuples().first()
        return _record(found) if found else None

    def add(self, record: Record) -> bool:
        """Record a tube. Returns False if the name is in use."""
        try:
            with self.model._meta.database.atomic():
                options = json.dumps(
                    {name: None if value == math.inf else value for name, value in record.options.items()}
                )
                self.model.insert(name=record.name, type=record.type, options=options, table=record.table).execute()
            return True
        except pw.IntegrityError:
            return False

    def remove(self, record: Record) -> bool:
        """Delete a tube's record. Returns False if there is none."""
        self.check_transaction()
        mine = self.model.name == record.name, self.model.table == record.table
        return bool(self.model.delete().where(*mine).execute())


def _record(row: Any) -> Record:
    name, kind, options, table, *_ = row
    given = json.loads(options)
    return Record(name, kind, {name: math.inf if value is None else value for name, value in given.items()}, table)
