"""A clock of the machine that is wrong, for one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += AHEAD;
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""

needs_another_clock = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("cc"), reason="needs cc, and Linux"
)


def another_clock(folder: Path, ahead: str) -> Path:
    """What LD_PRELOAD names for a process whose clock is so many seconds ahead; said in C, and asked each time."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", f"-DAHEAD=({ahead})", "-o", library, source, "-ldl"], check=True)
    return library
