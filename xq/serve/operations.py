"""Operations on tasks: previewed, run in a thread of this process, followed, cancelled and resumed."""

from __future__ import annotations

import logging
import math
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from xq.core.errors import Duplicate, Error, NotFound, NotOwner, WrongState
from xq.core.filters import parse
from xq.engine.operations import ACTS, is_offered
from xq.serve import texts
from xq.serve.entries import Entry, on
from xq.serve.login import CONSOLE
from xq.serve.rights import VERBS, Refusal, permit
from xq.serve.visit import Visit

if TYPE_CHECKING:
    from xq.serve.console import Console

log = logging.getLogger("xq.serve")

# By verb of the console: the event of the queue. An operator's release takes the task from its owner.
EVENTS: Final[Mapping[str, str]] = MappingProxyType({verb: ACTS[verb] for verb in VERBS if verb in ACTS})
VERB_OF: Final = {event: verb for verb, event in EVENTS.items()}
EFFECTS: Final = {
    "dig": "Buried tasks become ready again.",
    "release": "Taken tasks become ready again. Their workers lose them: what these have begun may be done twice.",
    "restart": "Waiting and finished tasks become ready again.",
    "bury": "The tasks stay buried until they are dug.",
    "kill": "The tasks are deleted, in whatever state they are. It cannot be undone.",
}
DELAYED: Final = ("dig", "release", "restart")
KEPT: Final = 100  # operations on a page
EXAMPLES: Final = 5
SELECTED: Final = 200  # tasks that are moved at once
BEGUN: Final = 1_000  # forms that are remembered


def _event(visit: Visit) -> str:
    event, entry = EVENTS.get(visit.text("verb")), visit.queue
    if event is None:
        raise Refusal(400, f"An operation is {texts.listed(EVENTS)}.")
    if not is_offered(entry.queue.machine, event):
        raise Refusal(400, f"{entry.name} does not {visit.text('verb')} tasks: it has no feature for that.")
    return event


def _scope(visit: Visit) -> str:
    scope = visit.text("scope")
    if scope not in ("selected", "all"):
        raise Refusal(400, "The form does not say which tasks are meant: scope is selected or all.")
    return scope


def _keys(visit: Visit) -> list[str]:
    keys = list(dict.fromkeys(visit.texts("keys")))
    if not 1 <= len(keys) <= SELECTED:
        raise Refusal(
            400,
            f"Select 1 to {SELECTED} tasks on the page before, or choose all that its filter shows, not {len(keys)}.",
        )
    return keys


def _filter(visit: Visit, event: str) -> str:
    """Return the filter of an operation: that of the page, and the states from which the event moves a task."""
    entry, text = visit.queue, visit.text("filter").strip()
    sources = entry.queue.machine.sources(event)
    moved = [state for state in entry.states if state in sources]
    if len(moved) == len(entry.states) or any(term.name == "state" for term in parse(text).terms):
        return text
    return f"{text} state:{','.join(moved)}".strip()


def _peeked(entry: Entry, keys: list[str]) -> list[Any]:
    """Return the tasks of keys; those that are gone are left out."""
    found = []
    for key in keys:
        with suppress(NotFound):
            found.append(entry.queue.peek(entry.key(key)))
    return found


def preview(console: Console, visit: Visit) -> Response:
    """Show which tasks an operation would move, and ask for a reason."""
    from xq.serve.pages import task_rows

    entry, event, verb = visit.queue, _event(visit), visit.text("verb")
    keys, text = [], visit.text("filter").strip()
    if _scope(visit) == "all":
        text = _filter(visit, event)
        found = on(entry, lambda: entry.queue.act(event, text, dry_run=True).preview)
        tasks, n, exact, looked = found.tasks, found.n, found.exact, found.looked
    else:
        keys = _keys(visit)
        tasks = on(entry, lambda: _peeked(entry, keys))
        n, exact, looked = len(tasks), True, len(tasks)
    _, rows = task_rows(entry, tasks[:EXAMPLES], console.settings.hide)
    return console.html(
        "preview.html",
        visit,
        once=secrets.token_urlsafe(12),
        verb=verb,
        effect=EFFECTS[verb],
        filter=text,
        shown=visit.text("filter"),
        scope=visit.text("scope"),
        keys=keys,
        n=n,
        exact=exact,
        looked=looked,
        rows=[
            {
                "key": row.key,
                "state": row.state,
                "told": texts.cell("  ".join(f"{name}: {cell.text}" for name, cell in row.cells if cell.text)),
            }
            for row in rows
        ],
        delays=verb in DELAYED and "delay" in entry.queue.machine.options(event),
        asks=_asks(visit),
    )


