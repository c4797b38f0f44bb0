"""Commands for tasks: put them, look at them, and move them one by one."""

from __future__ import annotations

import json as parser
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import typer
from typer import Argument, Option

from xq.cli.output import Answer, ask, moment, say, shown
from xq.cli.targets import Actor, AnyKey, Key, Many, Queue, Reason, State, Tube, Wanted, Yes, key_of
from xq.core.values import part_as_text
from xq.core.words import lasting
from xq.operators.filters import Term, parse
from xq.operators.operations import act_on

PER_PUT = 1_000  # tasks that one statement puts
CELL, PEEKED = 60, 200  # characters of a value in a table of tasks, and in peek


def put(
    queue: Queue,
    task: Annotated[str, Argument(metavar="JSON", help="the task, an object; -: one in each line of stdin")],
    delay: Annotated[float | None, Option(help="Seconds until it is ready.")] = None,
    ttl: Annotated[float | None, Option(help="Seconds until it is dropped.")] = None,
    ttr: Annotated[float | None, Option(help="Seconds that a worker has for it.")] = None,
) -> Answer:
    """Put a task, and print its key."""
    given = {"delay": delay, "ttl": ttl, "ttr": ttr}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if task != "-":
        told = described(queue, queue.put(_object(task), **options))
        return Answer(told, [key_text(told["key"])])
    lines, n, last = ((at, text) for at, text in enumerate(sys.stdin, 1) if text.strip()), 0, 0
    try:
        while batch := list(islice(lines, PER_PUT)):
            n += len(queue.put_many([_object(text, f"line {at:,}: ") for at, text in batch], **options))
            last = batch[-1][0]
    except BaseException:
        if n:
            say(f"{n:,} tasks are put, those of the lines up to {last:,}: go on behind these")
        raise
    return Answer({"put": n}, [], f"{n:,} tasks put")


def _object(text: str, where: str = "") -> dict[str, Any]:
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
    rows = [{"field": name, "value": _cell(queue, name, value, PEEKED)} for name, value in fields.items()]
    return Answer(told, [[{"field": "state", "value": told["state"]}, *rows], *map(shown, traceback)])


def list_(
    queue: Queue,
    wanted: Wanted = "",
    state: State = None,
    tube: Tube = None,
    n: Many = 50,
    after: Annotated[str | None, Option(metavar="CURSOR", help="Go on behind the page before.")] = None,
) -> Answer:
    """List the tasks that a filter means, the next ones of each state first.

    The table has the first 60 characters of each value, and --json the whole.
    """
    short = [Term(name, "=", (value,)) for name, value in (("state", state), ("tube", tube)) if value is not None]
    page = queue.find(parse(wanted).with_terms(*short), n, after)
    told = [described(queue, each) for each in page.tasks]
    words = f"{'' if told else 'none: '}looked at {page.looked:,} rows"
    words += "" if page.ended else f"; there may be more: --after {page.next}"
    content = {"tasks": told, "next": page.next, "looked": page.looked, "ended": page.ended}
    return Answer(content, table(queue, told), "" if told and page.ended else words)


def failures(queue: Queue, wanted: Wanted = "", n: Many = 20) -> Answer:
    """Show the tasks that failed, in groups: those with the same class of error and the same message.

    A group's filter selects its tasks: xq list TARGET 'failure:0cb85332120a'.
    """
    groups = queue.failures(wanted, n)
    told = [{**vars(group), "first": moment(group.first), "last": moment(group.last)} for group in groups]
    rows = [
        {
            "tasks": group.count,
            "states": " ".join(f"{state}:{number:,}" for state, number in group.states.items()),
            "error": group.title,
            "last": moment(group.last),
            "one key": key_text(group.key),
            "filter": group.filter,
        }
        for group in groups
    ]
    words = f"{'' if groups else 'no task has failed: '}looked at {groups.looked:,} rows, buried tasks first"
    words += "" if groups.ended else "; there are more: a filter, as state:B, selects others"
    content = {"groups": told, "looked": groups.looked, "ended": groups.ended}
    return Answer(content, [rows], "" if groups and groups.ended else words)


def history(queue: Queue, key: AnyKey = None, n: Many = 1_000) -> Answer:
    """Show the last transitions of a task, or of all, with the time in each state. Needs the feature history."""
    found = queue.adapter.inspection.last(n + 1, key_of(queue, key))
    told = [transition(each) for each in found[-n:]]
    rows = [
        {"at": exactly(each["at"])}
        | {name: each[name] for name in ("key", "tube", "source", "target", "event", "attempt")}
        | {"after": spent(each["seconds_in_source"]), "by": by(each)}
        for each in told
    ]
    return Answer(told, [rows], f"the last {n:,}; there are earlier ones: -n shows more" if len(found) > n else "")


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

    def move(queue: Queue, key: Key, reason: Reason = None, actor: Actor = None) -> Answer:
        task = key_of(queue, key)
        with queue.acting(actor, reason):
            return _moved(queue, [act_on(queue, name, task)], done)

    def asked(queue: Queue, key: Key, reason: Reason = None, actor: Actor = None, yes: Yes = False) -> Answer:
        told = described(queue, queue.peek(key_of(queue, key)))
        rows = f", and delete its row of the table {queue.adapter.store.table}" if name == "kill" else ""
        ask(f"{name.capitalize()} task {key} of {queue.name}, which is {told['state']}{rows}?", yes)
        return move(queue, key, reason, actor)

    made = asked if name in ("kill", "release") else move
    made.__name__, made.__doc__ = name, help
    return made


