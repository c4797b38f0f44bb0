"""Liveness locks and notifications of the processes on one SQLite file.

The operating system provides both. It drops a record lock (fcntl) when the process that has it ends, in any way. Linux
reports a write to a watched file at once, at no cost for the writer; elsewhere waiting processes poll.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import select
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID
from weakref import WeakValueDictionary

from xq.adapters.databases.liveness_locks import LivenessLocks
from xq.adapters.databases.waker import Waker
from xq.core.errors import ConfigurationError
from xq.core.forking import at_fork
from xq.core.ports import Connections, Row

YOUNG = 0.5  # seconds in which processes move their locks to a new lock file; until then a missing lock proves nothing
POLL = 0.02  # seconds between two polls if no file can be watched
# The system reports a write before its transaction is visible: seconds to sleep between the looks for it.
COMMITTING = (0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128)
STATE = 0.9  # seconds between two looks at the state of files that are at rest, in case a write is not reported
QUIET = 5.0  # seconds after a write in which its transaction, or one that it overwrites, may become visible


class FileLocks(LivenessLocks):
    """Each session is one byte of a lock file beside the database. The processes of the session lock it together."""

    skew = 0.0  # all processes are on one machine
    intact = True

    # One for the process: on systems without OFD locks, closing any descriptor of the file drops all its locks.
    _of_path: WeakValueDictionary[str, FileLocks] = WeakValueDictionary()
    _finding = threading.Lock()

    def __init__(self, database: str) -> None:
        super().__init__()
        self._database = database
        self.path = f"{database}-xq"
        self._descriptor = -1

    def __del__(self) -> None:
        self._close()  # in a child process too, or the locks would outlive the parent

    @classmethod
    def of(cls, database: str) -> FileLocks:
        """Return the locks of this process for a database file."""
        path = os.path.realpath(database)
        with cls._finding:
            locks = cls._of_path.get(path)
            if locks is None:
                locks = cls._of_path[path] = cls(path)
            return locks

    def _prepare(self) -> None:
        self.renew()

    def _lock_session(self, uuid: str) -> bool:
        return self._locked(uuid, fcntl.F_RDLCK)

    def _unlock_session(self, uuid: str) -> None:
        self._locked(uuid, fcntl.F_UNLCK)
        self._rest()

    @contextmanager
    def alone(self, uuids: Sequence[str]) -> Iterator[list[str]]:
        with self._lock:
            self.renew()
            mine = [uuid for uuid in uuids if uuid not in self._held and uuid not in self._ending]
            self._ending.update(mine)
            free = [uuid for uuid in mine if self._locked(uuid, fcntl.F_WRLCK)]
        try:
            yield free
        finally:
            with self._lock:
                for uuid in mine:
                    self._locked(uuid, fcntl.F_UNLCK)
                    self._ending.discard(uuid)
                self._rest()

    def _locked(self, uuid: str, kind: int) -> bool:
        """Lock the byte of a session, in one attempt, and return whether that succeeded."""
        if self._descriptor < 0:
            return False
        try:
            _set_lock(self._descriptor, kind, UUID(uuid).int % 2**62)  # a lock may lie beyond the end of its file
        except OSError:
            return False
        return True

    def _rest(self) -> None:
        if not self._held and not self._ending:
            self._close()

    def renew(self) -> bool:
        """Acquire the locks again if the file was removed: other processes would use a new one.

        Returns whether the file is old enough for the other processes to have done the same.
        """
        with self._lock:
            if self._descriptor < 0 or not _same_file(self._descriptor, self.path):
                self._open()
            return abs(time.time() - os.fstat(self._descriptor).st_mtime) > YOUNG

    def _open(self) -> None:
        try:
            database = os.stat(self._database)
            mode = database.st_mode & 0o666
            descriptor, is_new = _opened(self.path, mode)
        except OSError as error:
            refused = self._remedy() if isinstance(error, PermissionError) else ""
            raise ConfigurationError(
                f"the liveness locks of sessions are in {self.path}, and it cannot be opened: {error.strerror}{refused}"
            ) from error
        self._close()
        self._descriptor = descriptor
        if is_new:  # another file may be one that the owner of the folder has put there
            os.fchmod(self._descriptor, mode)
            if os.geteuid() == 0:  # as SQLite does for app.db-wal, so that the user of the database may write it
                os.fchown(self._descriptor, database.st_uid, database.st_gid)
        for uuid in list(self._held):
            self._locked(uuid, fcntl.F_RDLCK)

    def _remedy(self) -> str:
        """Return, for a message, which user must be able to write the file, or the folder where it is missing."""
        me = _user(os.geteuid())
        with suppress(OSError):
            owner = _user(os.stat(self.path).st_uid)
            return f". The user {me} must be able to write this file, and the database; the file belongs to {owner}"
        return f". The user {me} must be able to write the folder {os.path.dirname(self.path)}"

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    lease: float | None = None

    def gone(self, uuids: Sequence[str]) -> list[str]:
        with self._lock:
            try:
                self.renew()
                return [uuid for uuid in uuids if not self._in_use(uuid)]
            finally:
                self._rest()

    def unheld(self, uuids: Sequence[str]) -> list[str]:
        """Return the sessions without a lock of a process; none if the file cannot be read."""
        try:
            return self.gone(uuids) if self.renew() else []
        except ConfigurationError:  # this user may not write the file
            return []

    def _in_use(self, uuid: str) -> bool:
        if uuid in self._held or uuid in self._ending:
            return True
        try:
            free = self._locked(uuid, fcntl.F_WRLCK)
        except ValueError:  # another program wrote it: it names no session
            return True
        if free:
            self._locked(uuid, fcntl.F_UNLCK)
        return not free

    def is_held(self, uuid: str) -> bool:
        return uuid in self._held and _same_file(self._descriptor, self.path)

    def pop_lost(self) -> list[str]:
        return []

    def on_own_connection(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        return None

    def announce(self) -> None:
        pass  # the write itself notifies all processes

    def there(self) -> bool:
        return os.path.exists(self._database)

    @classmethod
    def forked(cls) -> None:
        """Forget, in a child process, the locks: they belong to the parent."""
        for locks in list(cls._of_path.values()):
            locks._close()
        cls._of_path = WeakValueDictionary()
        cls._finding = threading.Lock()


at_fork("locks", FileLocks.forked)


def _set_lock(descriptor: int, kind: int, byte: int) -> None:
    """Lock or unlock a byte of a file. Raises OSError if another process has locked it."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        # OFD locks belong to the descriptor, so opening and closing the file elsewhere in this process drops none.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, byte, 1, 0))
    else:
        operations = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}
        fcntl.lockf(descriptor, operations[kind] | fcntl.LOCK_NB, 1, byte)


