"""Commands for tasks: put them, look at them, and move them: one by one, or all that a filter shows, in chunks."""

from __future__ import annotations

import inspect
import json as parser
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from xq.cli import options as o
from xq.cli.output import Answer, Extra, Text, ask, block, moment, shown, spent
from xq.cli.targets import Queue, key_of
from xq.core.errors import BadType, BadValue, Error
from xq.core.words import counted
from xq.operators.acts import ACTS, Act

if TYPE_CHECKING:
    from xq.operators.operations import Operation

Document = Annotated[str, Argument(metavar="JSON", help="the task, an object; -: one in each line of stdin")]
Again = Annotated[str | None, Option(metavar="STEP", help="Do this step again, and what was recorded after it.")]
Name = Annotated[str, Argument(metavar="NAME", help="of the signal")]
Value = Annotated[str, Argument(metavar="[JSON]", help="its value, which the worker's function gets")]
Bury = Annotated[bool, o.flag("--bury", help="Bury it instead: its row stays.")]
VALUE = 200  # a value's characters that people see
MANY = 20  # keys that people see


def put(queue: Queue, task: Document, delay: o.Delay = None, ttl: o.Ttl = None, ttr: o.Ttr = None) -> Answer:
    """Put a task, and print its key; from stdin all lines, or none."""
    options: dict[str, Any] = {"delay": delay, "ttl": ttl, "ttr": ttr}
    options = {name: value for name, value in options.items() if value is not None}
    texts = {f"line {at:,}: ": text for at, text in enumerate(sys.stdin, 1)} if task == "-" else {"": task}
    tasks = {where: _object(text, where) for where, text in texts.items() if text.strip() or not where}
    try:
        put = queue.put_many(tasks.values(), **options)
    except (BadValue, BadType) as error:
        with queue.parts.store.atomic():  # which no put survives: the options, then each line alone, to name it
            for where, some in [("", []), *((where, [each]) for where, each in tasks.items())]:
                try:
                    queue.put_many(some, **options)
                except (BadValue, BadType) as found:
                    raise Error(f"{where}{found}") from found
            raise Error(str(error)) from error
    if task == "-":
        return Answer({"put": len(put)}, [], f"{len(put):,} tasks put")
    told = described(queue, put[0])
    return Answer(told, [key_text(told["key"])])


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = parser.loads(text.removeprefix("\ufeff"))  # a Windows file may begin so
    except ValueError as error:
        raise typer.BadParameter(f"{where}a task is a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{where}a task is a JSON object, not {shown(text, 80)}")
    return found


def peek(queue: Queue, key: o.Key) -> Answer:
    """Show one task: each value's first 200 characters, the whole with --json."""
    told = described(queue, queue.peek(key_of(queue, key)))
    traceback = str(told["fields"].get(queue.roles.get("error")) or "").strip().splitlines()[1:]
    return Answer(told, [*block({"state": told["state"], **_cells(queue, told["fields"])}), *map(shown, traceback)])


def list_(queue: Queue, wanted: o.Wanted = "", n: o.Many = 50, after: o.After = None) -> Answer:
    """List the tasks that match a filter: for one state in take order, else the newest first.

    The table has each value's first 200 characters, and --json the whole.
    """
    page = queue.find(wanted, n, after)
    told = [described(queue, *each) for each in zip(page.tasks, page.since, strict=True)]
    words = f"{'' if told else 'none: ' if page.ended else 'none so far: '}looked at {page.looked:,} rows"
    words += _left_out(page.unknown) + ("" if page.ended else f"; there may be more: --after {page.next}")
    content = {"tasks": told, "next": page.next, "looked": page.looked, "ended": page.ended}
    return Answer(content, table(queue, told), "" if told and page.ended and not page.unknown else words)


def _left_out(n: int) -> str:
    return f"; {n:,} have no known age: age:unknown" if n else ""


