"""The databases that URLs name, as Peewee's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import peewee as pw
from playhouse import pool

from xq.core.errors import BadValue, ConfigurationError
from xq.drivers import SERVERS

SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*")  # in a URL
OF_SQLALCHEMY = re.compile(r"^(sqlite|postgresql|mysql|mariadb)\+(?!pool:)\w+(?=:)")  # a scheme with a driver

# By URL scheme: the driver's package, the xq extra that installs it, and the parameters with which Peewee uses this
# driver and its SQL.
DRIVERS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "postgres": ("psycopg", "postgres", {"prefer_psycopg3": True}),
    "postgresql": ("psycopg", "postgres", {"prefer_psycopg3": True}),
    "psycopg3": ("psycopg", "postgres", {}),
    "mysql": ("pymysql", "mysql", {"mariadb": True}),
    "mariadb": ("pymysql", "mariadb", {"mariadb": True}),
}


def database(where: str) -> pw.Database:
    """Return a URL's database ("sqlite:///app.db", "postgresql://me@host/app").

    The driver that a URL of SQLAlchemy names ("postgresql+asyncpg://me@host/app") is passed over. Raises BadValue, and
    ConfigurationError without xq's own driver.
    """
    from playhouse import db_url  # here, because it imports every installed driver

    where = OF_SQLALCHEMY.sub(r"\1", where)
    scheme, _, place = where.partition("://")
    url = f"the URL {scheme}://..." if place and SCHEME.fullmatch(scheme) else "the text given"  # no password in errors
    if scheme.startswith("sqlite") and not place.startswith(("/", ":memory:")):
        raise BadValue(f"{url} names no file: sqlite:///app.db is one here, sqlite:////srv/app.db one there")
    needed, extra, parameters = DRIVERS.get(scheme.partition("+")[0], ("", "", {}))
    if needed and find_spec(needed) is None:
        raise ConfigurationError(f"{url} needs {needed}: pip install '.[{extra}]' in the checkout of xq")
    try:
        if extra == "postgres" and "," in (hosts := place.partition("/")[0].rpartition("@")[2]):
            from psycopg.conninfo import conninfo_to_dict

            parameters = {**parameters, **conninfo_to_dict(f"postgresql://{hosts}")}
            where = where.replace(hosts, "several", 1)
        known = where.replace(scheme, scheme.replace("mariadb", "mysql"), 1)
        found: pw.Database = db_url.connect(known, **parameters)
    except Exception:  # the message may contain the password
        raise BadValue(
            f"write sqlite:///app.db, postgresql://user@host:port/name or mariadb://...: {url} names no database"
            + ("; if the password has one of / ? # [ ], give a database of Peewee's" if "@" in where else "")
        ) from None
    if isinstance(found, pw.PostgresqlDatabase):
        found._adapter = _Psycopg()  # type: ignore[attr-defined]
    elif isinstance(found, pw.MySQLDatabase):
        found.__class__ = _PooledMySQL if isinstance(found, pool.PooledMySQLDatabase) else _MySQL
    return found


class _Psycopg(pw.Psycopg3Adapter):
    """Connects with the limits of xq's own connections."""

    def connect(self, db: pw.Database, **parameters: Any) -> Any:
        return SERVERS["postgres"].reach(partial(super().connect, db), parameters)


class _MySQL(pw.MySQLDatabase):
    """Connects with the limits of xq's own connections."""

    def _connect(self) -> Any:
        return SERVERS["innodb"].connect({"database": self.database, **self.connect_params})


class _PooledMySQL(pool.PooledMySQLDatabase, _MySQL):
    """The same, in a pool."""


def without_password(where: str) -> str:
    """Return a URL for people to read: its passwords are three dots."""
    scheme, slashes, place = where.partition("://")
    user, at, rest = place.rpartition("@")
    name, colon, _ = user.partition(":")
    shown = f"{scheme}{slashes}{name}{':...' if colon else ''}{at}{rest}"
    return re.sub(r"([?&]pass\w*=)[^&#]*", r"\1...", shown, flags=re.IGNORECASE)
