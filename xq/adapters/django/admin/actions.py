"""What the admin does with tasks: the table of its actions, and how they move the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.utils import model_ngettext
from django.db import IntegrityError, transaction
from django.template.response import TemplateResponse

import xq
from xq.adapters.django.lookup import alias_of
from xq.core.words import name_of

IN_MEMORY: Final = 100  # tasks in memory at once
NAMED: Final = 10  # tasks that a message or a page names; it counts the others


@dataclass(frozen=True)
class Action:
    """An action on selected tasks, as Django calls it, and a button on a task's page."""

    name: str
    text: str  # {} stands for the tasks
    done: str  # "3 orders were ..."
    event: str  # in the machine
    warning: str = ""  # on the page that asks first; "": it does not ask

    @property
    def __name__(self) -> str:  # Django's for an action's name
        return self.name

    @property
    def allowed_permissions(self) -> tuple[str]:
        return (self.name,)

    @property
    def short_description(self) -> str:
        return self.text.format("selected %(verbose_name_plural)s")

    @property
    def label(self) -> str:
        """The button's text."""
        return self.text.replace(" {}", "")

    def may(self, of_model: Any, request: Any, task: Any) -> bool:
        """Return whether the user may move a task."""
        return bool(getattr(of_model, f"has_{self.name}_permission")(request, task))

    def __call__(self, of_model: Any, request: Any, queryset: Any) -> TemplateResponse | None:
        """Move the tasks one by one, and report how many were moved. Return the page that asks first, or None."""
        if self.warning and "post" not in request.POST:
            return self._ask(of_model, request, queryset)
        moved, left = 0, list[str]()
        for task in batchwise(queryset):
            if reason := self._move(of_model, request, task):
                left.append(f"{task} ({reason})" if len(left) < NAMED else "")
            else:
                moved += 1
        others = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        for n, what, level in (
            (moved, self.done, messages.SUCCESS),
            (len(left), f"not {self.done}: {', '.join(left[:NAMED])}{others}", messages.WARNING),
        ):
            if n:
                were = f"{model_ngettext(of_model.opts, n)} {'was' if n == 1 else 'were'}"
                of_model.message_user(request, f"{n} {were} {what}.", level)
        return None

    def _move(self, of_model: Any, request: Any, task: Any) -> str:
        """Move one task in its own transaction, and log it. Return why it was not moved, or ""."""
        queue = of_model.queue
        if not self.may(of_model, request, task):
            return "you may not"
        try:
            with transaction.atomic(alias_of(queue)), queue.acting(request.user.get_username()):
                getattr(queue, self.event)(task.pk)
        except xq.WrongState as error:
            return f"it is {of_model.words.get(error.state, name_of(error.state))}"
        except xq.NotFound as error:
            return error.found or "it is gone"
        except xq.NotInstalled:
            return "the queue is not installed"
        except (xq.Error, IntegrityError) as error:
            return str(error)
        of_model.log_change(request, task, f"{self.done.capitalize()}.")
        return ""

    def _ask(self, of_model: Any, request: Any, queryset: Any) -> TemplateResponse:
        n = queryset.count()
        context = {
            **of_model.admin_site.each_context(request),
            "title": f"{self.text.format(f'{n} {model_ngettext(of_model.opts, n)}')}?",
            "warning": self.warning,
            "tasks": queryset[:NAMED],
            "others": max(0, n - NAMED),
            "sent": [(name, each) for name, values in request.POST.lists() for each in values],
        }
        request.current_app = of_model.admin_site.name
        return TemplateResponse(request, "admin/xq/confirmation.html", context)


ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for action in (
        Action("dig", "Dig out {}", "dug out", "dig"),
        Action("release", "Release {}", "released", "snatch", "Their workers lose them, and others may take them."),
        Action("restart", "Restart {}", "restarted", "restart"),
        Action("cancel", "Cancel {}", "cancelled", "cancel", "Their workers stop, and their rows are deleted."),
        Action("kill", "Kill {}", "killed", "kill", "Their rows are deleted, in any state and of any owner."),
    )
}


def batchwise(queryset: Any) -> Iterator[Any]:
    """Yield each row of a queryset once, ordered by key, also if rows stop matching meanwhile.

    An open cursor would not do: on SQLite it may return moved rows again.
    """
    queryset = queryset.order_by("pk")
    rows = list(queryset[:IN_MEMORY])
    while rows:
        yield from rows
        rows = list(queryset.filter(pk__gt=rows[-1].pk)[:IN_MEMORY])
