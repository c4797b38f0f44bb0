"""The command for the tubes of a database."""

from __future__ import annotations

import json as parser
from collections.abc import Callable
from typing import Annotated, Any

import typer

from xq.cli.options import Json, Yes
from xq.cli.output import Failure, ask, document, say, shown, table

Moves = Callable[[Any, list[str]], Any]


def _data(text: str) -> Any:
    try:
        return parser.loads(text)
    except ValueError:
        return text


def _id(given: list[str]) -> Any:
    return _data(given[0])


# By command: what it is called with, what it does, and whether it asks first.
ON_A_TUBE: dict[str, tuple[str, Moves, bool]] = {
    "put": ("DATA", lambda tube, given: tube.put(_data(given[0])), False),
    "peek": ("ID", lambda tube, given: tube.peek(_id(given)), False),
    "release": ("ID", lambda tube, given: tube.release(_id(given)), True),
    "bury": ("ID", lambda tube, given: tube.bury(_id(given)), False),
    "kick": ("[COUNT]", lambda tube, given: {"kicked": tube.kick(_data(given[0]) if given else 1)}, False),
    "delete": ("ID", lambda tube, given: tube.delete(_id(given)), True),
    "statistics": ("", lambda tube, given: tube.statistics(), False),
    "truncate": ("", lambda tube, given: {"deleted": tube.truncate()}, True),
    "drop": ("", lambda tube, given: {"dropped": tube.drop()}, True),
}


def tubes(
    url: Annotated[str, typer.Argument(metavar="URL", help="the database, as sqlite:///app.db")],
    command: Annotated[str, typer.Argument(help=f"list, create, {', '.join(ON_A_TUBE)}")] = "list",
    tube: Annotated[str | None, typer.Argument(metavar="[TUBE]")] = None,
    given: Annotated[list[str] | None, typer.Argument(metavar="[...]", help="as the command takes it")] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """List the tubes of a database, or run a command on one: xq tubes URL put mail '{"to": "a@example.org"}'."""
    from xq import Tubes
    from xq.adapters.peewee.tables import database_errors
    from xq.cli.targets import errors_end_the_program

    with errors_end_the_program(), database_errors():
        found = Tubes(url)
        if command == "list":
            _list(found, json)
        elif command == "create":
            if tube is None or not given:
                raise typer.BadParameter("create takes a tube and its type: fifo, fifottl, utube, utubettl, limfifottl")
            found.create_tube(tube, given[0], **_options(given[1:]))
            document({"created": tube, "type": given[0]}) if json else say(f"the tube {tube} is created")
        else:
            _on_a_tube(found, command, tube, given or [], yes, json)


def _options(texts: list[str]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs):
        raise typer.BadParameter("an option of create is name=value, as capacity=100")
    return {name: _data(value) for name, _, value in pairs}


def _list(found: Any, json: bool) -> None:
    told = {name: found.tube[name].statistics()["tasks"] | {"type": found.tube[name].type} for name in found.tube}
    if json:
        document(told)
    else:
        columns = ["type", "total", "ready", "taken", "buried", "delayed", "done"]
        table(["tube", *columns], [[name, *(numbers.get(each) for each in columns)] for name, numbers in told.items()])


def _on_a_tube(found: Any, command: str, name: str | None, given: list[str], yes: bool, json: bool) -> None:
    if command not in ON_A_TUBE:
        raise typer.BadParameter(f"there is no {command!r}: there are list, create, {', '.join(ON_A_TUBE)}")
    wanted, moves, asks = ON_A_TUBE[command]
    if name is None or len(given) > 1 or (wanted and not wanted.startswith("[") and not given):
        raise typer.BadParameter(f"it is called as: xq tubes URL {command} TUBE {wanted}".rstrip())
    if name not in found.tube:
        raise Failure(f"there is no tube {name!r}: there are {', '.join(found.tube) or 'none'}")
    if asks:
        ask(f"{command.capitalize()} {' '.join([*given, 'of'] if given else ['all of'])} the tube {name}?", yes)
    told = moves(found.tube[name], given)
    told = told._asdict() if hasattr(told, "_asdict") else told
    if json or command == "statistics":
        document(told)
    elif isinstance(told, dict):
        print(" ".join(f"{field}={shown(value)}" for field, value in told.items()))
    else:
        print(shown(told))
