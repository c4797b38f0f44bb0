"""The arguments and options that commands share."""

from __future__ import annotations

import getpass
from contextlib import suppress
from typing import Annotated

import typer

from xq.cli.targets import queue

# What the shell completes. A line that is being typed has an error more often than not: then nothing is completed.


def _states(context: typer.Context, incomplete: str) -> list[str]:
    with suppress(BaseException), queue(_target_of(context)) as found:
        return [state for state in found.machine.states if state.startswith(incomplete.upper())]
    return []


def _tubes(context: typer.Context, incomplete: str) -> list[str]:
    with suppress(BaseException), queue(_target_of(context)) as found:
        known = {*found.stats().tube, *(tube for tube in found.paused() if tube is not None)}
        return sorted(tube for tube in known if tube.startswith(incomplete))
    return []


def _target_of(context: typer.Context) -> str:
    """Return the target of a line that is being typed: the first word that looks like one."""
    return next((word for word in context.args if ":" in word), "")


TARGET = "module:Model, seen from the working directory; or a queue of a database, as sqlite:///app.db#orders"
Target = Annotated[str, typer.Argument(metavar="TARGET", help=TARGET)]
Key = Annotated[str, typer.Argument(metavar="KEY", help="the key of a task; one of several parts is a JSON array")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
State = Annotated[str | None, typer.Option("--state", "-s", help="A state, by its letter.", autocompletion=_states)]
Tube = Annotated[str | None, typer.Option("--tube", "-t", help="One tube only.", autocompletion=_tubes)]
Reason = Annotated[str | None, typer.Option(help="Why, for the history.")]
Actor = Annotated[str | None, typer.Option(help="Who, for the history; else the user of the system.")]
Wanted = Annotated[str, typer.Argument(metavar="[FILTER]", help="as in 'state:buried error:Timeout age>1h'")]
Many = Annotated[int, typer.Option("-n", min=1, help="At most this many.")]


def actor_of(actor: str | None) -> str | None:
    """Return who acts: as given, or the user of the system; None if that has no name."""
    if actor is not None:
        return actor
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return None