def failures(queue: Queue, wanted: o.Wanted = "", n: o.Many = 20) -> Answer:
    """Show the tasks that failed, in groups: by their error's class and message, and the function of django.tasks.

    A group's filter selects its tasks: xq list TARGET 'state:B failure:0cb85332120a'.
    """
    groups, now = queue.failures(wanted, n), queue.parts.doctor.moment()
    told = [vars(one) | {"key": _key(one.key), "first": moment(one.first), "last": moment(one.last)} for one in groups]
    rows = [
        {"tasks": counted(one.count, groups.ended)}
        | {"states": " ".join(f"{state}:{counted(n, groups.ended)}" for state, n in one.states.items())}
        | {"function": Text(one.function), "error": Text(one.title)}
        | {"last": spent(one.last and now - one.last, " ago"), "filter": one.filter}
        for one in groups
    ]
    words = f"{'' if groups else 'no task has failed: '}looked at {groups.looked:,} rows, buried tasks first"
    words += "" if groups.ended else "; there are more: a filter, as state:B, selects others"
    content = {"groups": told, "looked": groups.looked, "ended": groups.ended}
    return Answer(content, [rows], "" if groups and groups.ended else words)


def history(queue: Queue, key: o.AnyKey = None, n: o.Many = 1_000, before: o.Before = None) -> Answer:
    """Show a task's last transitions, or all tasks', with the time in each state. Needs the feature history."""
    found = queue.parts.doctor.last(n + 1, one := key_of(queue, key), before)
    if one is not None and not found:
        queue.peek(one)  # raises NotFound
    told = [transition(queue, each) | {"seconds_in_source": each.dur_us and each.dur_us / 1e6} for each in found[-n:]]
    rows = [transition_row(each) | {"after": spent(each["seconds_in_source"])} for each in told]
    return Answer(told, [rows], f"there are earlier ones: --before {told[0]['id']}" if len(found) > n else "")


def steps(queue: Queue, key: o.Key) -> Answer:
    """Show what a task has recorded by the feature steps, its signals, and what it waits for.

    The table has each value's first 200 characters, and --json the whole.
    """
    from xq.features.steps.records import records

    task = queue.peek(key_of(queue, key))
    found, told = records(queue.parts, task), described(queue, task)
    awaits, until = (told["fields"].get(queue.roles.get(role)) for role in ("awaits", "runat"))
    times = [{"at": moment(each.at), "until": moment(each.until)} for each in found]
    made = [each._asdict() | at for each, at in zip(found, times, strict=True)]
    content = {"key": told["key"], "state": told["state"], "awaits": awaits}
    content |= {"until": until if told["state"] == "W" else None, "records": made}
    rows = [
        {"kind": each.kind, "name": Text(each.name), **at, "value": Text(shown(each.text, VALUE))}
        for each, at in zip(found, times, strict=True)
    ]
    return Answer(content, [rows, *[""] * bool(rows), *queue.why(key_of(queue, key))])


def signal_(
    queue: Queue, key: o.Key, name: Name, value: Value = "null", reason: o.Reason = None, actor: o.Actor = None
) -> Answer:
    """Send a task a signal, for which xq.wait_for in its worker's function waits: the first of a name counts."""
    try:
        content = parser.loads(value)
    except ValueError as error:
        example = """'{"by": "ann"}', or '"yes"' for a text"""
        raise typer.BadParameter(f"a signal's value is JSON, as {example}: {error}") from error
    with queue.acting(actor, reason):
        first = queue.signal(one := key_of(queue, key), name, content)
    told = "is the first of its name" if first else "changes nothing: one came before, or its wait has timed out"
    if first and (awaits := queue.parts.tasks.in_role(queue.peek(one), "awaits")):
        told += f", and kept: the task waits for another one, {awaits}"
    return Answer({"key": _key(one), "name": name, "first": first}, [f"the signal {name} of task {key} {told}"])


def dig(
    queue: Queue,
    key: o.AnyKey = None,
    n: o.Oldest = None,
    every: o.Every = False,
    fresh: o.Fresh = False,
    again: Again = None,
    reason: o.Reason = None,
    actor: o.Actor = None,
    yes: o.Yes = False,
) -> Answer:
    """Make buried tasks ready again: one by its key, the oldest ones, or --all. Attempts count on, unless --fresh."""
    if sum([key is not None, n is not None, every]) != 1:
        raise typer.BadParameter("say which: a KEY, -n NUMBER or --all")
    if again is not None and key is None:
        raise typer.BadParameter("--again is for one task: give its KEY")
    one = key_of(queue, key)
    if every and sys.stdin.isatty():
        ask(f"dig {queue.stats().counts.get('B', 0):,} tasks of {queue.name} (all)?", yes)
    with queue.acting(actor, reason):
        dug = queue.dig(n=n, fresh=fresh) if key is None else [queue.dig(one, fresh=fresh, again=again)]
        return _moved(queue, dug, "dug")


