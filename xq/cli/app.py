"""The commands, as a table. Nothing is imported here that --help does not need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from shlex import quote
from typing import Annotated, Any

import typer

from xq.cli import options as o
from xq.cli import queues as q
from xq.cli import tasks as t
from xq.cli import watch, work
from xq.cli.output import Answer
from xq.cli.targets import all_of, connected, public
from xq.cli.tubes import tubes
from xq.core.errors import Error
from xq.database.process import name_program

ADAPTERS = "xq.commands"  # the entry point group by which adapters add commands: functions that take the app

app = typer.Typer(
    name="xq",
    no_args_is_help=True,
    suggest_commands=False,  # the command with the nearest name may destroy
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def adapted(do: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for Typer. If `do` takes a queue, the function takes TARGET in its place, and --json."""
    first, *own = inspect.signature(do, eval_str=True).parameters.values()
    if first.name != "queue":
        return do

    def run(target: o.Target, json: o.Json = False, **given: Any) -> None:
        with connected(target) as queue:
            queue.parts.store.target = quote(public(target))
            do(queue, **given).print(json)

    def run_all(targets: o.Targets, json: o.Json = False) -> None:
        several(do, targets).print(json)

    run = run_all if do in SEVERAL else run  # type: ignore[assignment]
    target, json, *_ = inspect.signature(run, eval_str=True).parameters.values()
    parameters = [target, *own, json]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__, run.__doc__ = do.__name__.removesuffix("_"), do.__doc__
    return run


SEVERAL = (q.check, watch.doctor)  # the commands that take many targets


def several(do: Callable[..., Answer], targets: Sequence[str]) -> Answer:
    """Return one answer for all queues of some targets, with the worst exit code; of one queue, its own answer."""
    found: list[tuple[str, Answer]] = []
    for target in targets:
        try:
            for queue in (queues := all_of(target)):
                named = public(target) + f"#{queue.name}" * (len(queues) > 1)
                with connected(queue):
                    queue.parts.store.target = quote(named)
                    found.append((named, do(queue)))
        except Error as error:
            if len(targets) == 1:
                raise
            found.append((public(target), Answer(None, [], f"it cannot be looked at: {error}", 1)))
    if len(found) == 1:
        return found[0][1]
    lines = []
    for named, answer in found:
        words = answer.words or "nothing is wrong" * (not answer.lines)
        lines += [f"{named}: {words}".rstrip(), *(f"  {line}".replace("\n", "\n  ") for line in answer.lines or ())]
    kinds = [("error", each.words) if each.content is None else ("found", each.content) for _, each in found]
    told = [{"target": named, name: content} for (named, _), (name, content) in zip(found, kinds, strict=True)]
    return Answer(told, lines, "", max(answer.code for _, answer in found))


PANELS: dict[str, list[Any]] = {
    "Tasks": [t.put, t.peek, t.list_, t.failures, t.history, t.steps, t.signal_, t.dig, *t.MOVES, t.act],
    "Queues": [q.stats, q.upgrade, tubes, q.sessions, q.schedules, q.schedule, q.pause, q.resume, q.limit, q.sweep]
    + [q.recount, q.reset, q.truncate, q.copy, q.install, q.uninstall, q.check, q.ddl],
    "Monitoring": [watch.top, watch.tail, q.health, watch.why, watch.doctor, work.serve, work.metrics],
    "Workers": [work.worker],
}


def _version(wanted: bool) -> None:
    if wanted:
        from xq import __version__

        print(f"xq {__version__}")
        raise typer.Exit


@app.callback()
def xq(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Tables that are queues: put tasks, look at them, move them, and run their workers."""
    name_program(f"xq {context.invoked_subcommand}")


for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(adapted(command))
for point in entry_points(group=ADAPTERS):
    point.load()(app)
