"""The servers by which an application may have its database."""

from __future__ import annotations

from collections.abc import Mapping

from tests.servers import MariaDB, Postgres, Server

KINDS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB}
