"""The lines of each folder of the product beside its budget in pyproject.toml: exits with 1 where one has more.

    python docs/house.py             compares
    python docs/house.py --shrink    and lowers the slack of each folder that has become smaller

Lines are those of .py, .pyi and .sql files, with blank ones. A row is [budget, slack]: a folder has as many lines as
both together, or fewer. The budget is where the folder goes, and the slack only shrinks: nothing here writes a larger
one. A budget is raised only by what another one gives up: what moves between folders.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = (".py", ".pyi", ".sql")
ROW = re.compile(r'^"(?P<folder>\S+)" = \[(?P<budget>\d+), (?P<slack>\d+)\]', re.MULTILINE)  # of [tool.house]


def main() -> int:
    project = ROOT / "pyproject.toml"
    text = project.read_text()
    rows: dict[str, tuple[int, int]] = tomllib.loads(text)["tool"]["house"]
    lines = Counter[str]()
    for top in ("xq", "tests"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in KINDS and not (top == "tests" and path.suffix == ".sql"):
                lines[_folder(path.relative_to(ROOT), rows)] += len(path.read_text().splitlines())
    for folder, (budget, slack) in rows.items():
        much = "  TOO MANY" * (lines[folder] > budget + slack)
        print(f"{folder:<31} {lines[folder]:>7,} of {budget:>7,} + {slack:>6,}{much}")

    def shrunk(row: re.Match[str]) -> str:
        needed = max(0, lines[row["folder"]] - int(row["budget"]))
        return f'"{row["folder"]}" = [{row["budget"]}, {min(needed, int(row["slack"]))}]'

    if "--shrink" in sys.argv:
        project.write_text(ROW.sub(shrunk, text))
    return int(any(lines[folder] > budget + slack for folder, (budget, slack) in rows.items()))


def _folder(path: Path, rows: Collection[str]) -> str:
    """Return the folder with a budget that a file belongs to: the deepest one."""
    return next(str(folder) for folder in path.parents if str(folder) in rows)


if __name__ == "__main__":
    sys.exit(main())
