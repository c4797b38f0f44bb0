"""Print the lines of each folder of the product, and of the tests: make house.

Lines are those of .py, .pyi and .sql files, with blank ones. A folder's own number leaves out the folders below it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = (".py", ".pyi", ".sql")


def main() -> None:
    for top in ("xq", "tests"):
        lines = Counter[Path]()
        for path in (ROOT / top).rglob("*"):
            if path.suffix in KINDS:
                lines[path.parent.relative_to(ROOT)] += len(path.read_text().splitlines())
        for folder in sorted(lines):
            print(f"{folder!s:<40} {lines[folder]:>7,}")
        print(f"{top + ', all':<40} {lines.total():>7,}\n")


if __name__ == "__main__":
    main()
