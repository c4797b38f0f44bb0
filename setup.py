"""Builds in a temporary folder. setuptools would install again what an earlier build left in build/, also removed files.

Everything else is in pyproject.toml.
"""

import tempfile

from setuptools import setup

folder = tempfile.TemporaryDirectory(prefix="xq-build-")  # removed when the process ends
setup(options={"build": {"build_base": folder.name}})
