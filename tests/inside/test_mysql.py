"""What MySQL alone does: several statements in one packet, and what refuses them."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import database_on, live
from tests.factories import task
from tests.servers import MySQL
from tests.steps import is_exact
from tests.support.servers_fail import own
from xq.drivers import packet
from xq.drivers.pymysql import TESTED, Pymysql
from xq.drivers.stores import BaseStore

UNKNOWN_COMMAND = b"\xff\x17\x04#08S01Unknown command"


@pytest.fixture
def place() -> Iterator[tuple[Any, str]]:
    with database_on(MySQL) as found:
        yield found


@pytest.fixture
def db(place: tuple[Any, str]) -> Iterator[pw.Database]:
    server, name = place
    with closing(server.peewee(name)) as database:
        yield database


def takes_one_statement_at_a_time(db: pw.Database) -> bool:
    with pytest.raises(pw.ProgrammingError, match="1064"):
        db.execute_sql("SELECT 1; SELECT 2")
    return bool(db.execute_sql("SELECT 3").fetchone() == (3,))


def test_the_applications_connection_takes_one_statement_at_a_time_after_each_call(db):
    Task = live(db)({"unique": True, "limit": 2, "buried": True, "utube": True}, roles=("unique", "utube"))
    Task.put(task(job="a", utube="u"))
    assert takes_one_statement_at_a_time(db)
    with pytest.raises(xq.Duplicate):  # an error in the packet
        Task.put(task(job="a"))
    assert takes_one_statement_at_a_time(db)
    Task.put(task(job="b"))
    with pytest.raises(xq.Full):  # one that ends it by itself
        Task.put(task(job="c"))
    assert (takes_one_statement_at_a_time(db), db.in_transaction()) == (True, False)
    with db.atomic():
        Task.take().bury()
        assert takes_one_statement_at_a_time(db)
    assert is_exact(Task)


def test_a_call_that_is_interrupted_leaves_no_connection_that_takes_several_statements(db, monkeypatch):
    Task = live(db)({"keep": True})
    Task.put(task())

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packet, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Task.take()
    with suppress(pw.InterfaceError, pw.OperationalError):  # it is closed
        assert takes_one_statement_at_a_time(db)
    db.close()
    assert takes_one_statement_at_a_time(db)
    assert is_exact(Task)


def test_a_packet_may_be_longer_than_the_protocols_own(db):
    db.execute_sql("CREATE TABLE task (id INTEGER AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)")
    meta = type("Meta", (), {"database": db, "table_name": "task"})
    model: Any = type("Task", (pw.Model,), {"data": pw.BlobField(null=True), "Meta": meta})
    queue = xq.upgrade(model, {}, {})
    queue.install()
    for size in (packet.LONGEST // 4, packet.LONGEST // 2):  # escaped, a byte may be two
        queue.put({"data": b"\0'" * (size // 2)})
        taken: Any = queue.take()
        assert (len(taken.data), takes_one_statement_at_a_time(db)) == (size // 2 * 2, True)


def test_the_key_0_is_the_applications_own_unless_the_database_counts(db):
    def queue(name: str, **fields: Any) -> Any:
        meta, status = {"database": db, **fields.pop("meta", {})}, pw.CharField(default="R")
        found: Any = live(db)(
            {}, model=type(name, (pw.Model,), {**fields, "status": status, "Meta": type("Meta", (), meta)}), roles=()
        )
        return found.xq

    counted, own = queue("Counted"), queue("Own", id=pw.IntegerField(primary_key=True))
    both = {"site": pw.IntegerField(), "page": pw.IntegerField()}
    pairs = queue("Pairs", **both, meta={"primary_key": pw.CompositeKey(*both)})
    assert [counted.put({}).id, counted.put({"id": 0}).id] == [1, 2]
    assert [each.id for each in counted.put_many([{"id": 7}, {"id": 0}])] == [7, 8]
    with pytest.raises(xq.BadValue, match="leave the keys out"):
        counted.put_many([{"id": 0}, {"id": 0}])
    assert [own.put({"id": 0}).id, own.take().id] == [0, 0]
    assert [each.page for each in pairs.put_many([{"site": 0, "page": n} for n in (1, 2)])] == [1, 2]


@contextmanager
def strict_proxy(server: Any) -> Iterator[int]:
    """A port behind which no connection may send several statements: the command that allows them is unknown."""
    listener, ends = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def packet_of(end: socket.socket) -> bytes:
        head = end.recv(4, socket.MSG_WAITALL)
        size = int.from_bytes(head[:3], "little")
        return head + (end.recv(size, socket.MSG_WAITALL) if size else b"")

    def forwarded(client: socket.socket, to: socket.socket) -> None:
        asked = False
        while True:
            if to in select.select([client, to], [], [])[0] or asked:
                if not (found := to.recv(65_536)):
                    return
                client.sendall(found)
                asked = False
            else:
                if not (command := packet_of(client)):
                    return
                if command[4:5] == packet.SET_OPTION and command[3] == 0:
                    client.sendall(len(UNKNOWN_COMMAND).to_bytes(3, "little") + b"\1" + UNKNOWN_COMMAND)
                else:
                    to.sendall(command)
                    asked = True  # its answer comes before that to the next command

    def forward(*both: socket.socket) -> None:
        with suppress(OSError, ValueError):  # select() raises it for an end that the block has closed
            forwarded(*both)
        for end in both:
            end.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, to = listener.accept()[0], socket.create_connection((server.host, server.port))
                ends.extend((client, to))
                threading.Thread(target=forward, args=(client, to), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for end in (listener, *ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_behind_a_proxy_that_refuses_several_statements_they_run_one_by_one(place):
    server, name = place
    with strict_proxy(server) as port, closing(server.peewee(name, port=port)) as db:
        Task = live(db)({"limit": 3, "keep": True, "unique": True, "utube": True}, roles=("unique", "utube"))
        Task.xq.put_many([task(job=each, utube="u;'") for each in ("a; b", "c", "it's; \\")])
        with pytest.raises(xq.Full):
            Task.put(task())
        for each in ("a; b", "c", "it's; \\"):
            taken = Task.take()
            assert taken.job == each
            taken.ack()
        assert is_exact(Task)


# What MySQL calls deprecated in xq's statements: settings that `install` looks at, and what has no other form that
# works on each version.
DEPRECATED = ("@@binlog_format", "@@log_bin_trust_function_creators", "VALUES function", "Setting user variables")


def test_mysql_calls_nothing_in_a_statement_deprecated_but_what_is_known(db, monkeypatch):
    run, told = Pymysql.execute, set[str]()

    def executed(self: Pymysql, cursor: Any, sql: str, values: Any) -> None:
        run(self, cursor, sql, values)
        with closing(cursor.connection.cursor()) as asking:
            kept = cursor.connection._result
            asking.execute("SHOW WARNINGS")
            told.update(text for _, number, text in asking.fetchall() if number == 1287)
            cursor.connection._result = kept

    monkeypatch.setattr(Pymysql, "execute", executed)
    features = {"utube": True, "unique": True, "buried": True, "history": True, "limit": 9, "ttr": 60, "delayed": True}
    Task = live(db)(features, roles=("unique", "utube", "runat", "attempts"))
    Task.xq.put_many([task(job=str(n), utube="u") for n in range(3)])
    Task.take().release(delay=5)
    Task.xq.bury_many(Task.xq.take_many(2))
    Task.xq.stats()
    Task.xq.uninstall()
    assert [text for text in told if not any(known in text for known in DEPRECATED)] == []


def test_a_trigger_that_a_crash_has_left_out_is_named_and_made_again(monkeypatch):
    run, killed = BaseStore.execute, list[str]()
    with own(MySQL) as server, closing(server.peewee("app")) as db:
        Task = live(db)({"keep": True})
        db.execute_sql("DROP TRIGGER task_xq_update")

        def executed(self: Any, sql: str, values: Any = ()) -> Any:
            found = run(self, sql, values)
            if sql.startswith("DROP TRIGGER IF EXISTS `task_xq_update`"):
                killed.append(sql)
                server.stop("immediate")
            return found

        db.execute_sql("CREATE TRIGGER task_xq_update AFTER UPDATE ON task FOR EACH ROW SET @changed = 1")
        with monkeypatch.context() as patched:
            patched.setattr(BaseStore, "execute", executed)
            with pytest.raises(pw.OperationalError):
                Task.xq.install()
        server.start()
        db.close()
        assert (len(killed), Task.xq.check()) == (1, ["the trigger task_xq_update is missing"])
        Task.xq.install()
        Task.put(task())
        Task.take().ack()
        assert is_exact(Task)


def test_a_user_whose_password_needs_a_package_is_told_how_to_install_it(place, monkeypatch):
    server, name = place
    server.run("CREATE USER IF NOT EXISTS ann IDENTIFIED WITH caching_sha2_password BY 'secret'")
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    with closing(server.peewee(name, user="ann", password="secret")) as db:
        Task: Any = type("Task", (pw.Model,), {"Meta": type("Meta", (), {"database": db})})
        with pytest.raises(xq.ConfigurationError, match=r"pip install 'pymysql\[rsa\]'"):
            xq.upgrade(Task).install()


def test_a_group_with_several_primaries_is_refused_by_name():
    plugin = {"plugin_load_add": "group_replication.so", "group_replication_single_primary_mode": "OFF"}
    with own(MySQL, **plugin) as server, closing(server.peewee("app")) as db:
        with pytest.raises(xq.ConfigurationError, match="several primaries"):
            live(db)({})
        assert not any("xq" in table for table in db.get_tables())


def test_doctor_names_a_version_that_was_not_tested(db, monkeypatch):
    Task = live(db)({})
    untested = "xq was tested on 8.4"
    assert not any(untested in found.what for found in Task.xq.doctor())
    monkeypatch.setitem(TESTED, "mysql", "8.4")
    assert any(untested in found.what for found in Task.xq.doctor())
