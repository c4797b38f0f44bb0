"""The commands, by name. Nothing is imported here that --help does not need."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from xq.cli import acts, advice, metrics, queues, serve, tasks, tubes, watch, work
from xq.sessions.process import name_program

ADAPTERS = "xq.commands"  # the group of entry points by which adapters add commands: functions of the app

app = typer.Typer(
    name="xq",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

GROUPS = {
    "Tasks": tasks.COMMANDS | acts.COMMANDS,
    "Queues": queues.COMMANDS,
    "Looking on": watch.COMMANDS | advice.COMMANDS | serve.COMMANDS | metrics.COMMANDS,
    "Workers": work.COMMANDS,
}


def _version(wanted: bool) -> None:
    if wanted:
        from xq import __version__

        print(f"xq {__version__}")
        raise typer.Exit


@app.callback()
def xq(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tables that are queues: put tasks, look at them, move them, and run their workers."""
    name_program(f"xq {context.invoked_subcommand}")


for panel, commands in GROUPS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
app.command("tubes", rich_help_panel="Queues")(tubes.tubes)
for point in entry_points(group=ADAPTERS):
    point.load()(app)
