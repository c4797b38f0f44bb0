"""Build in a temporary folder: setuptools installs again what an earlier build has left in build/, also removed files.

Everything else is in pyproject.toml.
"""

import tempfile

from setuptools import setup

folder = tempfile.TemporaryDirectory(prefix="xq-build-")  # removed when the process ends
setup(options={"build": {"build_base": folder.name}})
