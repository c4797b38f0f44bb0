"""The keys that are pressed on a terminal, one at a time, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
KEY = re.compile(r"\x1b\[[A-D]|.", re.DOTALL)


@contextmanager
def keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits so many seconds for a key, and returns it; None if none is pressed."""
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield lambda seconds: select.select([], [], [], seconds) and None
        return
    before, typed = termios.tcgetattr(descriptor), deque[str]()

    def pressed(seconds: float) -> str | None:
        if not typed and select.select([descriptor], [], [], seconds)[0]:
            typed.extend(KEY.findall(os.read(descriptor, 1024).decode(errors="replace")))
        return ARROWS.get(typed[0], typed.popleft()) if typed else None

    tty.setcbreak(descriptor)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