def _asks(visit: Visit) -> bool:
    """Whether the name of the queue must be typed: a kill of all that a filter shows cannot be undone."""
    return visit.text("verb") == "kill" and visit.text("scope") == "all"


def act(console: Console, visit: Visit) -> Response:
    """Begin an operation and show its progress; selected tasks are moved at once."""
    entry, event = visit.queue, _event(visit)
    if _asks(visit) and visit.text("sure") != entry.name:
        raise Refusal(400, f"Nothing was killed: type {entry.name} to go on. Go back to the page before.")
    delay = visit.text("delay").strip()
    options: dict[str, Any] = {"delay": _seconds(delay)} if delay else {}
    actor = visit.caller.name if visit.caller else CONSOLE
    reason = visit.text("reason").strip() or None
    if _scope(visit) == "selected":
        keys = _keys(visit)
        return _result(console, visit, on(entry, lambda: _moved(entry, event, keys, options, actor, reason)))
    text = visit.text("filter")
    form = (entry.slug, visit.text("once"))
    with console.beginning:
        number = console.begun.get(form)
        if number is None:  # else a second click
            made = on(entry, lambda: entry.queue.act(event, text, actor=actor, reason=reason, **options))
            number = int(made.id or 0)
            _start(console, entry, number)
            if form[1]:
                console.begun[form] = number
            for old in list(console.begun)[:-BEGUN]:
                del console.begun[old]
    return console.redirect(visit, f"/q/{entry.slug}/operations/{number}")


def _moved(
    entry: Entry, event: str, keys: list[str], options: dict[str, Any], actor: str, reason: str | None
) -> list[tuple[str, str]]:
    """Move tasks by their keys in one transaction. Returns why others were skipped, each with its key."""
    queue, skipped = entry.queue, []
    call = getattr(queue, event)
    with queue.acting(actor, reason=reason):
        for key in keys:
            try:
                call(entry.key(key), **options)
            except (NotFound, WrongState, NotOwner, Duplicate) as error:
                skipped.append((key, f"{error}"))
    return skipped


def _result(console: Console, visit: Visit, skipped: list[tuple[str, str]]) -> Response:
    moved = len(_keys(visit)) - len(skipped)
    return console.html(
        "result.html",
        visit,
        verb=visit.text("verb"),
        moved=moved,
        skipped=skipped,
        shown=visit.text("filter"),
    )


def _seconds(text: str) -> float:
    try:
        value = float(text) if re.fullmatch(r"[0-9.]+", text) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Refusal(400, "A delay is a number of seconds, as 30 or 0.5.")
    return value


def _start(console: Console, entry: Entry, number: int) -> None:
    """Run an operation in a thread of this process, unless it does so already."""
    named = (entry.slug, number)
    if named in console.running:
        return
    console.running.add(named)
    console.failed.pop(named, None)
    console.threads.start(partial(_run, console, entry, number))


def _run(console: Console, entry: Entry, number: int) -> None:
    named = (entry.slug, number)

    def steps() -> None:
        running = entry.queue.operation(number)
        while not console.snapshots.is_closed and running.step():
            pass

    try:
        on(entry, steps)
    except Refusal as refusal:
        console.failed[named] = refusal.sentence
    except Error as error:
        console.failed[named] = f"{error}."
    except Exception as error:
        log.exception("the operation %s of %s failed", number, entry.name)
        console.failed[named] = f"{error}"
    finally:
        console.running.discard(named)


def operations(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    found = on(entry, entry.queue.operations)[:KEPT]
    return console.html("operations.html", visit, operations=found)


def operation(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    found = on(entry, lambda: entry.queue.operation(visit.number))
    named = (entry.slug, visit.number)
    return console.html(
        "operation.html",
        visit,
        operation=found,
        verb=VERB_OF.get(found.event, found.event),
        is_here=named in console.running,
        failed=console.failed.get(named, ""),
    )


def _of_the_verb(console: Console, visit: Visit) -> Any:
    """Return the operation of the path, whose verb the caller must be allowed, whatever the form says."""
    entry = visit.queue
    found = on(entry, lambda: entry.queue.operation(visit.number))
    if visit.caller is None:
        raise Refusal(401, "Log in.")
    permit(visit.caller, VERB_OF.get(found.event, found.event), read_only=console.settings.read_only)
    return found


def cancel(console: Console, visit: Visit) -> Response:
    found = _of_the_verb(console, visit)
    on(visit.queue, found.cancel)
    return console.redirect(visit, f"/q/{visit.queue.slug}/operations/{visit.number}")


def resume_operation(console: Console, visit: Visit) -> Response:
    if _of_the_verb(console, visit).state == "running":
        _start(console, visit.queue, visit.number)
    return console.redirect(visit, f"/q/{visit.queue.slug}/operations/{visit.number}")
