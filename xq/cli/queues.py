"""Commands for a queue as a whole: its numbers, its pauses, and its installation."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xq.cli.options import Actor, Json, Reason, Target, Tube, Yes, actor_of
from xq.cli.output import ask, document, say, seconds, table
from xq.cli.targets import connected, errors_end_the_program, queue
from xq.core.words import NAMES

if TYPE_CHECKING:
    from xq.engine.inspection import Process
    from xq.handle import Queue


def stats(target: Target, json: Json = False) -> None:
    """Show how many tasks are in each state, and how often each transition was made.

    The URL of a database with several queues shows a line for each.
    """
    if "://" in target and "#" not in target:
        with errors_end_the_program():
            queues, left_out = _queues_of(target)
        if len(queues) > 1:
            _all_stats(queues, left_out, json)
            return
    with queue(target) as found:
        numbers, paused = found.stats(), found.paused()
    told = {**numbers.model_dump(exclude_defaults=True), "paused": paused}
    if json:
        document(told)
        return
    tubes = list(numbers.tube)
    each = [numbers, *numbers.tube.values()]
    table(
        ["state", "", "tasks", *tubes],
        [[state, NAMES.get(state, ""), *(one.counts[state] for one in each)] for state in numbers.counts],
    )
    print()
    table(
        ["transition", "times", *tubes],
        [[name, n, *(one.transition.get(name, 0) for one in each[1:])] for name, n in numbers.transition.items()],
    )
    for tube in paused:
        say(f"{found.name if tube is None else f'the tube {tube}'} is paused")


def _queues_of(url: str) -> tuple[list[Queue[Any]], dict[str, str]]:
    from xq.adapters.peewee.tables import queues_of

    _, queues, left_out = queues_of(url)
    return queues, left_out


def _all_stats(queues: list[Queue[Any]], left_out: dict[str, str], json: bool) -> None:
    """Print a line for each queue: the numbers of its states, and what is paused."""
    listed = []
    for each in queues:
        with connected(each) as found:
            listed.append((found.name, found.stats().counts, found.paused()))
    if json:
        document([{"queue": name, "counts": counts, "paused": paused} for name, counts, paused in listed])
    else:
        states = list(dict.fromkeys(state for _, counts, _ in listed for state in counts))
        last = ["paused"] if any(paused for *_, paused in listed) else []
        rows = [
            [
                name,
                *(counts.get(state) for state in states),
                ", ".join("the queue" if tube is None else tube for tube in paused),
            ]
            for name, counts, paused in listed
        ]
        columns = ["queue", *(NAMES.get(state, state) for state in states), *last]
        table(columns, [row[: len(columns)] for row in rows])
    for name, why in left_out.items():
        say(f"{name} is left out: {why}")


def sessions(target: Target, json: Json = False) -> None:
    """List the open sessions of the database, the process of each, and how many tasks of this queue it has taken."""
    with queue(target) as found:
        listed = found.processes()
    if json:
        document([_session(each) for each in listed])
    else:
        now = time.time()
        table(
            ["session", "process", "open for", "taken", "the oldest for"],
            [
                [
                    each.session,
                    f"{each.name if each.pid is not None else ''}{' gone' if each.gone else ''}".strip(),
                    seconds(now - each.since),
                    each.tasks,
                    None if each.oldest is None else seconds(now - each.oldest),
                ]
                for each in listed
            ],
        )


def _session(each: Process) -> dict[str, Any]:
    oldest = None if each.oldest is None else _moment(each.oldest)
    told = {"session": each.session, "since": _moment(each.since), "taken": each.tasks, "gone": each.gone}
    return told | {"host": each.host, "pid": each.pid, "program": each.program, "oldest": oldest}


def _moment(since: float) -> datetime:
    return datetime.fromtimestamp(since, UTC)


def _did(told: dict[str, Any], words: str, json: bool) -> None:
    """Print what a command has done, as a document or in words."""
    document(told) if json else say(words)


def _of(found: Queue[Any], tube: str | None) -> str:
    return found.name if tube is None else f"the tube {tube} of {found.name}"


def pause(target: Target, tube: Tube = None, reason: Reason = None, actor: Actor = None, json: Json = False) -> None:
    """Stop all takes from a queue, or from one tube, until resume."""
    with queue(target) as found:
        found.pause(tube, actor=actor_of(actor), reason=reason)
        _did({"paused": found.paused()}, f"{_of(found, tube)} is paused", json)


def resume(target: Target, tube: Tube = None, reason: Reason = None, actor: Actor = None, json: Json = False) -> None:
    """End a pause."""
    with queue(target) as found:
        found.resume(tube, actor=actor_of(actor), reason=reason)
        _did({"paused": found.paused()}, f"{_of(found, tube)} is resumed", json)


def schedules(target: Target, json: Json = False) -> None:
    """List the schedules of a queue: what each puts, and when it fires next."""
    with queue(target) as found:
        listed = found.schedules()
    told = [{"name": each.name, "spec": each.spec, "task": each.task, "next": each.next} for each in listed]
    document(told) if json else table(
        ["name", "fires", "next", "task"], [[each.name, each.spec, each.next, each.task] for each in listed]
    )


def sweep(target: Target, json: Json = False) -> None:
    """Move the tasks that are due now, and fire due schedules. Workers do that by themselves."""
    with queue(target) as found:
        moved = found.sweep()
    document({"moved": moved}) if json else say(f"{moved:,} tasks moved")


def install(target: Target, json: Json = False) -> None:
    """Create what the queue needs in the database. Does nothing if it is there."""
    with queue(target) as found:
        found.install()
        _did({"installed": found.name}, f"{found.name} is installed", json)


def check(
    target: Target,
    advise: Annotated[bool, typer.Option(help="Say also what would be cheaper.")] = False,
    json: Json = False,
) -> None:
    """Print what is missing or not counted. It reads the whole table. Exits with 1 if anything is."""
    with queue(target) as found:
        told = found.check(advise=advise)
    if json:
        document(told)
    for line in () if json else told:
        print(line)
    if wrong := [line for line in told if not line.startswith("advice:")]:
        advice = "install() creates what the queue lacks; recount() counts anew"
        say(f"{len(wrong)} to mend: if the table is missing, {found.adapter.store.advice}; {advice}")
        raise typer.Exit(1)


def ddl(target: Target, json: Json = False) -> None:
    """Print the SQL that install runs, for your own migrations."""
    with queue(target) as found:
        document({"ddl": found.ddl()}) if json else print(found.ddl(), end="")


def recount(target: Target, json: Json = False) -> None:
    """Set the counters to what the table holds."""
    with queue(target) as found:
        found.recount()
        _did({"recounted": found.name}, f"{found.name} is counted anew", json)


def reset(target: Target, yes: Yes = False, json: Json = False) -> None:
    """Set the counters of transitions to zero. Those of the states stay."""
    with queue(target) as found:
        ask(f"Set the counters of the transitions of {found.name} to zero?", yes)
        found.reset()
        _did({"reset": found.name}, f"the transitions of {found.name} are counted from now on", json)


def truncate(target: Target, yes: Yes = False, json: Json = False) -> None:
    """Delete all tasks."""
    with queue(target) as found:
        ask(f"Delete all {found.count():,} tasks of {found.name}?", yes)
        n = found.truncate()
    document({"deleted": n}) if json else say(f"{n:,} tasks deleted")


def uninstall(target: Target, yes: Yes = False, json: Json = False) -> None:
    """Remove what install has created, with all counters and the history. The table and its rows stay."""
    with queue(target) as found:
        ask(f"Remove the counters, the history and all else that makes {found.name} a queue?", yes)
        found.uninstall()
        _did({"uninstalled": found.name}, f"{found.name} is a plain table again", json)


def upgrade(
    url: Annotated[str, typer.Argument(metavar="URL", help="the database, as sqlite:///app.db")],
    name: Annotated[str, typer.Argument(metavar="TABLE", help="a table that is there")],
    status: Annotated[str, typer.Option(help="The column of the state.")] = "status",
    fields: Annotated[
        list[str] | None, typer.Option("--field", help="A column for a role, as runat=run_at; may be repeated.")
    ] = None,
    features: Annotated[str, typer.Option(help="Names, some with a value: keep,ttr=60,unique=WRT.")] = "",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make a plain table a queue: print its model in Python, and install it after asking."""
    from xq.adapters.peewee.tables import add_columns, new_columns, rows, source, upgraded
    from xq.adapters.tubes import without_password

    pairs = [text.partition("=") for text in fields or ()]
    if wrong := [role for role, equals, column in pairs if not (role and equals and column)]:
        raise typer.BadParameter(f"--field is a role and a column, as runat=run_at, not {wrong[0]}")
    roles = {"status": status, **{role: column for role, _, column in pairs}}
    with errors_end_the_program():
        found = upgraded(url, name, roles, _features(features))
        program = source(url, name, found)
        document({"model": program}) if json else print(program)
        added = " and ".join(field.column_name for field in new_columns(url, found))
        ask(f"Install the queue {name} in this database{f', and add the column {added}' if added else ''}?", yes)
        add_columns(url, found)
        found.install()
        others = rows(found) - found.count()
    say(f"{name} is a queue: xq stats '{without_password(url)}#{name}'")
    if others:
        say(f"{others:,} of its rows have another status, and are no tasks")


def _features(text: str) -> dict[str, object]:
    """Return features as `upgrade` takes them, from their names with or without a value."""

    def value(given: str) -> object:
        for kind in (int, float):
            try:
                return kind(given)
            except ValueError:
                pass
        return given

    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    return {name: value(given) if equals else True for name, equals, given in pairs}


COMMANDS: dict[str, Callable[..., None]] = {
    "stats": stats,
    "sessions": sessions,
    "pause": pause,
    "resume": resume,
    "schedules": schedules,
    "sweep": sweep,
    "upgrade": upgrade,
    "install": install,
    "check": check,
    "ddl": ddl,
    "recount": recount,
    "reset": reset,
    "truncate": truncate,
    "uninstall": uninstall,
}
