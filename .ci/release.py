"""Build what a release uploads: `make release URL=https://code.example.org/xq`.

On a package index the links of README.md lead nowhere, as they are relative to the checkout. So this builds from a copy
of HEAD, whose README has absolute links to URL, and whose metadata names URL. The wheel is built from the sdist.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?![a-z]+:|#|/)(?P<path>[^)\s]+)\)")


def absolute(text: str, url: str, version: str) -> str:
    """Return a document whose links and pictures lead to a version of the files at a URL."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({url}/{kind}/{version}/{found['path']})"

    return RELATIVE.sub(link, text)


def urls(url: str, version: str) -> str:
    """Return the section of pyproject.toml that names where things are."""
    lines = {
        "Source": url,
        "Documentation": f"{url}/blob/{version}/docs/index.md",
        "Changelog": f"{url}/blob/{version}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in lines.items())


def build(url: str, into: Path) -> None:
    """Write the sdist and the wheel of HEAD into a folder."""
    (version,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "xq/__init__.py").read_text(), re.M)
    with tempfile.TemporaryDirectory(prefix="xq-release-") as folder:
        copy = Path(folder)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        readme, project = copy / "README.md", copy / "pyproject.toml"
        readme.write_text(absolute(readme.read_text(), url, f"v{version}"))
        project.write_text(project.read_text() + urls(url, f"v{version}"))
        subprocess.run([sys.executable, "-m", "build", "--outdir", into, folder], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    if len(sys.argv) != 2 or not re.match(r"https://[^/]+/.*[^/]$", sys.argv[1]):
        raise SystemExit("Say where the repository is: make release URL=https://code.example.org/xq")
    into = ROOT / "dist"
    build(sys.argv[1], into)
    print("\n".join(str(path.relative_to(ROOT)) for path in sorted(into.iterdir())))


if __name__ == "__main__":
    main()