def _opened(path: str, mode: int) -> tuple[int, bool]:
    """Open a file that is no link; return its descriptor, and whether it is new."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_EXCL, mode), True
    except FileExistsError:
        return os.open(path, flags, mode), False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _identity(file: str | int) -> tuple[int, int] | None:
    """Return what identifies the file of a path or descriptor (device, inode); None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _same_file(descriptor: int, path: str) -> bool:
    return _identity(path) == _identity(descriptor) is not None


# notifications


class Inotify:
    """The watch of Linux. Its descriptor is readable when one of the files was written."""

    _WRITTEN, _REMOVED = 0x2, 0x400 | 0x800  # IN_MODIFY; IN_DELETE_SELF, IN_MOVE_SELF

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def fileno(self) -> int:
        return int(self._descriptor)

    def add(self, path: str) -> bool:
        """Watch a file, if it is not watched yet. Returns False if it does not exist or too many are watched."""
        events = self._WRITTEN | self._REMOVED
        return int(self._library.inotify_add_watch(self._descriptor, os.fsencode(path), events)) >= 0

    def clear(self) -> None:
        """Discard the writes reported so far."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 65_536)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:  # once only: afterwards the number may belong to another file
            os.close(descriptor)


def watch() -> Inotify | None:
    """Return a watch of the operating system; None if it supports none, or its limit of watches is reached."""
    try:
        return Inotify()
    except (OSError, AttributeError):  # another system than Linux has no such function
        return None


class FileNotifier:
    """Waits until another process may have written to a file of the database, or this process calls `wake`."""

    unseen = COMMITTING[-1]

    def __init__(self, files: Sequence[str], versions: Sequence[str]) -> None:
        self._versions = versions  # queries whose result changes with each commit of another connection
        self._version: object = None
        self._logs = [f"{file}-wal" for file in files]
        self._files = files
        self._seen = self._there()
        self._at_rest: object = None  # the state of the files at the last look; None within QUIET seconds of a write
        self._waker = Waker()
        self._watch = watch()

    def wait(self, seconds: float, eagerly: bool, conditions: Sequence[str] = ()) -> bool:
        listened = select.poll()  # select() does not support descriptors above 1023
        listened.register(self._waker, select.POLLIN)
        watched = 0
        if self._watch is not None:
            watched = sum(map(self._watch.add, self._logs))
            listened.register(self._watch, select.POLLIN)
        polls = watched < len(self._logs)
        if polls:
            seconds = min(seconds, POLL)
        rested = self.at_rest
        while True:
            ready = {descriptor for descriptor, _ in listened.poll(1000 * (min(seconds, STATE) if rested else seconds))}
            seconds -= STATE
            if ready or seconds <= 0.0 or not rested or not self.at_rest:
                break
        written = self._watch is not None and self._watch.fileno() in ready
        if self._watch is not None and written:
            self._watch.clear()
        if self._waker.fileno() in ready:
            self._waker.clear()
        return written or polls or (rested and not self.at_rest)

    reports_own = True

    def expect(self) -> None:
        """Do nothing: the operating system always notifies."""

    def has_changed(self, store: Connections, notified: bool) -> bool:
        if self.at_rest:
            return False
        written, files = self._written()  # before the look
        before = self._version
        for pause in (*COMMITTING, 0.0) if notified else (0.0,):
            self._version = [store.execute(sql) for sql in self._versions]
            if self._version != before:
                break
            time.sleep(pause)
        self._at_rest = files if 0.0 < written < time.time() - QUIET else None
        return self._version != before

    @property
    def at_rest(self) -> bool:
        return self._at_rest is not None and self._written()[1] == self._at_rest

    def _written(self) -> tuple[float, object]:
        """Return when a file of the database was last written, in seconds since 1970 (0: never), and their state."""
        found = []
        for file in (*self._files, *self._logs):
            with suppress(OSError):
                found.append(os.stat(file))
        states = [(of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns) for of in found]
        return max((max(of.st_mtime, of.st_ctime) for of in found), default=0.0), states

    def wake(self) -> None:
        self._waker.wake()

    def replaced(self) -> bool:
        # A connection keeps using the files that it has opened.
        before, self._seen = self._seen, self._there()
        return self._seen != before

    def _there(self) -> list[tuple[int, int] | None]:
        return [_identity(file) for file in self._files]

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._waker.close()
