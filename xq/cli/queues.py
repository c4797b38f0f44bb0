"""Commands for a queue as a whole: its numbers, its pauses, and its installation."""

from __future__ import annotations

import json as parser
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xq.cli.output import Answer, ask, moment, say, shown
from xq.cli.targets import Actor, Json, Queue, Reason, Target, Targets, Tube, Yes, all_of, connected, public
from xq.core.errors import Error
from xq.core.words import NAMES

MOST = 20  # words of a column that upgrade shows
HEALTH = {"healthy": 0, "error": 1, "late": 3, "failing": 4, "unreachable": 5}  # the exit codes of health
OF_PROCESS = ("host", "pid", "program")  # that of a session's `process`

# numbers


def stats(target: Target, json: Json = False) -> None:
    """Show how many tasks are in each state, and how often each transition was made.

    The URL of a database with several queues shows a line for each.
    """
    seen = []
    for queue in all_of(target):
        with connected(queue):
            seen.append((queue.name, queue.stats(), queue.paused()))
    if len(seen) > 1:
        told = [{"queue": name, "counts": numbers.counts, "paused": paused} for name, numbers, paused in seen]
        rows = [
            {"queue": name, **{NAMES.get(state, state): n for state, n in numbers.counts.items()}}
            | {"paused": pauses(paused)}
            for name, numbers, paused in seen
        ]
        return Answer(told, [rows]).print(json)
    ((_, numbers, paused),) = seen
    parts = {"tasks": numbers, **numbers.tube}
    states = [
        {"state": f"{state} {NAMES.get(state, '')}"} | {part: of.counts[state] for part, of in parts.items()}
        for state in numbers.counts
    ]
    moves = [
        {"transition": move} | {part: of.transition.get(move, 0) for part, of in parts.items()}
        for move in numbers.transition
    ]
    content = {**numbers.model_dump(exclude_defaults=True), "paused": paused}
    words = f"paused: {pauses(paused)}" if paused else ""
    return Answer(content, [states, "", moves], words).print(json)


def pauses(paused: list[str | None]) -> str:
    """Return what is paused, for a line."""
    return ", ".join("the queue" if tube is None else tube for tube in paused)


def health(
    targets: Targets,
    max_age: Annotated[float, Option(min=0, help="Seconds for which a task may be ready.")] = 600,
    max_buried: Annotated[int, Option(min=0, help="Buried tasks that are no failure.")] = 0,
    json: Json = False,
) -> None:
    """Print a line for each queue: healthy, late, failing or unreachable. Exits with 0, 3, 4 or 5, for the worst."""
    told = []
    for target in targets:
        try:
            found = all_of(target)
            for queue in found:
                with connected(queue):
                    state, sentence = queue.health(max_age=max_age, max_buried=max_buried)
                of = f"#{queue.name}" if len(found) > 1 else ""
                told.append({"target": public(target) + of, "state": state, "sentence": sentence})
        except Error as error:
            # A wrong name or definition has a class of its own, what the database says has none.
            state, sentence = "unreachable" if type(error) is Error else "error", " ".join(str(error).split())
            told.append({"target": public(target), "state": state, "sentence": sentence})
    lines = [" ".join(shown(each[name]) for name in ("state", "target", "sentence")) for each in told]
    Answer(told, lines, code=max(HEALTH[each["state"]] for each in told)).print(json)


def sessions(queue: Queue) -> Answer:
    """List the open sessions of the database, the process of each, and how many tasks of this queue it has taken."""
    told: list[dict[str, Any]] = [
        {"session": each.session, "process": each.name, "host": each.host, "pid": each.pid, "program": each.program}
        | {"since": moment(each.since), "taken": each.tasks, "oldest": moment(each.oldest), "gone": each.gone}
        for each in queue.processes()
    ]
    return Answer(told, [[{name: each[name] for name in each if name not in OF_PROCESS} for each in told]])


def schedules(queue: Queue) -> Answer:
    """List the schedules of a queue: what each puts, when it has fired last, and when it fires next."""
    names = ("name", "spec", "last", "next", "task", "paused", "overdue")
    return Answer([{name: getattr(each, name) for name in names} for each in queue.schedules()])


def schedule(
    queue: Queue,
    what: Annotated[str, Argument(metavar="run|pause|resume")],
    name: Annotated[str, Argument(help="The name of the schedule.")],
    reason: Reason = None,
    actor: Actor = None,
) -> Answer:
    """Put the task of a schedule now, pause its firings, or resume them."""
    if what not in ("run", "pause", "resume"):
        raise typer.BadParameter(f"{what} is none of run, pause, resume")
    if not getattr(queue, f"{what}_schedule")(name, actor=actor, reason=reason):
        raise Error(f"{queue.name} has no schedule {name}: xq schedules lists them")
    return Answer({what: name}, [], f"{what}: the schedule {name}")


def pause(queue: Queue, tube: Tube = None, reason: Reason = None, actor: Actor = None) -> Answer:
    """Stop all takes from a queue, or from one tube, until resume."""
    queue.pause(tube, actor=actor, reason=reason)
    return _paused(queue)


def resume(queue: Queue, tube: Tube = None, reason: Reason = None, actor: Actor = None) -> Answer:
    """End a pause."""
    queue.resume(tube, actor=actor, reason=reason)
    return _paused(queue)


def _paused(queue: Queue) -> Answer:
    paused = queue.paused()
    return Answer({"paused": paused}, [], f"paused: {pauses(paused) or 'nothing'}")


# the installation, and what it counts


def sweep(queue: Queue) -> Answer:
    """Move the tasks that are due, and fire schedules, as workers do."""
    n = queue.sweep()
    return Answer({"moved": n}, [], f"{n:,} tasks moved")


