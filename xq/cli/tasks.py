"""Commands for tasks: put them, look at them, and move them: one by one, or all that a filter shows, in chunks."""

from __future__ import annotations

import json as parser
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from xq.cli.output import Answer, Fields, Text, ask, block, moment, shown
from xq.cli.targets import Actor, AnyKey, Key, Many, Queue, Reason, Wanted, Yes, key_of
from xq.core.errors import BadValue, Error
from xq.core.words import counted, lasting

if TYPE_CHECKING:
    from xq.operators.operations import Operation

MOST = 200  # characters of a value that people see
DESTROY = ("kill", "release")  # what refuses to run without a terminal, unless --yes is given


def put(
    queue: Queue,
    task: Annotated[str, Argument(metavar="JSON", help="the task, an object; -: one in each line of stdin")],
    delay: Annotated[float | None, Option(help="Seconds until it is ready.")] = None,
    ttl: Annotated[float | None, Option(help="Seconds until it is dropped.")] = None,
    ttr: Annotated[float | None, Option(help="Seconds that a worker has for it.")] = None,
) -> Answer:
    """Put a task, and print its key; of the lines of stdin all, or none."""
    given = {"delay": delay, "ttl": ttl, "ttr": ttr}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    texts = (
        {f"line {at:,}: ": text for at, text in enumerate(sys.stdin, 1) if text.strip()} if task == "-" else {"": task}
    )
    tasks = [_object(text, where) for where, text in texts.items()]
    try:
        put = queue.put_many(tasks, **options)
    except BadValue as error:
        raise Error(str(error)) from error
    if task == "-":
        return Answer({"put": len(put)}, [], f"{len(put):,} tasks put")
    told = described(queue, put[0])
    return Answer(told, [key_text(told["key"])])


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = parser.loads(text.removeprefix("\ufeff"))  # a file of Windows may begin so
    except ValueError as error:
        raise typer.BadParameter(f"{where}a task is a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{where}a task is a JSON object, not {shown(text, 80)}")
    return found


# looking


def peek(queue: Queue, key: Key) -> Answer:
    """Show one task: the first 200 characters of each value, the whole with --json."""
    told = described(queue, queue.peek(key_of(queue, key)))
    first, *traceback = str(told["fields"].get(queue.roles.get("error")) or "").strip().splitlines() or [""]
    fields = told["fields"] | ({queue.roles["error"]: first} if traceback else {})
    texts = {name: shown(_cell(queue, name, value)) for name, value in fields.items()}
    return Answer(told, [*block({"state": told["state"], **texts}), *map(shown, traceback)])


def list_(
    queue: Queue,
    wanted: Wanted = "",
    n: Many = 50,
    after: Annotated[str | None, Option(metavar="CURSOR", help="Go on behind the page before.")] = None,
) -> Answer:
    """List the tasks that a filter means: those of one state in the order of takes, else the newest first.

    The table has the first 200 characters of each value, and --json the whole.
    """
    page = queue.find(wanted, n, after)
    told = [described(queue, *each) for each in zip(page.tasks, page.since, strict=True)]
    words = f"{'' if told else 'none: '}looked at {page.looked:,} rows"
    words += "" if page.ended else f"; there may be more: --after {page.next}"
    content = {"tasks": told, "next": page.next, "looked": page.looked, "ended": page.ended}
    return Answer(content, table(queue, told), "" if told and page.ended else words)


def failures(queue: Queue, wanted: Wanted = "", n: Many = 20) -> Answer:
    """Show the tasks that failed, in groups: those with the same class of error and the same message.

    A group's filter selects its tasks: xq list TARGET 'state:B failure:0cb85332120a'.
    """
    groups, now = queue.failures(wanted, n), queue.adapter.inspection.moment()
    told = [
        {**vars(group), "key": _key(group.key), "first": moment(group.first), "last": moment(group.last)}
        for group in groups
    ]
    rows = [
        {
            "tasks": group.count if groups.ended else counted(group.count, False),
            "states": " ".join(f"{state}:{counted(n, groups.ended)}" for state, n in group.states.items()),
            "error": Text(group.title),
            "last": f"{spent(now - group.last)} ago" if group.last else "",
            "filter": group.filter,
        }
        for group in groups
    ]
    words = f"{'' if groups else 'no task has failed: '}looked at {groups.looked:,} rows, buried tasks first"
    words += "" if groups.ended else "; there are more: a filter, as state:B, selects others"
    content = {"groups": told, "looked": groups.looked, "ended": groups.ended}
    return Answer(content, [rows], "" if groups and groups.ended else words)


