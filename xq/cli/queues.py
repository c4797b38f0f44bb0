"""Commands for a queue as a whole: its numbers, its pauses, and its installation."""

from __future__ import annotations

import json as parser
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from functools import partial
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from xq.cli import options as o
from xq.cli.output import Answer, Verbatim, ask, moment, say, shown, spent
from xq.cli.targets import Queue, all_of, connected, public, queue_named
from xq.core.errors import Error
from xq.database.callers import begun

Change = Annotated[Literal["run", "pause", "resume"], Argument(metavar="run|pause|resume")]
Name = Annotated[str, Argument(metavar="NAME", help="The name of the schedule.")]
WORDS = 20  # status words that upgrade shows
HEALTH = {"healthy": 0, "error": 1, "unknown": 3, "late": 3, "failing": 4, "unreachable": 5}  # health's exit codes


def stats(target: o.Target, json: o.Json = False) -> None:
    """Show how many tasks are in each state, and how often each transition was made.

    A database URL with several queues shows a line for each.
    """
    told, words = [], []
    for queue in all_of(target):
        with connected(queue):
            told.append(numbers(queue))
            words.append(queue.parts.tasks.wording.spelled)
    (one, *more), rows = told, []
    for each, names in zip(told, words, strict=True):
        named = {names.get(state, state): n for state, n in each["counts"].items()}
        rows.append({"queue": each["queue"], **named, "note": held_up(each)})
    tables = [counted(one, "state", "counts", words[0]), "", counted(one, "transition", "transition", {})]
    (Answer(told, [rows]) if more else Answer(one, tables, held_up(one))).print(json)


def numbers(queue: Queue) -> dict[str, Any]:
    """Return a queue's numbers as a document."""
    now = queue.snapshot()
    paused = [pause.tube if pause.group is None else {"group": pause.group} for pause in now.pauses]
    return {"queue": queue.name, **now.stats.model_dump(), "paused": paused, "room": now.room}


