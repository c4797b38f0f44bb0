"""Operations on tasks: previewed, run in a thread here, shown beside a queue's numbers, cancelled."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from xq.core.errors import Duplicate, NotFound, NotOwner, WrongState
from xq.database.callers import begun
from xq.operators.acts import ACTS
from xq.operators.operations import Operation, act_on
from xq.serve.console import Begun, Console
from xq.serve.entries import ConsoleQueue, on
from xq.serve.login import Visit, log
from xq.serve.snapshot import Look

SELECTED: Final = 200  # tasks that are moved at once


class OperationForm:
    """What a form says: what to do to which tasks in a queue. Raises HTTPException for an incomplete form."""

    def __init__(self, visit: Visit) -> None:
        self.entry, self.filter = visit.entry, visit.filter
        self.verb, self.scope, self.keys = visit.text("verb"), visit.text("scope"), list[str]()
        if not self.entry.offers(frozenset({self.verb}), self.entry.queue.machine.states):
            raise HTTPException(400, f"{self.entry.name} does not {self.verb} tasks: it has no feature for that.")
        self.act = ACTS[self.verb]
        if self.scope == "selected":
            self.keys = list(dict.fromkeys(visit.parameters.get("keys", [])))
        if not 1 <= len(self.keys) <= SELECTED and self.scope != "all":
            raise HTTPException(400, f"Select 1 to {SELECTED} tasks, or choose all that the filter shows.")
        self.asks = self.scope == "all" and self.act.risk  # for the queue's name

    def move(self, by: str, reason: str | None, options: dict[str, float]) -> list[str]:
        """Move the selected tasks in one transaction. Return why others were skipped."""
        queue, skipped = self.entry.queue, []
        with queue.acting(by, reason=reason):
            for key in self.keys:
                try:
                    act_on(queue, self.verb, self.entry.key(key), **options)
                except (NotFound, WrongState, NotOwner, Duplicate) as error:
                    skipped.append(f"{error}")
        return skipped


def preview(console: Console, visit: Visit) -> Response:
    """Show which tasks an operation would move, and ask for a reason."""
    return console.show("preview.html", visit, form=OperationForm(visit))


def act(console: Console, visit: Visit) -> Response:
    """Begin an operation and show its progress; selected tasks are moved at once, in one transaction."""
    form, queue, reason = OperationForm(visit), visit.entry.queue, visit.text("reason").strip() or None
    if form.asks and visit.text("sure") != form.entry.name:
        raise HTTPException(400, f"Nothing was moved: type {form.entry.name} to go on. Go back to the page before.")
    options = form.act.options(visit.text(form.act.option))
    if form.scope == "selected":
        skipped = on(form.entry, partial(form.move, visit.caller.name, reason, options))
        title = f"{form.verb.capitalize()}: {len(form.keys) - len(skipped)} moved"
        title += f", {len(skipped)} skipped" if skipped else ""
        return console.show("note.html", visit, title=title, lines=skipped[:20])
    begin = partial(queue.act, form.verb, form.filter, actor=visit.caller.name, reason=reason, **options)
    operation = on(form.entry, begin)
    key = form.entry, form.verb, form.filter
    with console.beginning:  # a second click begins nothing while the first one's operation runs
        if key not in console.operations or console.operations[key].ended.done():
            console.operations.pop(key, None)  # the last one is the newest
            run = partial(_run, console.look[form.entry], form.entry, operation)
            console.operations[key] = Begun(form.entry, operation, begun(run))
    return RedirectResponse(visit.here(filter=form.filter), 303)


def _run(look: Look, entry: ConsoleQueue, operation: Operation[Any]) -> None:
    """Run an operation when it is its turn. A process that ends does not wait for it."""
    try:
        with look.operations:
            on(entry, operation.run)
    except Exception:
        log.exception("%r of %s failed", operation, entry.name)
        raise


async def cancel(console: Console, visit: Visit) -> Response:
    """Cancel an operation, whatever its database does. The form names its verb, which must be allowed."""
    found = console.operations.get((visit.entry, visit.text("verb"), visit.filter))
    if found is None:
        raise HTTPException(404, "This process has no such operation.")
    found.operation.cancel()
    return RedirectResponse(visit.here(filter=visit.filter), 303)