def history(
    queue: Queue,
    key: AnyKey = None,
    n: Annotated[int, Option("-n", min=1, max=10_000, help="At most this many.")] = 1_000,
    before: Annotated[int | None, Option(metavar="ID", help="Those before this transition.")] = None,
) -> Answer:
    """Show the last transitions of a task, or of all, with the time in each state. Needs the feature history."""
    found = queue.adapter.inspection.last(n + 1, one := key_of(queue, key), before)
    if one is not None and not found:
        queue.peek(one)  # raises NotFound
    told = [transition(queue, each) | {"seconds_in_source": each.dur_us and each.dur_us / 1e6} for each in found[-n:]]
    rows = [
        {"at": exactly(each["at"]), "key": key_text(each["key"])}
        | {name: each[name] for name in ("tube", "source", "target", "event", "attempt")}
        | {"after": spent(each["seconds_in_source"]), "by": Text(by(each))}
        for each in told
    ]
    return Answer(told, [rows], f"there are earlier ones: --before {told[0]['id']}" if len(found) > n else "")


# moving


def dig(
    queue: Queue,
    key: AnyKey = None,
    n: Annotated[int | None, Option("-n", min=1, help="This many, the oldest first.")] = None,
    every: Annotated[bool, Option("--all", help="All buried tasks.")] = False,
    reason: Reason = None,
    actor: Actor = None,
) -> Answer:
    """Make buried tasks ready again: one by its key, or the oldest ones. Their attempts count on."""
    if sum([key is not None, n is not None, every]) != 1:
        raise typer.BadParameter("say which: a KEY, -n NUMBER or --all")
    one = key_of(queue, key)
    with queue.acting(actor, reason):
        return _moved(queue, queue.dig(n=n) if key is None else [queue.dig(one)], "dug")


def _move(name: str, done: str, help: str) -> Callable[..., Answer]:
    """Return the command that moves one task."""

    def move(queue: Queue, key: Key, reason: Reason = None, actor: Actor = None, yes: Yes = False) -> Answer:
        from xq.operators.operations import act_on

        task = key_of(queue, key)
        if name in DESTROY:
            state = described(queue, queue.peek(task))["state"]
            ask(
                f"{name.capitalize()} task {key} of {queue.name}, which is {state}{_deletes(queue, name, 'its row')}?",
                yes,
            )
        with queue.acting(actor, reason):
            return _moved(queue, [act_on(queue, name, task)], done)

    move.__name__, move.__doc__ = name, help
    return move


MOVES = [
    _move("kill", "killed", "Delete a task, in whatever state it is."),
    _move("release", "released", "Take a task from the worker that has it, and make it ready."),
    _move("restart", "restarted", "Make a waiting or finished task ready again."),
    _move("bury", "buried", 'Bury a task. Needs the feature buried="any".'),
]


def _moved(queue: Queue, tasks: Iterable[Any], done: str) -> Answer:
    told = [described(queue, each) for each in tasks]
    return Answer(told, [], f"{done}: {', '.join(key_text(each['key']) for each in told) or 'none'}")


def _deletes(queue: Queue, event: str, rows: str) -> str:
    return f", and delete {rows} of the table {queue.adapter.store.table}" if event == "kill" else ""


def act(
    queue: Queue,
    event: Annotated[str, Argument(metavar="EVENT", help="dig, kill, release, restart or bury")],
    filter: Annotated[str, Argument(metavar="[FILTER]", help="which tasks, as 'state:buried error:Timeout'")] = "",
    every: Annotated[bool, Option("--all", help="All tasks, without a filter.")] = False,
    reason: Reason = None,
    actor: Actor = None,
    delay: Annotated[float | None, Option(help="Seconds until the tasks are ready.")] = None,
    chunk: Annotated[int, Option(min=1, max=1000, help="Tasks of one transaction.")] = 500,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    yes: Yes = False,
) -> Answer:
    """Dig, kill, release, restart or bury all tasks that a filter shows, in chunks. Ctrl-C ends it after its chunk."""
    if every == bool(filter.strip()):
        raise typer.BadParameter("say which tasks: a FILTER, or --all")
    options: dict[str, Any] = {} if delay is None else {"delay": delay}
    operation = queue.act(event, filter, actor=actor, reason=reason, **options)
    operation.chunk = chunk
    preview = operation.preview
    n = f"{preview.n:,}" if preview.exact else f"at least {preview.n:,}"
    if dry_run:
        told = [described(queue, each) for each in preview.tasks]
        numbers = {"n": preview.n, "exact": preview.exact, "looked": preview.looked}
        looked = f", looked at {preview.looked:,} rows" if preview.looked else ""
        content = {"event": event, "filter": filter, **numbers, "tasks": told}
        return Answer(content, table(queue, told), f"{event} would move {n} tasks{looked}")
    if event in DESTROY or sys.stdin.isatty():
        ask(f"{event} {n} tasks of {queue.name} ({filter or 'all'}){_deletes(queue, event, 'their rows')}?", yes)
    _run(operation, preview.n / chunk if preview.exact else None)
    skipped = f", {operation.skipped:,} skipped" if operation.skipped else ""
    left = "" if operation.state == "done" else "; it was cancelled, and the same command moves the others"
    return Answer(operation.as_dict(), [], f"{event}: {operation.done:,} tasks moved{skipped}{left}", int(bool(left)))


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