def _move(act: Act) -> Callable[..., Answer]:
    def move(
        queue: Queue,
        key: o.Key,
        reason: o.Reason = None,
        actor: o.Actor = None,
        yes: o.Yes = False,
        bury: Bury = False,
        priority: o.Priority = "",
    ) -> Answer:
        from xq.operators.operations import act_on

        task = key_of(queue, key)
        state = described(queue, queue.peek(task))["state"] if act.risk else None
        if state and act.moves(queue.machine, state):  # else the call refuses
            what = f"task {key} of {queue.name}, which is {state}{_deletes(queue, act, 'its row') * (not bury)}"
            ask(f"{act.name.capitalize()} {what}?", yes)
        options = act.options(priority) | ({"to": "B"} if bury else {})
        with queue.acting(actor, reason):
            return _moved(queue, [act_on(queue, act.name, task, **options)], act.done)

    lacks = {"bury": act.name != "cancel", "priority": not act.option}
    own = [each for name, each in inspect.signature(move, eval_str=True).parameters.items() if not lacks.get(name)]
    move.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    move.__name__, move.__doc__ = act.name, act.help
    return move


MOVES = [_move(act) for act in ACTS.values() if act.name != "dig"]


def _moved(queue: Queue, tasks: Iterable[Any], done: str) -> Answer:
    told = [described(queue, each) for each in tasks]
    keys = ", ".join(key_text(each["key"]) for each in told[:MANY]) or "none"
    return Answer(told, [], f"{done}: {keys}{f' and {len(told) - MANY:,} others' * (len(told) > MANY)}")


def _deletes(queue: Queue, act: Act, rows: str) -> str:
    return f", and delete {rows} of the table {queue.parts.store.table}" if act.destroys else ""


def act(
    queue: Queue,
    event: Annotated[str, Argument(metavar="EVENT", help=", ".join(ACTS))],
    filter: Annotated[str, Argument(metavar="[FILTER]", help="which tasks, as 'state:buried error:Timeout'")] = "",
    every: o.Every = False,
    reason: o.Reason = None,
    actor: o.Actor = None,
    delay: o.Delay = None,
    fresh: o.Fresh = False,
    priority: o.Priority = "",
    chunk: Annotated[int, Option(min=1, max=1000, help="Tasks of one transaction.")] = 500,
    dry_run: Annotated[bool, o.flag("--dry-run", help="Show what would move, and move nothing.")] = False,
    yes: o.Yes = False,
) -> Answer:
    """Dig, release, kill ... all tasks of a filter, in chunks. Ctrl-C ends it after its chunk."""
    if every == bool(filter.strip()):
        raise typer.BadParameter("say which tasks: a FILTER, or --all")
    options = ({} if delay is None else {"delay": delay}) | ({"fresh": True} if fresh else {})
    options |= ACTS[event].options(priority) if event in ACTS else {}
    operation = queue.act(event, filter, actor=actor, reason=reason, chunk=chunk, **options)
    preview = operation.preview
    n = f"{preview.n:,}" if preview.exact else f"at least {preview.n:,}"
    left_out = _left_out(preview.unknown)
    if dry_run:
        told = [described(queue, *each) for each in zip(preview.tasks, preview.since, strict=True)]
        content = {"event": event, "filter": filter, "n": preview.n, "exact": preview.exact, "looked": preview.looked}
        content |= {"tasks": told} | ({"unknown": preview.unknown} if preview.unknown else {})
        return Answer(content, table(queue, told), f"{event} would move {n} tasks{left_out}")
    if ACTS[event].risk or sys.stdin.isatty():
        deletes = _deletes(queue, ACTS[event], "their rows")
        ask(f"{event} {n} tasks of {queue.name} ({filter or 'all'}){deletes}{left_out}?", yes)
    _run(operation, preview.n / chunk if preview.exact else None)
    skipped = f", {operation.skipped:,} skipped" if operation.skipped else ""
    left = "" if operation.state == "done" else "; it was cancelled, and the same command moves the others"
    moved = f"{event}: {operation.done:,} tasks moved{skipped}{left_out}{left}"
    return Answer(operation.as_dict(), [], moved, int(bool(left)))


