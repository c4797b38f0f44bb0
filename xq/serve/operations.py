"""Operations on tasks: previewed, run in a thread of this process, followed and cancelled."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from xq.core.errors import Duplicate, NotFound, NotOwner, WrongState
from xq.operators.operations import Operation, act_on
from xq.serve.entries import Entry, on
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


class Form:
    """What a form says: what to do to which tasks of a queue. Raises HTTPException for a form that is not whole."""

    def __init__(self, visit: Visit) -> None:
        self.entry, self.filter = visit.entry, visit.filter
        self.verb, self.scope, self.keys = visit.text("verb"), visit.text("scope"), list[str]()
        self.effect = EFFECTS.get(self.verb, "").format(table=self.entry.queue.adapter.store.table)
        if not self.entry.offers(frozenset({self.verb}), self.entry.queue.machine.states):
            raise HTTPException(400, f"{self.entry.name} does not {self.verb} tasks: it has no feature for that.")
        if self.scope == "selected":
            self.keys = list(dict.fromkeys(visit.parameters.get("keys", [])))
        if not 1 <= len(self.keys) <= SELECTED and self.scope != "all":
            raise HTTPException(400, f"Select 1 to {SELECTED} tasks, or choose all that the filter shows.")
        self.asks = self.verb == "kill" and self.scope == "all"  # for the name of the queue: it cannot be undone

    def move(self, by: str, reason: str | None) -> list[str]:
        """Move the selected tasks in one transaction. Return why others were skipped."""
        queue, skipped = self.entry.queue, []
        with queue.acting(by, reason=reason):
            for key in self.keys:
                try:
                    act_on(queue, self.verb, self.entry.key(key))
                except (NotFound, WrongState, NotOwner, Duplicate) as error:
                    skipped.append(f"{error}")
        return skipped


def preview(console: Console, visit: Visit) -> Response:
    """Show which tasks an operation would move, and ask for a reason."""
    if visit.text("scope") == "selected" and not visit.text("keys"):  # of a browser without JavaScript
        return console.show(
            "tasks.html", visit, 400, missing="No task is selected. Select some, or all that the filter shows."
        )
    return console.show("preview.html", visit, form=Form(visit))


def act(console: Console, visit: Visit) -> Response:
    """Begin an operation and show its progress; selected tasks are moved at once, in one transaction."""
    form, queue, reason = Form(visit), visit.entry.queue, visit.text("reason").strip() or None
    if form.asks and visit.text("sure") != form.entry.name:
        raise HTTPException(400, f"Nothing was killed: type {form.entry.name} to go on. Go back to the page before.")
    if form.scope == "selected":
        skipped = on(form.entry, partial(form.move, visit.caller.name, reason))
        title = f"{form.verb.capitalize()}: {len(form.keys) - len(skipped)} moved"
        title += f", {len(skipped)} skipped" if skipped else ""
        return console.show("note.html", visit, title=title, lines=skipped[:20])
    operation = on(form.entry, lambda: queue.act(form.verb, form.filter, actor=visit.caller.name, reason=reason))
    with console.beginning:  # a second click begins nothing while the first one's operation runs
        running = [each.operation for each in of_queue(console, form.entry) if each.is_running]
        if (form.verb, form.filter) not in [(each.event, each.filter) for each in running]:
            begun = Begun(form.entry, len(console.operations) + 1, operation)
            console.operations.append(begun)
            threading.Thread(target=begun.run, args=(console,), name="xq-console-operation", daemon=True).start()
    return RedirectResponse(visit.here("operations"), 303)


@dataclass(eq=False)
class Begun:
    """An operation that a thread of this process runs, or has run."""

    entry: Entry
    number: int
    operation: Operation[Any]
    began: float = field(default_factory=time.time)
    n: int | None = None  # the tasks that it moves; None if they are too many to count
    is_running: bool = True  # or waits for its turn
    error: str = ""  # why it failed

    @property
    def percent(self) -> int | None:
        """How far it has come."""
        moved = self.operation.done + self.operation.skipped
        return 100 * min(moved, self.n) // self.n if self.n else None

    def run(self, console: Console) -> None:
        """Run the operation. A process that ends does not wait for it."""
        try:
            with console.snapshots.look[self.entry].operations:
                on(self.entry, self._run)
        except Exception as error:
            log.exception("%r of %s failed", self.operation, self.entry.name)
            self.error = getattr(error, "detail", f"{error}")
        finally:
            self.is_running = False

    def _run(self) -> None:
        preview = self.operation.preview
        self.n = preview.n if preview.exact else None
        self.operation.run()


def of_queue(console: Console, entry: Entry) -> list[Begun]:
    """Return the operations of this process on a queue, the newest first."""
    return [each for each in reversed(console.operations) if each.entry is entry]


def operations(console: Console, visit: Visit) -> Response:
    """Show the operations of this process on a queue."""
    mine = of_queue(console, visit.entry)
    return console.show("operations.html", visit, operations=mine, refresh=any(each.is_running for each in mine))


def cancel(console: Console, visit: Visit) -> Response:
    """Cancel an operation, whose own verb the caller must be allowed, whatever the form says."""
    number = visit.text("number")
    found = [each.operation for each in of_queue(console, visit.entry) if f"{each.number}" == number]
    if not found:
        raise HTTPException(404, "This process has no such operation.")
    visit.caller.permit(found[0].event)
    found[0].cancel()
    return RedirectResponse(visit.here("operations"), 303)
