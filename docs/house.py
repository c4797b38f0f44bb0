"""The lines of each folder of the product beside its budget in pyproject.toml: exits with 1 where one has more.

    python docs/house.py

Lines are those of .py, .pyi and .sql files, with blank ones. A budget is lowered with each deletion, and
raised only by what another one gives up: what moves between folders.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = (".py", ".pyi", ".sql")


def main() -> int:
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["house"]
    lines = Counter[str]()
    for top in ("xq", "tests"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in KINDS and not (top == "tests" and path.suffix == ".sql"):
                lines[_folder(path.relative_to(ROOT), budgets)] += len(path.read_text().splitlines())
    for folder, most in budgets.items():
        print(f"{folder:<22} {lines[folder]:>7,} of {most:>7,}{'  TOO MANY' * (lines[folder] > most)}")
    return int(any(lines[folder] > most for folder, most in budgets.items()))


def _folder(path: Path, budgets: dict[str, int]) -> str:
    """Return the folder with a budget that a file belongs to: the deepest one."""
    return next(str(folder) for folder in path.parents if str(folder) in budgets)


if __name__ == "__main__":
    sys.exit(main())
