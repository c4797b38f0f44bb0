"""Operations on tasks: previewed, run in a thread of this process, followed, cancelled and resumed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from xq.core.errors import Duplicate, NotFound, NotOwner, WrongState
from xq.operators.filters import parse
from xq.serve.entries import EVENTS, Entry, on
from xq.serve.login import Visit

if TYPE_CHECKING:
    from xq.serve.console import Console

log = logging.getLogger("xq.serve")

EFFECTS: Final = {
    "dig": "Buried tasks become ready again.",
    "release": "Taken tasks become ready again. Their workers lose them: what these have begun may be done twice.",
    "restart": "Waiting and finished tasks become ready again.",
    "bury": "The tasks stay buried until they are dug.",
    "kill": "It deletes the rows of the table {table}, in whatever state the tasks are. It cannot be undone.",
}
SELECTED: Final = 200  # tasks that are moved at once
SKIPPED: Final = (NotFound, WrongState, NotOwner, Duplicate)


class Form:
    """What a form says: what to do to which tasks of a queue. Raises HTTPException for a form that is not whole."""

    def __init__(self, visit: Visit) -> None:
        self.entry, self.filter = visit.entry, visit.filter
        self.verb, self.scope, self.keys = visit.text("verb"), visit.text("scope"), list[str]()
        self.event = EVENTS.get(self.verb, "")
        self.effect = EFFECTS.get(self.verb, "").format(table=self.entry.queue.adapter.store.table)
        if not self.entry.offers(frozenset({self.verb}), self.entry.queue.machine.states):
            raise HTTPException(400, f"{self.entry.name} does not {self.verb} tasks: it has no feature for that.")
        if self.scope == "selected":
            self.keys = list(dict.fromkeys(visit.parameters.get("keys", [])))
        if not 1 <= len(self.keys) <= SELECTED and self.scope != "all":
            raise HTTPException(400, f"Select 1 to {SELECTED} tasks, or choose all that the filter shows.")
        self.asks = self.verb == "kill" and self.scope == "all"  # for the name of the queue: it cannot be undone

    def whole_filter(self) -> str:
        """Return the filter of the page, and the states from which the event moves a task."""
        machine = self.entry.queue.machine
        moved = [state for state in machine.states if state in machine.sources(self.event)]
        if len(moved) == len(machine.states) or any(term.name == "state" for term in parse(self.filter).terms):
            return self.filter
        return f"{self.filter} state:{','.join(moved)}".strip()

    def each(self, call: Any) -> tuple[list[Any], list[str]]:
        """Return what a call returns for each selected key, and why it did not for others."""
        found, skipped = [], []
        for key in self.keys:
            try:
                found.append(call(self.entry.key(key)))
            except SKIPPED as error:
                skipped.append(f"{error}")
        return found, skipped


def preview(console: Console, visit: Visit) -> Response:
    """Show which tasks an operation would move, and ask for a reason."""
    form = Form(visit)
    filter = form.whole_filter() if form.scope == "all" else form.filter
    return console.show("preview.html", visit, form=form, filter=filter)


def act(console: Console, visit: Visit) -> Response:
    """Begin an operation and show its progress; selected tasks are moved at once, in one transaction."""
    form, queue, reason = Form(visit), visit.entry.queue, visit.text("reason").strip() or None
    if form.asks and visit.text("sure") != form.entry.name:
        raise HTTPException(400, f"Nothing was killed: type {form.entry.name} to go on. Go back to the page before.")

    def move() -> tuple[list[Any], list[str]]:
        with queue.acting(visit.caller.name, reason=reason):
            return form.each(getattr(queue, form.event))

    if form.scope == "selected":
        moved, skipped = on(form.entry, move)
        title = f"{form.verb.capitalize()}: {len(moved)} moved" + (f", {len(skipped)} skipped" if skipped else "")
        return console.show("note.html", visit, title=title, lines=skipped[:20], to=visit.here(filter=form.filter))
    made = (form.event, form.filter)
    with console.beginning:  # a second click leads to the operation of the first one while that runs
        same = [id for (slug, id), running in console.running.items() if (slug, running) == (form.entry.slug, made)]
        number = (
            same[0] if same else on(form.entry, lambda: queue.act(*made, actor=visit.caller.name, reason=reason)).id
        )
        _start(console, form.entry, int(number or 0), made)
    return RedirectResponse(visit.here(f"operations/{number}"), 303)


def _start(console: Console, entry: Entry, number: int, made: tuple[str, str]) -> None:
    """Run an operation in a thread, unless it runs here already. A process that ends does not wait for the thread."""
    named = (entry.slug, number)

    def steps() -> None:
        running = entry.queue.operation(number)
        while not console.is_closed and running.step():
            pass

    def run() -> None:
        try:
            with console.room:
                on(entry, steps)
        except Exception as error:
            log.exception("the operation %s of %s failed", number, entry.name)
            console.failed[named] = getattr(error, "detail", f"{error}")
        finally:
            del console.running[named]

    if named not in console.running:
        console.running[named] = made
        console.failed.pop(named, None)
        threading.Thread(target=run, name="xq-console-operation", daemon=True).start()


def go_on(console: Console, visit: Visit) -> Response:
    """Resume or cancel the operation of the path, whose verb the caller must be allowed, whatever the form says."""
    found = on(visit.entry, lambda: visit.entry.queue.operation(visit.number))
    visit.caller.permit(next((verb for verb, event in EVENTS.items() if event == found.event), found.event))
    place, _, what = visit.path.rpartition("/")
    if what == "cancel":
        on(visit.entry, found.cancel)
    elif found.state == "running":
        with console.beginning:
            _start(console, visit.entry, visit.number, (found.event, found.filter))
    return RedirectResponse(visit.url(place), 303)
