"""What the admin does with tasks: the table of its actions, and how they move the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import model_ngettext
from django.contrib.contenttypes.models import ContentType
from django.template.response import TemplateResponse

import xq
from xq.adapters.django.admin.words import letter_of
from xq.core.acting import By
from xq.core.words import name_of
from xq.operators.acts import ACTS, Act
from xq.operators.operations import act_on_keys

IN_MEMORY: Final = 500  # tasks in memory at once, and in one transaction
NAMED: Final = 10  # tasks that a message or a page names; it counts the others
NO_TASK: Final = "its row has a status that is not the queue's"


class Action:
    """An action on selected tasks, as Django calls it, and a button on a task's page."""

    def __init__(self, act: Act) -> None:
        self.act, self.name, self.label = act, act.name, act.name.capitalize()
        self.fresh = act.name == "dig"  # it offers fresh attempts, and asks only if the queue counts attempts
        self.__name__, self.allowed_permissions = act.name, (act.name,)  # Django's, as the next one
        self.short_description = f"{self.label} selected %(verbose_name_plural)s"

    def may(self, of_model: Any, request: Any, task: Any) -> bool:
        """Return whether the user may move a task."""
        return bool(getattr(of_model, f"has_{self.name}_permission")(request, task))

    def __call__(self, of_model: Any, request: Any, queryset: Any) -> TemplateResponse | None:
        """Move the tasks in chunks, each in a transaction, and report how many were moved. Return a page that asks."""
        if (not self.fresh or "attempts" in of_model.queue.roles) and "post" not in request.POST:
            return self._ask(of_model, request, queryset)
        moved, left, named = 0, 0, list[str]()
        for tasks in chunks_of(queryset):
            reasons = self._move(of_model, request, tasks)
            moved, left = moved + len(tasks) - len(reasons), left + len(reasons)
            some = [task for task in tasks if task.pk in reasons][: NAMED - len(named)]
            named += [f"{task} ({reasons[task.pk]})" for task in some]
        others = f" and {left - NAMED:,} more" if left > NAMED else ""
        for n, what, level in (
            (moved, self.act.done, messages.SUCCESS),
            (left, f"not {self.act.done}: {', '.join(named)}{others}", messages.WARNING),
        ):
            if n:
                were = f"{model_ngettext(of_model.opts, n)} {'was' if n == 1 else 'were'}"
                of_model.message_user(request, f"{n:,} {were} {what}.", level)
        return None

    def _move(self, of_model: Any, request: Any, tasks: Any) -> dict[Any, str]:
        """Move tasks in a transaction, and log each. Return why the others were not moved, by key."""
        queue, reasons = of_model.queue, dict[Any, str]()
        for task in tasks:
            letter = letter_of(queue, task)
            if not self.may(of_model, request, task):
                reasons[task.pk] = "you may not"
            elif letter not in queue.machine.sources(self.act.event):
                reasons[task.pk] = f"it is {of_model.words[letter]}" if letter else NO_TASK
        keys = [task.pk for task in tasks if task.pk not in reasons]
        fresh = self.name == "restart" or (self.fresh and "fresh" in request.POST)
        try:
            options: dict[str, Any] = dict(self.act.options(request.POST.get(self.act.option, "")))
            options |= {"fresh": True} if fresh and "attempts" in queue.roles else {}
            refused = act_on_keys(queue, self.name, keys, By.of(request.user.get_username(), None), options)
        except xq.NotInstalled:
            return reasons | dict.fromkeys(keys, "the queue is not installed")
        except xq.BadValue as wrong:
            return reasons | dict.fromkeys(keys, f"{wrong}")
        for key, error in refused:
            if isinstance(error, xq.WrongState):
                reasons[key] = f"it is {of_model.words.get(error.state, name_of(error.state))}"
            else:
                reasons[key] = getattr(error, "found", str(error)) or "it is gone"
        of = {"action_flag": CHANGE, "change_message": f"{self.act.done.capitalize()}.", "user_id": request.user.pk}
        of["content_type"] = ContentType.objects.get_for_model(of_model.model, for_concrete_model=False)
        moved = [task for task in tasks if task.pk not in reasons]
        LogEntry.objects.bulk_create(LogEntry(object_id=task.pk, object_repr=str(task)[:200], **of) for task in moved)
        return reasons

    def _ask(self, of_model: Any, request: Any, queryset: Any) -> TemplateResponse:
        n = queryset.count()
        context = {
            **of_model.admin_site.each_context(request),
            "title": f"{self.label} {n:,} {model_ngettext(of_model.opts, n)}?",
            "warning": self.act.help + ATTEMPTS.get(self.name, ""),
            "tasks": [(task, attempts_of(of_model.queue, task) if self.fresh else "") for task in queryset[:NAMED]],
            "others": max(0, n - NAMED),
            "fresh": self.fresh,
            "option": self.act.option,
            "sent": [(name, each) for name, values in request.POST.lists() for each in values],
        }
        request.current_app = of_model.admin_site.name
        return TemplateResponse(request, "admin/xq/confirmation.html", context)


ATTEMPTS: Final = {
    "dig": " They keep their attempts: one that has had all of them is tried once more. Fresh attempts begin at 0.",
    "restart": " They have fresh attempts.",
}
ACTIONS: Final[Mapping[str, Action]] = {name: Action(act) for name, act in ACTS.items()}


def attempts_of(queue: Any, task: Any) -> str:
    """Return in words how many attempts a task has had, and how many are left if this process knows its worker."""
    roles, handlers = queue.roles, queue.handlers
    had = getattr(task, roles["attempts"]) or 0
    worker = handlers.get(getattr(task, roles.get("tube", ""), None), handlers.get(None))
    most = task.xq_about()[1] if hasattr(task, "xq_about") else worker and worker.options.max_attempts
    left = f", {max(1, most - had)} left of {most}" if most else ""
    return f"{had} attempt{'s' * (had != 1)}{left}"


def chunks_of(queryset: Any) -> Iterator[list[Any]]:
    """Yield each row of a queryset once, in chunks ordered by key, also if rows stop matching meanwhile.

    An open cursor would not do: on SQLite it may return moved rows again.
    """
    queryset = queryset.order_by("pk")
    rows = list(queryset[:IN_MEMORY])
    while rows:
        yield rows
        rows = list(queryset.filter(pk__gt=rows[-1].pk)[:IN_MEMORY])
