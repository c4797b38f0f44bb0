"""Does the public API still work for programs of the last release? `make lint` runs it.

The last release is the last tag v* before this commit. What breaks programs must be named in CHANGELOG.md, under
Removed or Changed above the heading of that release.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import griffe
from names import BARE, INSIDE, ROOT, find, package, shown


def last_release() -> str:
    """Return the last tag v* before this commit, or ""."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def breaks(release: str) -> Iterator[griffe.Breakage]:
    """Yield what the public names of a release had, and what has changed since."""
    before = griffe.load_git("xq", ref=release, repo=ROOT, allow_inspection=False)
    public = tuple(find(name).canonical_path for name in shown()) + ("xq.operators.methods.Operators", "xq.core.errors")
    for each in griffe.find_breaking_changes(before, package()):
        inside = INSIDE.get(each.obj.parent.name if each.obj.parent else "", ())
        path = each.obj.canonical_path
        if path.startswith(public) and each.obj.name not in inside and not path.startswith(tuple(BARE)):
            yield each


def changed_since(release: str) -> str:
    """Return what CHANGELOG.md says was removed and changed since a release."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newer = re.split(rf"^## {re.escape(release.removeprefix('v'))}\b", text, flags=re.MULTILINE)[0]
    return "".join(part for part in newer.split("### ") if part.startswith(("Removed", "Changed")))


def main() -> int:
    release = last_release()
    if not release:
        print("no release yet: nothing to compare the public names with")
        return 0
    told = changed_since(release)
    silent = [each for each in breaks(release) if not re.search(rf"\b{re.escape(each.obj.name)}\b", told)]
    for each in silent:
        print(re.sub(r"\x1b\[\d+m", "", each.explain(griffe.ExplanationStyle.ONE_LINE)))
    if silent:
        print(f"This breaks programs written for {release}: name it in CHANGELOG.md, or undo it.")
    return int(bool(silent))


if __name__ == "__main__":
    sys.exit(main())