# tasks and transitions, as documents and in tables


def described(queue: Queue, task: Any, since: float | None = None) -> dict[str, Any]:
    """Return a task as a document: its key, the letter of its state, since when it is in it if given, its fields."""
    adapter, roles = queue.adapter, queue.roles
    fields = dict(adapter.tasks.data(task))
    for name in (roles.get("runat", ""), roles.get("deadline", "")):  # only these are known to be UTC
        if isinstance(at := fields.get(name), datetime) and not at.tzinfo:
            fields[name] = at.replace(tzinfo=UTC)
    parts = tuple(fields[name] for name in adapter.store.key)
    told = {"key": _key(parts if len(parts) > 1 else parts[0]), "state": adapter.state_of(fields[roles["status"]])}
    return told | ({} if since is None else {"since": moment(since)}) | {"fields": fields}


def _key(key: Any) -> Any:
    """Return a key of the application as documents have it: a list if it has several parts."""
    from xq.core.values import part_as_text

    return [part_as_text(part) for part in key] if isinstance(key, tuple) else part_as_text(key)


def key_text(key: Any) -> str:
    """Return the key of a document as KEY on the command line: one of several parts is a JSON array."""
    return parser.dumps(key, default=str) if isinstance(key, list) else str(key)


def _cell(queue: Queue, name: str, value: Any) -> Any:
    """Return the value of a field for a table: of a text the first line, since an error ends in a traceback."""
    if isinstance(value, (int, float)):
        timed = name in (queue.roles.get("runat"), queue.roles.get("deadline"))
        return (moment(value) if timed else None) or value  # a number that is beyond the calendar stays one
    return None if value is None else Text(shown(value, MOST))


def table(queue: Queue, told: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return tasks as a table: key, state, age, error, attempts, the session of taken ones, and other fields.

    Without empty ones, and of the columns of xq's own without all but the error and the attempts.
    """
    roles, own, now = queue.roles, queue.adapter.tasks.table.own, queue.adapter.inspection.moment()
    taken, first = {}, {role: roles[role] for role in ("error", "attempts") if role in roles}
    if any(each["state"] == "T" for each in told):
        taken = {key_text(_key(key)): session for key, session, _ in queue.taken()}
    hidden = {*queue.adapter.store.key, roles["owner"], *first.values(), *(field.name for field in own.values())}
    rows = []
    for each in told:
        lines = {
            name: value.strip().partition("\n")[0] if isinstance(value, str) else value
            for name, value in each["fields"].items()
        }
        since, key = each.get("since"), key_text(each["key"])
        row = {"key": key, "state": each["state"], "age": spent(since and now - since.timestamp())}
        row |= {role: _cell(queue, name, lines[name]) for role, name in first.items()} | {"session": taken.get(key)}
        without = hidden | ({roles["status"]} if each["state"] else set())
        others = {name: _cell(queue, name, value) for name, value in lines.items() if name not in without}
        # A field that is named as one of these has a dot before it.
        cells = {f".{name}" if name in row else name: cell for name, cell in others.items() if cell not in (None, "")}
        rows.append(row | {"fields": Fields(cells)})
    return [rows]


def transition(queue: Queue, row: Any) -> dict[str, Any]:
    """Return a row of the history as a document."""
    names = ("tube", "source", "target", "event", "owner", "attempt", "actor", "reason")
    told = {"id": row.id, "at": moment(row.at_us / 1e6), "key": _key(key_of(queue, row.key))}
    return told | {name: getattr(row, name) for name in names}


def exactly(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def spent(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def by(told: dict[str, Any]) -> str:
    """Return who made a transition, and why."""
    return ": ".join(filter(None, (told["actor"], told["reason"])))
