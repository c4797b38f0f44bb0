"""Liveness locks for the processes on one SQLite file.

The operating system drops a record lock (fcntl) when the process that has it ends, in any way.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID
from weakref import WeakValueDictionary

from xq.core import time
from xq.core.errors import ConfigurationError
from xq.core.kinds import Row
from xq.sql.liveness_locks import LivenessLocks

YOUNG = 0.5  # seconds in which processes move their locks to a new lock file; until then a missing lock proves nothing


class FileLocks(LivenessLocks):
    """Each session is one byte in a lock file beside the database. The session's processes lock it together."""

    skew = 0.0  # all processes are on one machine
    intact = True

    # One for the process: on systems without OFD locks, closing any descriptor for the file drops all its locks.
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
        """Return this process's locks for a database file."""
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
        """Try once to lock a session's byte, and return whether that succeeded."""
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
        if is_new:  # another file may be one that the folder's owner has put there
            os.fchmod(self._descriptor, mode)
            if os.geteuid() == 0:  # as SQLite does for app.db-wal, so that the database's user may write it
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
        """Return the sessions that no process has locked; none if the file cannot be read."""
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
    def reset(cls) -> None:
        """Forget in a forked child the locks, which belong to its parent. The descriptors are shared."""
        for locks in list(cls._of_path.values()):
            locks._close()
        cls._of_path = WeakValueDictionary()
        cls._finding = threading.Lock()


os.register_at_fork(after_in_child=FileLocks.reset)


def _set_lock(descriptor: int, kind: int, byte: int) -> None:
    """Lock or unlock one byte in a file. Raises OSError if another process has locked it."""
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


def identity(file: str | int) -> tuple[int, int] | None:
    """Return what identifies the file at a path or descriptor (device, inode); None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _same_file(descriptor: int, path: str) -> bool:
    return identity(path) == identity(descriptor) is not None
