"""Describe this process to operators: its host, its pid, and its program without arguments."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache

from xq.core.tokens import HOST, PROGRAM

ENDING = ", ending"  # the end of the program of a worker process that takes nothing more

_program: str | None = None  # the name that `name_program` gave


def name_program(program: str) -> None:
    """Set the program that new sessions record, for example "xq worker"."""
    global _program
    _program = program


def this_process() -> dict[str, str | int]:
    """Return the host, the pid and the program of this process, as the row of a session has them."""
    return {"host": _host(), "pid": os.getpid(), "program": _plain(_program or _name_of_main(), PROGRAM)}


@cache
def _host() -> str:
    return _plain(socket.gethostname(), HOST)


def _name_of_main() -> str:
    """Return the base name of the file that runs, or "-m module". Never an argument: it may be a password."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name != "__main__":  # as that of a folder or of a zip file is
        return f"-m {spec.name.removesuffix('.__main__')}"
    first = os.path.basename(sys.argv[0]) if sys.argv else ""
    return first if first not in ("", "-", "-c") else "python"


def process_name(host: str, pid: int, program: str) -> str:
    """Return "pid 4711 on host web-3 (xq worker)"."""
    return f"pid {pid} on host {host} ({program})"


def _plain(text: str, most: int) -> str:
    """Return a text that each database can store, and a terminal can show."""
    shown = text.encode("ascii", "backslashreplace").decode("ascii")
    return "".join(each if each.isprintable() else "?" for each in shown)[:most]