MOVES = [
    _move("kill", "killed", "Delete a task, in whatever state it is."),
    _move("release", "released", "Take a task from the worker that has it, and make it ready."),
    _move("restart", "restarted", "Make a waiting or finished task ready again."),
    _move("bury", "buried", 'Bury a task. Needs the feature buried="any".'),
]


def _moved(queue: Queue, tasks: Iterable[Any], done: str) -> Answer:
    told = [described(queue, each) for each in tasks]
    return Answer(told, [], f"{done}: {', '.join(key_text(each['key']) for each in told) or 'none'}")


# tasks and transitions, as documents and in tables


def described(queue: Queue, task: Any) -> dict[str, Any]:
    """Return a task as a document: its key, the letter of its state, and its fields."""
    adapter, roles = queue.adapter, queue.roles
    fields = dict(adapter.tasks.data(task))
    for name in (roles.get("runat", ""), roles.get("deadline", "")):  # only these are known to be UTC
        if isinstance(at := fields.get(name), datetime) and not at.tzinfo:
            fields[name] = at.replace(tzinfo=UTC)
    parts = [part_as_text(fields[name]) for name in adapter.store.key]
    letter = adapter.state_of(fields[roles["status"]])
    return {"key": parts[0] if len(parts) == 1 else parts, "state": letter, "fields": fields}


def key_text(key: Any) -> str:
    """Return a key as KEY on the command line: one of several parts is a JSON array."""
    if not isinstance(key, (list, tuple)):
        return str(part_as_text(key))
    return parser.dumps([part_as_text(part) for part in key], default=str)


def _cell(queue: Queue, name: str, value: Any, most: int) -> Any:
    """Return the value of a field for a table."""
    if name in queue.adapter.store.key:
        return str(part_as_text(value))
    if not isinstance(value, (int, float)):
        return None if value is None else shown(value, most)
    timed = name in (queue.roles.get("runat"), queue.roles.get("deadline"))
    return (moment(value) if timed else None) or value  # a number that is beyond the calendar stays one


def filled(queue: Queue, told: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a task for a table, the error first, without empty ones, its key, status and owner.

    Of a text it is the first line: an error ends in a traceback, which `peek` shows.
    """
    roles, own = queue.roles, queue.adapter.tasks.table.own
    hidden = {*queue.adapter.store.key, roles["owner"], roles["status"] if told["state"] else None}
    hidden |= {field.name for role, field in own.items() if role not in ("attempts", "error")}
    named = sorted(told["fields"].items(), key=lambda each: each[0] != roles.get("error"))
    cells = {
        name: _cell(queue, name, value.strip().partition("\n")[0] if isinstance(value, str) else value, CELL)
        for name, value in named
        if name not in hidden
    }
    return {name: cell for name, cell in cells.items() if cell not in (None, "")}


def table(queue: Queue, told: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield tasks as a table: the key, the state, the error, who has the taken ones and for how long, other fields."""
    taken, now, error = {}, queue.adapter.inspection.moment(), queue.roles.get("error", "error")
    if any(each["state"] == "T" for each in told):
        taken = {key_text(key): (session, since) for key, session, since in queue.taken()}
    rows = []
    for each in told:
        session, since = taken.get(key_text(each["key"]), (None, None))
        row = {"key": key_text(each["key"]), "state": each["state"], error: None}
        row |= {"taken for": spent(since and now - since), "session": session}
        # A field that is named as one of these has a dot before it.
        rows.append(row | {f".{name}" if row.get(name) else name: cell for name, cell in filled(queue, each).items()})
    yield rows


def transition(row: Any) -> dict[str, Any]:
    """Return a row of the history as a document."""
    names = ("key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason")
    told = {"id": row.id, "at": moment(row.at_us / 1e6), **{name: getattr(row, name) for name in names}}
    dur_us = getattr(row, "dur_us", None)
    return told | {"seconds_in_source": None if dur_us is None else dur_us / 1e6}


def exactly(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def spent(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def by(told: dict[str, Any]) -> str:
    """Return who made a transition, and why."""
    return ": ".join(filter(None, (told["actor"], told["reason"])))


ON_A_QUEUE: tuple[Callable[..., Answer], ...] = (put, peek, list_, failures, history, dig, *MOVES)
