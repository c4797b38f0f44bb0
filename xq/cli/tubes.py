"""The command for a database's tubes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument

from xq.cli import options as o
from xq.cli.output import Answer, ask, block
from xq.cli.queues import data, pairs
from xq.operators.acts import ACTS

# What each tube method is called with.
ON_A_TUBE = {"put": "DATA", "peek": "ID", "release": "ID", "bury": "ID", "kick": "[COUNT]", "delete": "ID"}
ON_A_TUBE |= dict.fromkeys(("statistics", "truncate", "drop"), "")
ACT_OF = {"release": "release", "bury": "bury", "kick": "dig", "delete": "kill"}  # what some are in a queue
ASKS = ("truncate", "drop", *(command for command, act in ACT_OF.items() if ACTS[act].risk))
DONE = {"kick": "kicked", "truncate": "deleted", "drop": "dropped"}


def tubes(
    url: o.Url,
    command: Annotated[str, Argument(help=f"list, create, {', '.join(ON_A_TUBE)}")] = "list",
    tube: Annotated[str, Argument(metavar="[TUBE]")] = "",
    given: Annotated[list[str] | None, Argument(metavar="[...]", help="as the command takes it")] = None,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """List a database's tubes, or run a command on one: xq tubes URL put mail '{"to": "a@example.org"}'."""
    from xq import Tubes
    from xq.adapters.peewee.plain import database_errors

    with database_errors():
        _answer(Tubes(url), command, tube, given or [], yes).print(json)


def _answer(all_tubes: Any, command: str, name: str, given: list[str], yes: bool) -> Answer:
    if command == "list":
        from xq.tubes.tables import TubeRecords

        told = {
            name: {"type": kind} | (all_tubes.tube[name].statistics()["tasks"] if kind in all_tubes.driver else {})
            for name, kind, *_ in TubeRecords(all_tubes.database)
        }
        return Answer(told, [[{"tube": each, **of} for each, of in told.items()]])
    wanted = "TYPE [NAME=VALUE ...]" if command == "create" else ON_A_TUBE.get(command)
    if wanted is None:
        raise typer.BadParameter(f"there is no {command!r}: there are list, create, {', '.join(ON_A_TUBE)}")
    if not name or (not given and wanted[:1] not in ("", "[")) or (command != "create" and len(given) > bool(wanted)):
        raise typer.BadParameter(f"it is called as: xq tubes URL {command} TUBE {wanted}".rstrip())
    if command == "create":
        all_tubes.create_tube(name, given[0], **pairs(given[1:]))
        return Answer({"created": name, "type": given[0]}, [], f"the tube {name} is created")
    tube = all_tubes.tube[name]
    if command in ASKS:
        ask(f"{command.capitalize()} {' '.join([*given, 'of'] if given else ['all of'])} the tube {name}?", yes)
    result = getattr(tube, command)(*map(data, given))
    told = {DONE[command]: result} if command in DONE else result if command == "statistics" else result._asdict()
    return Answer(told, [*block(told)])
