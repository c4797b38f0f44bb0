"""The pages of one queue: its tasks, failures, workers, schedules and pauses; and the table of all pages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from xq.core.errors import BadValue, FeatureOff
from xq.core.filters import quoted
from xq.engine.inspection import Owner
from xq.engine.operations import is_offered
from xq.engine.search import Step
from xq.serve import charts, texts
from xq.serve.console import (
    BY_VERB,
    OPEN,
    Console,
    Route,
    events,
    favicon,
    live,
    log_in,
    log_out,
    login_page,
    overview,
    static,
    theme,
)
from xq.serve.entries import Entry, on
from xq.serve.operations import EVENTS, act, cancel, operation, operations, preview, resume_operation
from xq.serve.rights import VIEW, Refusal
from xq.serve.visit import Visit

SIZES: Final = (25, 50, 100, 200)  # tasks on a page
COLUMNS: Final = 6  # fields of the application in a list
GROUPS: Final = 50  # of failures on a page
STEPS: Final = 500  # of a task's timeline
LISTED: Final = 200  # taken tasks and schedules on a page
# The roles that a list shows, in this order, and the term of a filter that a value becomes.
ROLES: Final = {"tube": "tube:", "utube": "utube:", "priority": "", "attempts": "", "error": ""}


def allowed(console: Console, visit: Visit, states: tuple[str, ...]) -> list[str]:
    """Return the verbs that the caller may use on tasks in these states of the queue."""
    machine = visit.queue.queue.machine
    may = visit.caller.verbs if visit.caller and not console.settings.read_only else frozenset()
    events = {verb: event for verb, event in EVENTS.items() if verb in may and is_offered(machine, event)}
    return [verb for verb, event in events.items() if set(machine.sources(event)).intersection(states)]


@dataclass(frozen=True)
class Cell:
    text: str
    kind: str = ""  # the class of the cell
    link: str = ""  # a filter


@dataclass(frozen=True)
class TaskRow:
    key: str
    state: str | None
    cells: list[tuple[str, Cell]]


def task_rows(entry: Entry, tasks: list[Any], hidden: frozenset[str]) -> tuple[list[str], list[TaskRow]]:
    """Return the columns that any of these tasks fills, and a row for each."""
    found = [entry.fields(task) for task in tasks]
    roles = {name: role for role, name in entry.queue.roles.items()}
    own = [
        name for name in (found[0] if found else {}) if name not in roles and name not in entry.queue.adapter.store.key
    ]
    named = [entry.queue.roles[role] for role in ROLES if role in entry.queue.roles]
    used = [name for name in [*own, *named] if any(fields[name] not in (None, "", 0) for fields in found)]
    shown = [name for name in used if name in own][:COLUMNS] + [name for name in used if name in named]

    def cell(name: str, value: Any) -> Cell:
        term = ROLES.get(roles.get(name, ""), "") if name not in hidden else ""
        text = texts.HIDDEN if name in hidden else texts.cell(value, hidden)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        kind = "n" if is_number else "error" if roles.get(name) == "error" else "text"
        return Cell(text, kind, f"{term}{quoted(str(value))}" if term and value not in (None, "") else "")

    rows = [
        TaskRow(entry.key_text(fields), entry.state_of(fields), [(name, cell(name, fields[name])) for name in shown])
        for fields in found
    ]
    return shown, rows


def tasks(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    text, after = visit.text("filter").strip(), visit.text("after") or None
    n = next((size for size in SIZES if size >= visit.integer("n", 50, 1, SIZES[-1])), SIZES[-1])
    values: dict[str, Any] = {"filter": text, "n": n, "wrong": ""}
    try:
        found = on(entry, lambda: entry.queue.find(text, n, after, visit.text("back") == "1"))
    except (BadValue, FeatureOff) as error:
        return console.html("tasks.html", visit, 400, **values | {"wrong": f"{error}"})
    columns, rows = task_rows(entry, found.tasks, console.settings.hide)
    cut = None if found.ended or len(rows) >= n else found.looked
    acts = allowed(console, visit, entry.states)
    return console.html("tasks.html", visit, **values, found=found, rows=rows, columns=columns, cut=cut, acts=acts)


def failures(console: Console, visit: Visit) -> Response:
    entry, text = visit.queue, visit.text("filter").strip()
    values: dict[str, Any] = {"filter": text, "wrong": "", "groups": []}
    try:
        groups = on(entry, lambda: entry.queue.failures(text, GROUPS))
    except (BadValue, FeatureOff) as error:
        return console.html("failures.html", visit, 400, **values | {"wrong": f"{error}"})
    acts = allowed(console, visit, ("B", "R", "W"))
    is_hidden = entry.queue.roles.get("error") in console.settings.hide
    return console.html("failures.html", visit, **values | {"groups": groups, "acts": acts, "is_hidden": is_hidden})


@dataclass(frozen=True)
class Field:
    name: str
    role: str
    text: str | None
    long: bool


def task(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    queue = entry.queue
    key = entry.key(visit.text("key"))

    def look() -> tuple[dict[str, Any], list[str], Owner | None, list[Step] | None]:
        fields = entry.fields(queue.peek(key))
        steps = queue.timeline(key) if entry.keeps_history else None
        return fields, queue.why(key), queue.adapter.inspection.owner(key), steps

    fields, why, owner, steps = on(entry, look)
    roles, hidden = {name: role for role, name in queue.roles.items()}, console.settings.hide
    state, last = entry.state_of(fields), (steps or [])[-STEPS:]
    if queue.roles.get("error") in hidden:
        why = [line.partition(": ")[0] if line.startswith("it is ") else line for line in why]  # the error follows

    def field(name: str, value: Any) -> Field:
        text = None if value is None else texts.HIDDEN if name in hidden else texts.text(value, hidden)
        role = roles.get(name, "")
        if role in ("runat", "deadline") and isinstance(value, (int, float)):
            text = f"{texts.moment(value)} ({value})" if texts.moment(value) else text
        return Field(name, role if role != name else "", text, text is not None and (len(text) > 80 or "\n" in text))

    return console.html(
        "task.html",
        visit,
        key=entry.key_text(fields),
        state=state,
        why=why,
        owner=owner,
        now=time.time(),
        steps=None if steps is None else last,
        left_out=len(steps or []) - len(last),
        bar=charts.of_steps([(step.target, step.seconds or 0.0) for step in last]),
        fields=[field(name, fields[name]) for name in _in_order(entry, fields)],
        acts=allowed(console, visit, (state,) if state else ()),
    )


def _in_order(entry: Entry, fields: dict[str, Any]) -> list[str]:
    """Return the names of the application's fields, then those of the queue's, then those that are empty."""
    roles = set(entry.queue.roles.values())
    return sorted(
        (name for name in fields if name not in roles or fields[name] is not None),
        key=lambda name: (fields[name] is None, name in roles),
    )


def workers(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    queue = entry.queue
    processes, taken = on(entry, lambda: (queue.processes(), queue.taken()))
    now, known = time.time(), {each.session: each for each in processes}
    taken.sort(key=lambda each: (each[2] is None, each[2] or 0.0))
    names = entry.queue.adapter.store.key
    listed = [
        {
            "key": entry.key_text(dict(zip(names, key if isinstance(key, tuple) else (key,)))),
            "session": session,
            "process": known.get(session or ""),
            "since": since,
            "taken_for": None if since is None else now - since,
        }
        for key, session, since in taken[:LISTED]
    ]
    return console.html(
        "workers.html",
        visit,
        processes=processes,
        now=now,
        taken=listed,
        more=len(taken) - len(listed),
    )


def doctor(console: Console, visit: Visit) -> Response:
    """Show what is wrong or slow. It reads the whole table, so one request does it at a time."""
    entry, began = visit.queue, time.monotonic()
    if not console.examining.acquire(blocking=False):
        raise Refusal(503, "This console examines a queue for another page. Load this page again in a while.")
    try:
        findings = on(entry, entry.queue.doctor)
    finally:
        console.examining.release()
    return console.html("doctor.html", visit, findings=findings, took=time.monotonic() - began)


def schedules(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    listed = on(entry, entry.queue.schedules)[:LISTED]
    return console.html("schedules.html", visit, schedules=listed)


def pauses(console: Console, visit: Visit) -> Response:
    entry = visit.queue
    return console.html(
        "pauses.html",
        visit,
        pauses=on(entry, entry.queue.pauses),
        has_tubes="tube" in entry.queue.roles,
    )


def pause(console: Console, visit: Visit) -> Response:
    return _pause(console, visit, visit.queue.queue.pause)


def resume(console: Console, visit: Visit) -> Response:
    return _pause(console, visit, visit.queue.queue.resume)


def _pause(console: Console, visit: Visit, call: Any) -> Response:
    entry, scope = visit.queue, visit.text("scope")
    if scope not in ("all", "tube"):
        raise Refusal(400, "The form does not say what to pause or to resume: scope is all or tube.")
    tube = visit.text("tube") if scope == "tube" else None
    actor = visit.caller.name if visit.caller else None
    try:
        on(entry, partial(call, tube, actor=actor, reason=visit.text("reason") or None))
    except FeatureOff as error:
        raise Refusal(400, f"{error}.") from error
    return console.redirect(visit, f"/q/{entry.slug}/pauses")


# Every page, and the verb that it needs. What is not here is not answered.
PAGES: Final[tuple[Route, ...]] = (
    Route("GET", "/login", OPEN, login_page),
    Route("POST", "/login", OPEN, log_in),
    Route("GET", "/static/console.css", OPEN, static("console.css")),  # the form to log in needs both
    Route("GET", "/static/theme.css", OPEN, theme),
    Route("POST", "/logout", VIEW, log_out),
    Route("GET", "/static/console.js", VIEW, static("console.js")),
    Route("GET", "/static/favicon.svg", VIEW, favicon),
    Route("GET", "/", VIEW, overview),
    Route("GET", "/events", VIEW, events),
    Route("GET", "/live", VIEW, live),
    Route("GET", "/q/{queue}", VIEW, tasks),
    Route("GET", "/q/{queue}/task", VIEW, task),
    Route("GET", "/q/{queue}/failures", VIEW, failures),
    Route("GET", "/q/{queue}/workers", VIEW, workers),
    Route("GET", "/q/{queue}/schedules", VIEW, schedules),
    Route("GET", "/q/{queue}/pauses", VIEW, pauses),
    Route("GET", "/q/{queue}/doctor", VIEW, doctor),
    Route("GET", "/q/{queue}/operations", VIEW, operations),
    Route("GET", "/q/{queue}/operations/{number}", VIEW, operation),
    Route("POST", "/q/{queue}/preview", BY_VERB, preview),
    Route("POST", "/q/{queue}/act", BY_VERB, act),
    Route("POST", "/q/{queue}/operations/{number}/cancel", BY_VERB, cancel),
    Route("POST", "/q/{queue}/operations/{number}/resume", BY_VERB, resume_operation),
    Route("POST", "/q/{queue}/pause", "pause", pause),
    Route("POST", "/q/{queue}/resume", "resume", resume),
)
