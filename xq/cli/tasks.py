"""Commands for tasks: put them, look at them, and move them as an operator."""

from __future__ import annotations

import json as parser
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xq.cli.options import Actor, Json, Key, Many, Reason, State, Target, Tube, Wanted, Yes, actor_of
from xq.cli.output import ask, brief, document, say, seconds, shown, table
from xq.cli.targets import key_of, queue, wrong_use
from xq.core.filters import Term, parse
from xq.core.values import part_as_text

if TYPE_CHECKING:
    from xq.handle import Queue

PER_PUT = 1_000  # tasks that one statement puts
PEEKED = 200  # characters of a value that peek shows
# Characters that these columns keep on a narrow terminal; and the column of the errors.
KEPT = {"key": 40, "state": 5}
ERROR = 30


def put(
    target: Target,
    task: Annotated[str, typer.Argument(metavar="JSON", help="the task, an object; -: one in each line of stdin")],
    delay: Annotated[float | None, typer.Option(help="Seconds until it is ready.")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds until it is dropped.")] = None,
    ttr: Annotated[float | None, typer.Option(help="Seconds that a worker has for it.")] = None,
    json: Json = False,
) -> None:
    """Put a task, and print its key."""
    options: dict[str, Any] = {
        name: value for name, value in (("delay", delay), ("ttl", ttl), ("ttr", ttr)) if value is not None
    }
    with queue(target) as found:
        if task != "-":
            told = described(found, found.put(_object(task), **options))
            document(told) if json else print(key_text(told["key"]))
            return
        lines, n, last = _lines(sys.stdin), 0, 0
        try:
            while batch := list(islice(lines, PER_PUT)):
                n += len(found.put_many([each for _, each in batch], **options))
                last = batch[-1][0]
        except BaseException:
            if n:
                say(f"{n:,} tasks are put, those of the lines up to {last:,}: go on behind these")
            raise
        document({"put": n}) if json else say(f"{n:,} tasks put")


def _lines(texts: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line that is not empty, and its task."""
    for number, text in enumerate(texts, 1):
        if text.strip():
            yield number, _object(text, f"line {number:,}: ")


def _object(text: str, where: str = "") -> dict[str, Any]:
    try:
        found = parser.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{where}a task is a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{where}a task is a JSON object, not {shown(text)[:80]}")
    return found


def peek(target: Target, key: Key, json: Json = False) -> None:
    """Show one task: the first 200 characters of each value, the whole with --json."""
    with queue(target) as found:
        told = described(found, found.peek(key_of(found, key)))
    if json:
        document(told)
    else:
        fields = {name: _timed(found, name, value) for name, value in told["fields"].items()}
        fields |= {name: str(fields[name]) for name in found.adapter.store.key}  # to be copied: without 1,000's comma
        error = found.roles.get("error")
        first, *traceback = str(fields.get(error) or "").strip().splitlines() or [""]
        if traceback:
            fields[error] = first
        cells = [[name, brief(value, PEEKED)] for name, value in fields.items()]
        table(["field", "value"], [["state", told["state"]], *cells])
        for line in traceback:
            print(shown(line))


def list_(
    target: Target,
    wanted: Wanted = "",
    state: State = None,
    tube: Tube = None,
    n: Many = 50,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on behind the page before.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Show these fields only, after the state.")] = None,
    json: Json = False,
) -> None:
    """List the tasks that a filter means, the next ones of each state first.

    The table has the first 60 characters of each value, and --json the whole.
    """
    short = [Term(name, "=", (value,)) for name, value in (("state", state), ("tube", tube)) if value is not None]
    with queue(target) as found, wrong_use():
        page = found.find(parse(wanted).with_terms(*short), n, after)
        chosen = _fields_named(found, columns)
        told = [described(found, each) for each in page.tasks]
    if json:
        document({"tasks": told, "next": page.next, "looked": page.looked, "ended": page.ended})
        return
    show(found, told, chosen)
    if not page.ended:
        say(f"{_looked(page.looked)}; there may be more: --after {page.next}")


def _fields_named(found: Queue[Any], columns: str | None) -> list[str] | None:
    """Return the fields that --columns names; None if it is not given."""
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    known = [field.name for field in found.adapter.store.fields]
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"there is no field {shown(unknown[0])}: there are {', '.join(known)}")
    return names


def failures(
    target: Target,
    wanted: Wanted = "",
    n: Annotated[int, typer.Option("-n", min=1, help="At most this many groups.")] = 20,
    json: Json = False,
) -> None:
    """Show the tasks that failed, in groups: those with the same class of error and the same message.

    A group's filter selects its tasks: xq list TARGET 'failure:0cb85332120a'.
    """
    with queue(target) as found, wrong_use():
        groups = found.failures(wanted, n)
    if json:
        told = [{**vars(group), "first": _moment(group.first), "last": _moment(group.last)} for group in groups]
        document({"groups": told, "looked": groups.looked, "ended": groups.ended})
        return
    rows = [
        [
            group.count,
            " ".join(f"{state}:{number:,}" for state, number in group.states.items()),
            group.title,
            None if (last := _moment(group.last)) is None else last.strftime("%Y-%m-%d %H:%M:%S"),
            key_text(group.key),
            group.filter,
        ]
        for group in groups
    ]
    table(["tasks", "states", "error", "last", "one key", "filter"], rows)
    if not groups.ended:
        say(f"{_looked(groups.looked)}, buried tasks first; there are more: a filter, as state:buried, selects others")


def _looked(rows: int) -> str:
    return f"looked at {rows:,} rows"


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def dig(
    target: Target,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="the key of one task")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="This many, the oldest first.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All buried tasks.")] = False,
    reason: Reason = None,
    actor: Actor = None,
    json: Json = False,
) -> None:
    """Make buried tasks ready again: one by its key, or the oldest ones. Their attempts count on."""
    if sum([key is not None, n is not None, every]) != 1:
        raise typer.BadParameter("say which: a KEY, -n NUMBER or --all")
    with queue(target) as found:
        one = None if key is None else key_of(found, key)
        with found.acting(actor_of(actor), reason):
            tasks = found.dig(n=n) if one is None else [found.dig(one)]
        _moved(found, tasks, "dug", json)


def kill(
    target: Target, key: Key, reason: Reason = None, actor: Actor = None, yes: Yes = False, json: Json = False
) -> None:
    """Delete a task, in whatever state it is."""
    _one(target, key, "kill", "killed", (actor, reason), json, yes, "Delete")


def release(
    target: Target, key: Key, reason: Reason = None, actor: Actor = None, yes: Yes = False, json: Json = False
) -> None:
    """Take a task from the worker that has it, and make it ready."""
    _one(target, key, "snatch", "released", (actor, reason), json, yes, "Release")


def restart(target: Target, key: Key, reason: Reason = None, actor: Actor = None, json: Json = False) -> None:
    """Make a waiting or finished task ready again."""
    _one(target, key, "restart", "restarted", (actor, reason), json)


def bury(target: Target, key: Key, reason: Reason = None, actor: Actor = None, json: Json = False) -> None:
    """Bury a task. Needs the feature buried="any"."""
    _one(target, key, "bury", "buried", (actor, reason), json)


def _one(
    target: str,
    key: str,
    event: str,
    done: str,
    by: tuple[str | None, str | None],
    json: bool,
    yes: bool = True,
    asked: str = "",
) -> None:
    actor, reason = by
    with queue(target) as found:
        task = key_of(found, key)
        if not yes:
            told = described(found, found.peek(task))
            ask(f"{asked} task {key_text(told['key'])} of {found.name}, which is {told['state']}?", yes)
        with found.acting(actor_of(actor), reason):
            moved = getattr(found, event)(task)
        _moved(found, [moved], done, json)


def _moved(found: Queue[Any], tasks: Iterable[Any], done: str, json: bool) -> None:
    told = [described(found, each) for each in tasks]
    if json:
        document(told)
    else:
        say(f"{done}: {', '.join(key_text(each['key']) for each in told) or 'none'}")


def history(
    target: Target,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="the key of one task")] = None,
    json: Json = False,
) -> None:
    """Show the transitions of a task, or of all tasks, with the time in each state. Needs the feature history."""
    with queue(target) as found:
        rows = found.history(None if key is None else key_of(found, key))
        told = [transition(each) for each in rows]
    document(told) if json else table(TRANSITION, [transition_row(each) for each in told])


# tasks and transitions as documents

TRANSITION = ["at", "key", "tube", "from", "to", "event", "attempt", "after", "by"]


def transition(row: Any) -> dict[str, Any]:
    """Return a row of the history as a document."""
    at = datetime.fromtimestamp(row.at_us / 1_000_000, UTC)
    names = ("key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason")
    dur_us = getattr(row, "dur_us", None)
    after = None if dur_us is None else dur_us / 1_000_000
    return {"id": row.id, "at": at, **{name: getattr(row, name) for name in names}, "seconds_in_source": after}


def transition_row(told: dict[str, Any]) -> list[Any]:
    cells = [told["key"], told["tube"], told["source"], told["target"], told["event"], told["attempt"]]
    at, by = told["at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], ": ".join(filter(None, (told["actor"], told["reason"])))
    return [at, *cells, seconds(told["seconds_in_source"]), by]


def described(found: Queue[Any], task: Any) -> dict[str, Any]:
    """Return a task as a document: its key, the letter of its state, and its fields."""
    store = found.adapter.store
    # Only these are known to be UTC.
    moments = {name for role, name in found.roles.items() if role in ("runat", "deadline")}
    fields = dict(found.adapter.tasks.data(task))
    for name in moments & fields.keys():
        if isinstance(fields[name], datetime) and not fields[name].tzinfo:
            fields[name] = fields[name].replace(tzinfo=UTC)
    parts = [part_as_text(fields[name]) for name in store.key]
    letter = found.adapter.state_of(fields[found.roles["status"]])
    return {"key": parts[0] if len(parts) == 1 else parts, "state": letter, "fields": fields}


def key_text(key: Any) -> str:
    """Return a key as KEY on the command line: one of several parts is a JSON array."""
    if not isinstance(key, (list, tuple)):
        return str(part_as_text(key))
    return parser.dumps([part_as_text(part) for part in key], default=str)


def show(found: Queue[Any], told: list[dict[str, Any]], chosen: list[str] | None = None) -> None:
    """Print tasks as a table: the key, the state, who has the taken ones and for how long, and the other fields.

    The error comes before the other fields, so that a narrow terminal shows it. `chosen` are the fields, if not all.
    """
    if chosen is None:
        listed = [filled(found, each) for each in told]
        there = [name for name in (told[0]["fields"] if told else ()) if any(name in fields for fields in listed)]
        names = sorted(there, key=lambda name: name != found.roles.get("error"))
    else:
        names, listed = chosen, [_cells(found, each["fields"]) for each in told]
    now, taken = found.adapter.inspection.moment(), {}
    if any(each["state"] == "T" for each in told):
        taken = {key_text(key): (session, since) for key, session, since in found.taken()}
    holders = [taken.get(key_text(each["key"]), (None, None)) for each in told]
    held = ["taken for", "session"] if any(session for session, _ in holders) else []
    rows = []
    for each, fields, (session, since) in zip(told, listed, holders, strict=True):
        by = [since and seconds(now - since), session] if held else []
        rows.append([key_text(each["key"]), each["state"], *by, *(fields.get(name) for name in names)])
    narrow = table(["key", "state", *held, *names], rows, KEPT | {found.roles.get("error", "error"): ERROR})
    if narrow:
        say(f"no room for {', '.join(narrow)}: --columns chooses, --json has all")


def filled(found: Queue[Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a task for a table, without empty ones, and without its key, its status and its owner."""
    repeated = {*found.adapter.store.key, found.roles.get("owner"), found.roles["status"] if told["state"] else None}
    fields = {name: value for name, value in told["fields"].items() if name not in repeated}
    return {name: value for name, value in _cells(found, fields).items() if value not in (None, "")}


def _cells(found: Queue[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: brief(_first_line(_timed(found, name, value))) for name, value in fields.items()}


def _first_line(value: Any) -> Any:
    """Return the first line of a text: an error ends in a traceback, which `peek` shows in full."""
    return value.strip().partition("\n")[0] if isinstance(value, str) else value


def _timed(found: Queue[Any], name: str, value: Any) -> Any:
    """Return a time that the queue writes as a number of seconds as a date; other values as they are."""
    if name not in (found.roles.get("runat"), found.roles.get("deadline")) or not isinstance(value, (int, float)):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return value


COMMANDS: dict[str, Callable[..., None]] = {
    "put": put,
    "peek": peek,
    "list": list_,
    "failures": failures,
    "dig": dig,
    "kill": kill,
    "release": release,
    "restart": restart,
    "bury": bury,
    "history": history,
}
