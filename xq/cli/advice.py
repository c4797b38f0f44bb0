"""Commands that explain: why a task is not running, and what is wrong or slow."""

from __future__ import annotations

from collections.abc import Callable

import typer

from xq.cli.options import Json, Key, Target
from xq.cli.output import document, say
from xq.cli.targets import key_of, queue


def why(target: Target, key: Key, json: Json = False) -> None:
    """Print why a task is not running."""
    with queue(target) as found:
        told = found.why(key_of(found, key))
    if json:
        document(told)
    for line in () if json else told:
        print(line)


def doctor(target: Target, json: Json = False) -> None:
    """Print what is wrong or slow, and what to do. It reads the whole table. Exits with 1 if anything is."""
    with queue(target) as found:
        findings = found.doctor()
    if json:
        document([finding._asdict() for finding in findings])
    for finding in () if json else findings:
        print(f"{finding.what}\n  {finding.do}")
    if not findings:
        say("nothing is wrong")
    if any(not finding.do.startswith("optional") for finding in findings):
        raise typer.Exit(1)


COMMANDS: dict[str, Callable[..., None]] = {"why": why, "doctor": doctor}
