"""The command line: `xq`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exits with 0, 1 (an error, or something that is not there) or 2 (wrong use)."""
    try:
        from xq.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "click", "rich"):
            raise
        sys.exit(f"xq: the command line needs {error.name}: pip install 'xq-tables[cli]'")
    from xq.cli.output import Failure

    try:
        app(prog_name="xq")
    except Failure as failure:
        print(f"xq: {failure}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of the output has seen enough
        sys.stderr.close()
        sys.exit(0)