def _run(operation: Operation[Any], chunks: float | None) -> None:
    """Run an operation, with its progress on a terminal. The first Ctrl-C cancels it, a second one is as ever."""
    from rich.console import Console
    from rich.progress import track

    def cancel(*_: object) -> None:
        operation.cancel()
        signal.signal(signal.SIGINT, before)

    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    before = signal.signal(signal.SIGINT, cancel)
    try:
        for _ in track(operation, operation.event, chunks, console=console, transient=True, disable=hidden):
            pass
    finally:
        signal.signal(signal.SIGINT, before)


def described(queue: Queue, task: Any, since: float | None = None) -> dict[str, Any]:
    """Return a task as a document: its key, its state's letter, since when it is in that state if given, its fields."""
    inner, roles = queue.parts, queue.roles
    fields = dict(inner.tasks.data(task))
    times = {roles.get(role, "") for role in ("runat", "deadline", "finished")}
    for name in times & fields.keys():  # only these are known to be UTC
        at = fields[name]  # a number that is beyond the calendar stays one
        fields[name] = at.replace(tzinfo=at.tzinfo or UTC) if isinstance(at, datetime) else moment(at) or at
    parts = tuple(fields[name] for name in inner.store.key)
    state = inner.definition.state_of(fields[roles["status"]])
    told = {"key": _key(parts if len(parts) > 1 else parts[0]), "state": state}
    return told | ({} if since is None else {"since": moment(since)}) | {"fields": fields}


def _key(key: Any) -> Any:
    """Return an application's key as documents have it: a list if it has several parts."""
    from xq.operators.keys import part_as_text

    return [part_as_text(part) for part in key] if isinstance(key, tuple) else part_as_text(key)


def key_text(key: Any) -> str:
    """Return a document's key as KEY on the command line: one with several parts is a JSON array."""
    return parser.dumps(key, default=str) if isinstance(key, list) else str(key)


def _cells(queue: Queue, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields for people: errors without a traceback, texts up to 200 characters."""
    name = queue.roles.get("error", "")
    error = {name: str(fields[name]).strip().partition("\n")[0]} if fields.get(name) else {}
    whole = (int, float, datetime, type(None))
    return {of: each if isinstance(each, whole) else Text(shown(each, VALUE)) for of, each in (fields | error).items()}


def table(queue: Queue, told: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return tasks as a table: key, state, age, error, attempts, an awaited signal, a taken task's session, and others.

    From xq's own columns it has only the error, the attempts and the signal.
    """
    roles, own, now = queue.roles, queue.parts.tasks.table.own, queue.parts.doctor.moment()
    taken, first = {}, {role: roles[role] for role in ("error", "attempts", "awaits") if role in roles}
    if any(each["state"] == "T" for each in told):
        taken = {key_text(_key(key)): session for key, session, _ in queue.taken()}
    hidden = {*queue.parts.store.key, roles["owner"], *first.values(), *(field.name for field in own.values())}
    rows = []
    for each in told:
        cells, key, since = _cells(queue, each["fields"]), key_text(each["key"]), each.get("since")
        row = {"key": key, "state": each["state"], "age": spent(since and now - since.timestamp())}
        row |= {role: cells.get(name) for role, name in first.items()} | {"session": taken.get(key)}
        without = hidden | ({roles["status"]} if each["state"] else set())
        others = {name: Extra.of(cell) for name, cell in cells.items() if name not in without}
        # A field with such a name has a dot before it.
        rows.append(row | {f".{name}" if name in row else name: cell for name, cell in others.items()})
    return [rows]


def transition(queue: Queue, row: Any) -> dict[str, Any]:
    """Return a history row as a document."""
    names = ("tube", "source", "target", "event", "owner", "attempt", "actor", "reason")
    told = {"id": row.id, "at": moment(row.at_us / 1e6), "key": _key(key_of(queue, row.key))}
    return told | {name: getattr(row, name) for name in names}


def transition_row(told: dict[str, Any]) -> dict[str, Any]:
    """Return a transition for people."""
    row = {"at": told["at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], "key": key_text(told["key"])}
    row |= {"move": f"{told['source']}-{told['target']}"} | {name: told[name] for name in ("event", "tube", "attempt")}
    return row | {"by": Text(": ".join(filter(None, (told["actor"], told["reason"]))))}
