"""The arguments and options that commands share. A command with `queue` as its first parameter has TARGET instead."""

from __future__ import annotations

import getpass
from contextlib import suppress
from typing import Annotated, Any

from typer import Argument, Option


def flag(*names: str, help: str) -> Any:
    """Return an option without a value, whose help has no <bool>."""
    return Option(*names, metavar="", help=help)


def _or_the_user(actor: str | None) -> str | None:
    """Return who acts: as given, or the system's user; None if that has no name."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser() if actor is None else actor
    return None


TARGET = "module:Model, seen from the working directory; or a queue of a database, as sqlite:///app.db#orders"
Target = Annotated[str, Argument(metavar="TARGET", help=TARGET)]
Targets = Annotated[list[str], Argument(metavar="TARGET...", help=TARGET)]
Key = Annotated[str, Argument(metavar="KEY", help="the key of a task; one of several parts is a JSON array")]
AnyKey = Annotated[str | None, Argument(metavar="[KEY]", help="the key of one task")]
Json = Annotated[bool, flag("--json", help="Print one JSON document.")]
Yes = Annotated[bool, flag("--yes", "-y", help="Do not ask.")]
OneTube = Annotated[str | None, Option("--tube", "-t", help="One tube only.")]
OneGroup = Annotated[str | None, Option("--group", help="One group only.")]
Reason = Annotated[str | None, Option(help="Why, for the history.")]
Actor = Annotated[str | None, Option(help="Who, for the history; else the user of the system.", callback=_or_the_user)]
Wanted = Annotated[str, Argument(metavar="[FILTER]", help="as in 'state:buried error:Timeout age>1h'")]
Many = Annotated[int, Option("-n", min=1, max=10_000, help="At most this many.")]
First = Annotated[int, Option("-n", min=0, help="Begin with this many of the last transitions.")]
Oldest = Annotated[int | None, Option("-n", min=1, help="This many, the oldest first.")]
Fresh = Annotated[bool, flag("--fresh", help="With attempts that begin at 0: of a dig or restart.")]
Every = Annotated[bool, flag("--all", help="All of them.")]
After = Annotated[str | None, Option(metavar="CURSOR", help="Go on behind the page before.")]
Before = Annotated[int | None, Option(metavar="ID", help="Those before this transition.")]
Priority = Annotated[str, Option(metavar="NUMBER", help="Of a reprioritise: the tasks' new priority.")]
Delay = Annotated[float | None, Option(help="Seconds until it is ready.")]
Ttl = Annotated[float | None, Option(help="Seconds until it is dropped.")]
Ttr = Annotated[float | None, Option(help="Seconds that a worker has for it.")]
Once = Annotated[bool, flag("--once", help="Look once, and end.")]
Pause = Annotated[float, Option("--every", min=0.1, help="Seconds between two looks.")]
Online = Annotated[bool, flag("--online", help="Beside writers: none waits for longer than a second.")]
Plan = Annotated[bool, flag("--plan", help="Print the steps and their locks, and change nothing.")]
Downgrade = Annotated[bool, flag("--downgrade", help="Also if another definition has replaced this one since.")]
DropHistory = Annotated[bool, flag("--drop-history", help="Drop the history with its rows, if the queue has none.")]
Uninstall = Annotated[bool, flag("--uninstall", help="The SQL that uninstall runs.")]
Views = Annotated[bool, flag("--views", help="Also two views on the history, for readers without xq.")]
KeepColumns = Annotated[bool, flag("--keep-columns", help="Leave the columns of xq's own.")]
Url = Annotated[str, Argument(metavar="URL", help="the database, as sqlite:///app.db")]