def recount(queue: Queue) -> Answer:
    """Set the counters to what the table holds."""
    queue.recount()
    return Answer({"recounted": queue.name}, [], f"{queue.name} is counted anew")


def reset(queue: Queue, yes: Yes = False) -> Answer:
    """Set the counters of transitions to zero. Those of the states stay."""
    ask(f"Set the counters of the transitions of {queue.name} to zero?", yes)
    queue.reset()
    return Answer({"reset": queue.name}, [], f"the transitions of {queue.name} are counted from now on")


def truncate(queue: Queue, yes: Yes = False) -> Answer:
    """Delete all tasks, in whatever state they are."""
    table = queue.adapter.store.table
    ask(f"Delete all {queue.count():,} tasks of {queue.name}, and their rows of the table {table}?", yes)
    n = queue.truncate()
    return Answer({"deleted": n}, [], f"{n:,} tasks deleted")


OnlineOption = Annotated[bool, Option("--online", help="Beside writers: none waits for longer than a second.")]


def install(
    queue: Queue,
    online: OnlineOption = False,
    plan: Annotated[bool, Option("--plan", help="Print the steps and their locks, and change nothing.")] = False,
) -> Answer:
    """Create what the queue lacks in the database."""
    if steps := queue.install(online=online, plan=plan):
        return Answer({"plan": steps}, [steps])
    return Answer({"installed": queue.name}, [], f"{queue.name} is installed")


def uninstall(
    queue: Queue,
    keep_columns: Annotated[bool, Option("--keep-columns", help="Leave the columns of xq's own.")] = False,
    yes: Yes = False,
) -> Answer:
    """Remove what install has created, with all counters, the history, and the columns of xq's own."""
    columns = [] if keep_columns else [field.column for field in queue.adapter.tasks.table.own.values()]
    states = f", and drop its columns {' and '.join(columns)} with what they hold" if columns else ""
    ask(f"Remove the counters, the history and all else that makes {queue.name} a queue{states}?", yes)
    queue.uninstall(keep_columns=keep_columns)
    return Answer({"uninstalled": queue.name}, [], f"{queue.name} is a plain table again")


def check(queue: Queue) -> Answer:
    """Print what is missing or not counted. It reads the whole table. Exits with 1 if anything is."""
    told = queue.check()
    advice = f"if the table is missing, {queue.adapter.store.advice}; install() creates what the queue lacks"
    return Answer(told, told, f"{len(told)} to mend: {advice}; recount() counts anew" if told else "", int(bool(told)))


def ddl(queue: Queue) -> Answer:
    """Print the SQL that install runs, for your own migrations."""
    return Answer({"ddl": (sql := queue.ddl())}, [sql.removesuffix("\n")])


def upgrade(
    url: Annotated[str, Argument(metavar="URL", help="the database, as sqlite:///app.db")],
    name: Annotated[str, Argument(metavar="TABLE", help="a table that is there")],
    status: Annotated[str, Option(help="The column of the state.")] = "status",
    field: Annotated[list[str] | None, Option(help="A column for a role, as runat=run_at; may be repeated.")] = None,
    features: Annotated[str, Option(help="Names, some with a value: keep,ttr=60,unique=WRT.")] = "",
    statuses: Annotated[str, Option(help="Your words for states: R=new,T=working,D=done.")] = "",
    delete_done: Annotated[bool, Option("--delete-done", help="An ack deletes the row of a table with rows.")] = False,
    online: OnlineOption = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make a plain table a queue: print its model in Python, and install it after asking."""
    from xq.adapters.peewee.tables import new_columns, source, upgraded, words

    columns, on = {"status": status, **pairs(field or ())}, pairs(features.split(","), alone=True)
    there, own = words(url, name, columns["status"]), pairs(statuses.split(","), read=str)
    if there:
        found = [f"{word!r} {n:,}" for word, n in there.items()]
        say(f"the column {columns['status']} has {', '.join(found[:MOST])}{', ...' if len(found) > MOST else ''}")
    queue = upgraded(url, name, columns, on, own)
    if there and queue.machine.ack_deletes and not delete_done:
        raise typer.BadParameter(
            f"the table {name} has rows, and an ack deletes the row of its task: say what you want: --features keep "
            "leaves it, --features zombie=3600 for an hour, --delete-done deletes it"
        )
    program = source(url, name, queue)
    Answer({"model": program, "words": there}, [program]).print(json)
    if not own and there.keys() - {*queue.machine.states}:
        option, argument = (", ".join(map(form.format, queue.machine.states)) for form in ("{}=...", "{!r}: ..."))
        say(f"to make tasks of rows with such words: --statuses '{option}' (statuses={{{argument}}} in the model)")
    added = " and ".join(new_columns(queue))
    does = "deletes" if queue.machine.ack_deletes else "keeps"
    ask(f"An ack {does} the row. Install the queue {name}{f', and add {added}' if added else ''}?", yes)
    with connected(queue):
        queue.install(online=online)
    say(f"{name} is a queue{f', with the new columns {added}' if added else ''}: xq stats '{public(url)}#{name}'")


def data(text: str) -> Any:
    """Return a value that is written in JSON, else the text."""
    try:
        return parser.loads(text)
    except ValueError:
        return text


def pairs(texts: Iterable[str], alone: object = None, read: Callable[[str], Any] = data) -> dict[str, Any]:
    """Return NAME=VALUE as a dictionary, and NAME as one with the value `alone`, unless that is None."""
    parts = (text.strip().partition("=") for text in texts if text.strip())
    found = {name: read(value) if equals else alone for name, equals, value in parts}
    if wrong := [name for name, value in found.items() if not name or value in (None, "")]:
        raise typer.BadParameter(f"it is called with NAME=VALUE, not with {wrong[0]}")
    return found
