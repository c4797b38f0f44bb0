"""Tables, columns, tubes and words of any name: they are quoted, or refused by name."""

from __future__ import annotations

import re

import peewee as pw
import pytest

NAMES = [
    *("order", "old", "changed", "FROM changed", "a WHERE b", "DROP TABLE task"),  # words of SQL, and of xq's
    *("%s", "%(now)s", ":now", ":rows", "a:chosen", "?", "{0}", "{x}", "$xq$", "@here@"),  # places for values
    *('"', '"x', "a'b", "`x`", "[x]", "a.b", "a b", "\\", ";--", "a/*b", "🦆", "größe"),
]

QUOTED = re.compile(r"""("[^"]*"|`[^`]*`)""")


@pytest.fixture
def db(db):
    """Peewee names things as they are, and the drivers of servers take a % in a name for the placeholder of a value."""
    if not isinstance(db, pw.SqliteDatabase):
        execute = db.execute_sql
        db.execute_sql = lambda sql, *rest: execute(QUOTED.sub(lambda name: name[0].replace("%", "%%"), sql), *rest)
    return db


def is_possible(db, name, of_table=False):
    """Whether a table or a column can have this name: beyond U+FFFF not on MariaDB, and a table on MySQL with no `."""
    if not isinstance(db, pw.MySQLDatabase):
        return True
    ((version,),) = db.execute_sql("SELECT VERSION()")
    return max(name) <= "\uffff" and ("`" not in name or not of_table or "MariaDB" in version)