def counted(told: dict[str, Any], head: str, what: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each state, or transition, with numbers for the queue and its tubes."""
    parts = {"tasks": told, **told["tube"]}
    return [
        {head: f"{each} {names.get(each, '')}".rstrip()} | {part: of[what].get(each, 0) for part, of in parts.items()}
        for each in told[what]
    ]


def held_up(told: dict[str, Any]) -> str:
    """Return that a queue is paused, or full, for a line."""
    names = [f"the group {each['group']}" if isinstance(each, dict) else each for each in told["paused"]]
    paused = ", ".join("the queue" if name is None else name for name in names)
    return "; ".join([f"paused: {paused}"] * bool(paused) + ["full: no task can be put"] * (told["room"] == 0))


def health(
    targets: o.Targets,
    max_age: Annotated[float, Option(min=0, help="Seconds for which a task may be ready.")] = 600,
    max_buried: Annotated[int, Option(min=0, help="Buried tasks that are no failure.")] = 0,
    timeout: Annotated[float, Option(min=0, help="Seconds within which a database answers.")] = 10,
    json: o.Json = False,
) -> None:
    """Print a line for each queue: healthy, unknown, late, failing or unreachable. Exits with 0, 3, 3, 4 or 5."""

    def look(target: str) -> list[tuple[str, str, str]]:
        found = []
        try:
            for queue in (queues := all_of(target, keep=True)):
                with connected(queue):
                    name = f"#{queue.name}" if len(queues) > 1 else ""
                    found.append((target + name, *queue.health(max_age=max_age, max_buried=max_buried)))
        except Error as error:
            # A wrong name or definition has its own class, what the database says has none.
            found.append((target, "unreachable" if type(error) is Error else "error", str(error)))
        return found

    rows, looks = [], [begun(partial(look, each)) for each in targets]
    wait(looks, timeout)
    for target, looked in zip(targets, looks, strict=True):
        silent = [(target, "unreachable", f"does not answer within {timeout:g} s")]
        rows += looked.result() if looked.done() else silent
    told = [{"target": public(of), "state": state, "sentence": " ".join(words.split())} for of, state, words in rows]
    lines = [shown("{state} {target} {sentence}".format_map(each)) for each in told]
    Answer(told, lines, code=max(HEALTH[each["state"]] for each in told)).print(json)


def sessions(queue: Queue) -> Answer:
    """List the database's open sessions, each one's process, and how many tasks it has taken from this queue."""
    found, now = queue.processes(), queue.parts.doctor.moment()
    times = [{"since": moment(each.since), "oldest": moment(each.oldest)} for each in found]
    told = [{"process": each.name} | each._asdict() | times for each, times in zip(found, times, strict=True)]
    rows = [
        {"session": each.session, "process": each.name, "since": spent(now - each.since, " ago"), "tasks": each.tasks}
        | {"oldest": spent(each.oldest and now - each.oldest, " ago"), "gone": each.gone}
        for each in found
    ]
    return Answer(told, [rows])


def schedules(queue: Queue) -> Answer:
    """List a queue's schedules: what each puts, when it fires, in which time zone, and who has paused it."""
    names = ("name", "spec", "tz", "last", "next", "task", "paused", "since", "actor", "reason", "overdue")
    told = [{name: getattr(each, name) for name in names} for each in queue.schedules()]
    rows = [each | ({"spec": f"every {spent(each['spec'])}"} if type(each["spec"]) is float else {}) for each in told]
    return Answer(told, [rows])


def schedule(queue: Queue, what: Change, name: Name, reason: o.Reason = None, actor: o.Actor = None) -> Answer:
    """Put a schedule's task now, pause its firings, or resume them."""
    if not getattr(queue, f"{what}_schedule")(name, actor=actor, reason=reason):
        raise Error(f"{queue.name} has no schedule {name}: {queue.parts.store.command('schedules')} lists them")
    return Answer({what: name}, [], f"{what}: the schedule {name}")


def pause(
    queue: Queue, tube: o.OneTube = None, reason: o.Reason = None, actor: o.Actor = None, group: o.OneGroup = None
) -> Answer:
    """Stop all takes from a queue, or from one tube or group, until resume."""
    return _paused(queue, "pause", tube, group, actor=actor, reason=reason)


def resume(
    queue: Queue, tube: o.OneTube = None, reason: o.Reason = None, actor: o.Actor = None, group: o.OneGroup = None
) -> Answer:
    """End a pause."""
    return _paused(queue, "resume", tube, group, actor=actor, reason=reason)


def _paused(queue: Queue, event: str, tube: str | None, group: str | None, **by: str | None) -> Answer:
    if tube is not None and group is not None:
        raise Error("--tube or --group, not both")
    getattr(queue, event)(tube, **by) if group is None else getattr(queue.group(group), event)(**by)
    told = numbers(queue)
    return Answer({"paused": told["paused"]}, [], held_up(told) or "nothing is paused")


def limit(
    queue: Queue,
    feature: Annotated[str | None, Argument(metavar="[utube|rate]", help="the feature; without one all limits")] = None,
    to: Annotated[str | None, Argument(metavar="[N|RATE]", help="as 10 or 1000/m; none: the default again")] = None,
    value: Annotated[str | None, Option(help="For this utube or tube only.")] = None,
    reason: o.Reason = None,
    actor: o.Actor = None,
) -> Answer:
    """List the limits of utube and rate, or set one for all processes."""
    from xq.engine.limits import limit_in_text

    if feature is not None and to is not None:
        queue.set_limit(feature, limit_in_text(to), value, actor=actor, reason=reason)
    elif value is not None:
        command = queue.parts.store.command("limit")
        raise typer.BadParameter(f"--value goes with a feature and a limit: {command} utube 10 --value acme")
    limits = [each for each in queue.limits() if feature in (None, each.feature)]
    told = [each._asdict() | {"since": moment(each.since)} for each in limits]
    texts = ("limit", "default")
    rows = [each | {name: parser.dumps(each[name]) for name in texts if isinstance(each[name], dict)} for each in told]
    return Answer(told, [rows], "" if told else "it has no feature with limits: utube and rate have some")


def sweep(queue: Queue) -> Answer:
    """Move the tasks that are due, and fire schedules, as workers do."""
    n = queue.sweep()
    return Answer({"moved": n}, [], f"{n:,} tasks moved")


def recount(queue: Queue) -> Answer:
    """Set the counters to what the table holds."""
    queue.recount()
    return Answer({"recounted": queue.name}, [], f"{queue.name} is counted anew")


def reset(queue: Queue, yes: o.Yes = False) -> Answer:
    """Set the transition counters to zero. The state counters stay."""
    ask(f"Set the counters of the transitions of {queue.name} to zero?", yes)
    queue.reset()
    return Answer({"reset": queue.name}, [], f"the transitions of {queue.name} are counted from now on")


def truncate(queue: Queue, yes: o.Yes = False) -> Answer:
    """Delete all tasks, in whatever state they are."""
    table = queue.parts.store.table
    ask(f"Delete all {queue.count():,} tasks of {queue.name}, and their rows of the table {table}?", yes)
    n = queue.truncate()
    return Answer({"deleted": n}, [], f"{n:,} tasks deleted")


def install(
    queue: Queue,
    online: o.Online = False,
    plan: o.Plan = False,
    downgrade: o.Downgrade = False,
    drop_history: o.DropHistory = False,
    views: o.Views = False,
) -> Answer:
    """Create what the queue lacks in the database."""
    chosen = {"online": online, "plan": plan, "downgrade": downgrade, "drop_history": drop_history, "views": views}
    if steps := queue.install(**chosen, forward=True):
        return Answer({"plan": steps}, [steps])
    return Answer({"installed": queue.name}, [], f"{queue.name} is installed")


def uninstall(queue: Queue, keep_columns: o.KeepColumns = False, yes: o.Yes = False) -> Answer:
    """Remove what install has created, with all counters, the history, and xq's own columns."""
    columns = [] if keep_columns else [field.column for field in queue.parts.tasks.table.own.values()]
    states = f", and drop its columns {' and '.join(columns)} with what they hold" if columns else ""
    ask(f"Remove the counters, the history and all else that makes {queue.name} a queue{states}?", yes)
    queue.uninstall(keep_columns=keep_columns)
    return Answer({"uninstalled": queue.name}, [], f"{queue.name} is a plain table again")


def check(queue: Queue) -> Answer:
    """Print what is missing or not counted. It reads the whole table. Exits with 1 if anything is."""
    told = queue.check()
    says_how = f"{len(told)} to mend: {queue.parts.store.command('doctor')} says how"
    notes = "\n".join(f"note: {each.what}" for each in queue.parts.doctor.of_the_connection())
    return Answer(told, told, says_how if told else notes, int(bool(told)))


def ddl(queue: Queue, uninstall: o.Uninstall = False, views: o.Views = False) -> Answer:
    """Print the SQL that install runs, to keep the text in your own migration."""
    return Answer({"ddl": (sql := queue.ddl(uninstall=uninstall, views=views))}, [Verbatim(sql.removesuffix("\n"))])


def copy(
    source: Annotated[str, Argument(metavar="SOURCE", help=o.TARGET)],
    to: Annotated[str, Argument(metavar="TO", help="a target, or the URL of a database that has the same table")],
    timeout: Annotated[float, Option(min=0, help="Seconds for which taken tasks may go on.")] = 60,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Move a queue to another database, and leave it paused here. A second call completes one that was interrupted."""
    from xq.adapters.peewee.plain import twin_of

    with connected(source) as queue:
        url, _, table = to.partition("#")
        other = twin_of(url, table, queue) if "://" in to else queue_named(to)
        ask(f"Pause {queue.name}, and move it to {public(to)}?", yes)
        with connected(other):
            moved = queue.pipeline.copy_to(other.pipeline, public(to), timeout)
    did = f"{moved.tasks:,} tasks, {moved.history:,} transitions and {moved.schedules} schedules are at {public(to)}"
    Answer(moved._asdict(), [], did).print(json)


def upgrade(
    url: o.Url,
    name: Annotated[str, Argument(metavar="TABLE", help="a table that is there")],
    status: Annotated[str, Option(help="The column of the state.")] = "status",
    field: Annotated[list[str] | None, Option(help="A column for a role, as runat=run_at; may be repeated.")] = None,
    features: Annotated[str, Option(help="Names, some with a value: keep,ttr=60,unique=WRT.")] = "",
    statuses: Annotated[str, Option(help="Your words for states: R=new,T=working,D=done.")] = "",
    delete_done: Annotated[bool, o.flag("--delete-done", help="An ack deletes the row of a table with rows.")] = False,
    online: o.Online = False,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Make a plain table a queue: print how to use it in Python, and install it after asking."""
    from xq.adapters.peewee.plain import in_python, new_columns, upgraded, words

    columns, on = {"status": status, **pairs(field or ())}, pairs(features.split(","), alone=True)
    there, own = words(url, name, columns["status"]), pairs(statuses.split(","), read=str)
    if there:
        found = [f"{word!r} {n:,}" for word, n in there.items()]
        say(f"the column {columns['status']} has {', '.join(found[:WORDS])}{', ...' if len(found) > WORDS else ''}")
    queue = upgraded(url, name, columns, on, own)
    if there and queue.machine.ack_deletes and not delete_done:
        raise typer.BadParameter(
            f"the table {name} has rows, and an ack deletes the row of its task: say what you want: --features keep "
            "leaves it, --features zombie=3600 for an hour, --delete-done deletes it"
        )
    pwiz, call = in_python(url, name, queue, columns)
    Answer({"pwiz": pwiz, "call": call, "words": there}, [pwiz, call]).print(json)
    if not own and there.keys() - {*queue.machine.states}:
        option, argument = (", ".join(map(form.format, queue.machine.states)) for form in ("{}=...", "{!r}: ..."))
        say(f"to make tasks of rows with such words: --statuses '{option}' (statuses={{{argument}}} in Python)")
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
