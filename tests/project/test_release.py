"""What a release uploads, and what building leaves behind."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
URL = "https://code.example.org/xq"


FROM_GIT = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="it is built from a git checkout: this is none")


@FROM_GIT
def test_pip_leaves_no_build_folder_in_a_checkout_from_which_it_would_install_removed_files(tmp_path):
    checkout, wheels = tmp_path / "checkout", tmp_path / "wheels"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, checkout], check=True)
    assert len([*wheels.glob("*.whl")]) == 1
    assert not (checkout / "build").exists()


@FROM_GIT
def test_the_wheel_shows_a_readme_whose_links_lead_somewhere(tmp_path):
    runpy.run_path(str(ROOT / ".ci" / "release.py"))["build"](URL, tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert len([*tmp_path.glob("*.tar.gz")]) == 1
    with ZipFile(wheel) as files:
        (metadata,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        found = message_from_bytes(files.read(metadata))
    links = re.findall(r"\]\(([^)\s]+)\)", str(found.get_payload()))
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert f"Source, {URL}" in found.get_all("Project-URL", [])
