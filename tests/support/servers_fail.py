"""Servers that restart, crash, fill their disk or only read: nothing is lost, nothing done twice, and all go on."""

from __future__ import annotations

from tests import servers
from tests.servers import Server


class Standby(servers.Postgres):
    """A PostgreSQL that follows another one."""

    WELCOME = ()

    def __init__(self, primary: Server) -> None:
        super().__init__()
        self._primary = primary

    def _making(self) -> list[str]:
        user, _ = self.ADMINISTRATOR
        where = [f"--host={self._primary.host}", f"--port={self._primary.port}", f"--username={user}"]
        how = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        return [self.program("pg_basebackup"), f"--pgdata={self.folder}/data", *where, *how]


ONLY_READ = {
    "postgres": (
        "ALTER DATABASE {name} SET default_transaction_read_only = on",
        "ALTER DATABASE {name} SET default_transaction_read_only = off",
    ),
    "mariadb": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
}
