"""The command line: `xq`."""

from __future__ import annotations

import os
import sys

EXTRAS = {"prometheus_client": "metrics", **dict.fromkeys(("uvicorn", "starlette", "jinja2", "markupsafe"), "serve")}
EXTRAS |= dict.fromkeys(("typer", "click", "rich"), "cli")  # by module: the extra that has it


def main(words: list[str] | None = None, program: str = "xq") -> None:
    """Run the command line; with `words` in place of this process's arguments.

    Exits with 1 for an error, and with 2 for wrong use; docs/cli.md has all codes.
    """
    from xq.core.errors import Error

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # an encoding may lack characters
    try:
        try:
            from xq.cli.app import app

            app(words, program)
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in EXTRAS:
            raise
        sys.exit(f"xq: {name} is not installed: pip install '.[{EXTRAS[name]}]' in the checkout of xq")
    except Error as error:
        sys.exit(" ".join(["xq:", *str(error).split()]))
    except (SystemExit, OSError) as error:  # OSError: the output's reader has seen enough, or the disk is full
        is_seen = BrokenPipeError in (type(error), type(error.__context__))
        if isinstance(error, SystemExit) and not is_seen:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest at its end, and fails again
        sys.exit(0 if is_seen else f"xq: {error}")
