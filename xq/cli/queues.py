"""Commands for a queue as a whole: its numbers, its pauses, and its installation."""

from __future__ import annotations

import json as parser
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xq.cli.output import Answer, ask, moment, say
from xq.cli.targets import Actor, Json, Queue, Reason, Target, Tube, Yes, all_of, connected, public
from xq.core.errors import Error
from xq.core.words import NAMES

MOST = 20  # words of a column that upgrade shows
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
    (_numbers(*seen[0]) if len(seen) == 1 else _lines(seen)).print(json)


def _numbers(name: str, numbers: Any, paused: list[str | None]) -> Answer:
    states = [
        {"state": f"{state} {NAMES.get(state, '')}", "tasks": n}
        | {tube: of.counts[state] for tube, of in numbers.tube.items()}
        for state, n in numbers.counts.items()
    ]
    moves = [
        {"transition": move, "times": n} | {tube: of.transition.get(move, 0) for tube, of in numbers.tube.items()}
        for move, n in numbers.transition.items()
    ]
    words = "\n".join(f"{name if tube is None else f'the tube {tube}'} is paused" for tube in paused)
    return Answer({**numbers.model_dump(exclude_defaults=True), "paused": paused}, [states, "", moves], words)


def _lines(seen: list[tuple[str, Any, list[str | None]]]) -> Answer:
    told = [{"queue": name, "counts": numbers.counts, "paused": paused} for name, numbers, paused in seen]
    rows = [
        {"queue": name}
        | {NAMES.get(state, state): n for state, n in numbers.counts.items()}
        | {"paused": pauses(paused)}
        for name, numbers, paused in seen
    ]
    return Answer(told, [rows])


def pauses(paused: list[str | None]) -> str:
    """Return what is paused, for a line."""
    return ", ".join("the queue" if tube is None else tube for tube in paused)


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
    found = [{name: getattr(each, name) for name in names} for each in queue.schedules()]
    marks = ("paused", "overdue")
    return Answer(found, [[each | {mark: mark if each[mark] else "" for mark in marks} for each in found]])


def schedule(
    queue: Queue,
    what: Annotated[str, Argument(metavar="run|pause|resume")],
    name: Annotated[str, Argument(help="The name of the schedule.")],
    reason: Reason = None,
    actor: Actor = None,
) -> Answer:
    """Put the task of a schedule now, pause its firings, or resume them."""
    if what not in (does := {"run": "has put its task", "pause": "is paused", "resume": "is resumed"}):
        raise typer.BadParameter(f"{what} is none of {', '.join(does)}")
    if not getattr(queue, f"{what}_schedule")(name, actor=actor, reason=reason):
        raise Error(f"{queue.name} has no schedule {name}: xq schedules lists them")
    return Answer({what: name}, [], f"the schedule {name} {does[what]}")


# what a method of the queue does


def _pauses(name: str, done: str, help: str) -> Callable[..., Answer]:
    def call(queue: Queue, tube: Tube = None, reason: Reason = None, actor: Actor = None) -> Answer:
        from xq.operators.filters import quoted

        was = tube in queue.paused()
        getattr(queue, name)(tube, actor=actor, reason=reason)
        of, still = queue.name if tube is None else f"the tube {tube} of {queue.name}", pauses(queue.paused())
        words = f"{of} is {done}" if was or name == "pause" else f"{of} was not paused"
        if name == "resume" and still:
            words += f"; still paused: {still}"
        elif tube is not None and not queue.find(f"tube:{quoted(tube)}", 1).tasks:
            words += "; no task is in it now"
        return Answer({"paused": queue.paused()}, [], words)

    call.__name__, call.__doc__ = name, help
    return call


def _calls(name: str, key: str, words: str, help: str, question: str = "") -> Callable[..., Answer]:
    """Return the command that calls a method of a queue, and asks before if there is a question."""

    def call(queue: Queue) -> Answer:
        result = getattr(queue, name)()
        return Answer({key: queue.name if result is None else result}, [], words.format(n=result, name=queue.name))

    def asked(queue: Queue, yes: Yes = False) -> Answer:
        n = queue.count() if "{n" in question else ""
        ask(question.format(n=n, name=queue.name, table=queue.adapter.store.table), yes)
        return call(queue)

    made = asked if question else call
    made.__name__, made.__doc__ = name, help
    return made


METHODS = [
    _pauses("pause", "paused", "Stop all takes from a queue, or from one tube, until resume."),
    _pauses("resume", "resumed", "End a pause."),
    _calls("sweep", "moved", "{n:,} tasks moved", "Move the tasks that are due, and fire schedules, as workers do."),
    _calls("recount", "recounted", "{name} is counted anew", "Set the counters to what the table holds."),
    _calls(
        "reset",
        "reset",
        "the transitions of {name} are counted from now on",
        "Set the counters of transitions to zero. Those of the states stay.",
        "Set the counters of the transitions of {name} to zero?",
    ),
    _calls(
        "truncate",
        "deleted",
        "{n:,} tasks deleted",
        "Delete all tasks, in whatever state they are.",
        "Delete all {n:,} tasks of {name}, and their rows of the table {table}?",
    ),
]

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

    columns, on = {"status": status, **pairs(field or ())}, pairs(split(features), alone=True)
    there, own = words(url, name, columns["status"]), pairs(split(statuses), read=str)
    if there:
        found = [f"{word!r} {n:,}" for word, n in there.items()]
        say(f"the column {columns['status']} has {', '.join(found[:MOST])}{', ...' if len(found) > MOST else ''}")
    queue = upgraded(url, name, columns, on, own)
    if there and queue.machine.ack_deletes and not delete_done and _keeps(name, yes):
        queue = upgraded(url, name, columns, on | {"keep": True}, own)
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


def _keeps(name: str, yes: bool) -> bool:
    """Ask whether an ack keeps the row. Refuses without a terminal, or with --yes."""
    what = f"the table {name} has rows, and an ack deletes the row of its task"
    if yes or not sys.stdin.isatty():
        remedies = "--features keep leaves it, --features zombie=3600 for an hour, --delete-done deletes it"
        raise typer.BadParameter(f"{what}: say what you want: {remedies}")
    return typer.confirm(f"{what}. Keep it instead, as done (the feature keep)?", default=True, err=True)


def split(text: str) -> Iterable[str]:
    """Return the parts of a list with commas."""
    return filter(None, map(str.strip, text.split(",")))


def data(text: str) -> Any:
    """Return a value that is written in JSON, else the text."""
    try:
        return parser.loads(text)
    except ValueError:
        return text


def pairs(texts: Iterable[str], alone: object = None, read: Callable[[str], Any] = data) -> dict[str, Any]:
    """Return NAME=VALUE as a dictionary, and NAME as one with the value `alone`, unless that is None."""
    found = {name: read(value) if equals else alone for name, equals, value in (text.partition("=") for text in texts)}
    if wrong := [name for name, value in found.items() if not name or value in (None, "")]:
        raise typer.BadParameter(f"it is called with NAME=VALUE, not with {wrong[0]}")
    return found


ON_A_QUEUE: tuple[Callable[..., Answer], ...] = (
    sessions,
    schedules,
    schedule,
    *METHODS,
    install,
    uninstall,
    check,
    ddl,
)
