"""What the numbers were measured on, in one line. It names no host."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path


def describe(folder: Path, databases: str) -> str:
    """The machine, its file system under `folder`, and what runs on it, `databases` among that."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    hardware = f"{_processor()}, {cores} cores, {memory:.0f} GiB, files on {_file_system(folder)}"
    software = f"{_system()}, Python {platform.python_version()}, {databases}"
    return f"{hardware}; {software}, Peewee {version('peewee')}"


def load() -> str:
    """What else keeps the machine busy: the load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str:
    name = platform.system()
    with suppress(OSError):
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{name}, {platform.system()} {platform.release().partition('-')[0]}"


def _file_system(folder: Path) -> str:
    found = ("", "an unknown file system")
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mounted, kind, *_ = line.split()
            if folder.resolve().is_relative_to(mounted) and len(mounted) >= len(found[0]):
                found = (mounted, kind)
    return found[1]
