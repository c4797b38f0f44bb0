"""Run the tests of `make test-all` again and again beside a busy loop on each core: is one red by chance?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

TIERS = ("--tier", "test", "--tier", "rest", "--tier", "more")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *TIERS)


@contextmanager
def busy() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def red(what: str, times: int, *arguments: str) -> int:
    """Run these tests so often. Return how many runs were red."""
    found = 0
    for number in range(1, times + 1):
        begun = time.monotonic()
        ran = subprocess.run([*PYTEST, *arguments], capture_output=True, text=True)
        found += ran.returncode != 0
        lines = ran.stdout.splitlines()
        print(f"{what} {number} of {times}: {lines[-1] if lines else ran.stderr}, {time.monotonic() - begun:.0f} s")
        print(*(f"  {line}" for line in lines if line.startswith(("FAILED", "ERROR"))), sep="\n", end="", flush=True)
        if ran.returncode != 0:
            print(ran.stdout[-20_000:], flush=True)
    return found


def main() -> int:
    with busy():
        found = red("guarantees", 50, "tests/guarantees") + red("all", 5)
    print(f"{found} runs were red")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
