"""The command line: `xq`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exits with 1 for an error, and with 2 for wrong use; docs/cli.md has all codes."""
    try:
        from xq.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "click", "rich"):
            raise
        sys.exit(f"xq: the command line needs {error.name}: pip install '.[cli]' in the checkout of xq")
    from xq.core.errors import Error

    try:
        app(prog_name="xq")
    except Error as error:
        print("xq:", *str(error).split(), file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of the output has seen enough
        sys.stderr.close()
        sys.exit(0)
