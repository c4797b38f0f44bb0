"""Queues in Django's admin: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import model_ngettext
from django.db import IntegrityError, transaction
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

import xq
from xq.adapters.django.lookup import alias_of, queue_of
from xq.core.machine import MANAGED, NAMES

BATCH: Final = 100  # tasks in memory at once
NAMED: Final = 10  # tasks that a message or a page names; it counts the others


@dataclass(frozen=True)
class Action:
    """An action of the admin. A queue without the event does not have it."""

    event: str
    done: str  # "3 orders were ..."
    warning: str = ""  # the question of the confirmation page


ACTIONS: Final[Mapping[str, Action]] = {
    "dig": Action("dig", "dug out"),
    "release": Action("snatch", "released", "They are taken away from their owners, and are ready at once."),
    "restart": Action("restart", "restarted"),
    "kill": Action("kill", "killed", "They are deleted, whatever their state and their owners."),
}


def named(letter: str) -> str:
    """Return the name of a state: of R, "ready"."""
    return NAMES.get(letter, letter).lower()


def word(letter: str, title: object = "") -> SafeString:
    """Return the name of a state as coloured HTML."""
    return format_html('<span class="xq-state xq-{}" title="{}">{}</span>', letter, title, named(letter))


class StateFilter(admin.SimpleListFilter):
    """A filter by state, with the number of tasks in each. The numbers come from counters, never from COUNT(*)."""

    title = "state"
    parameter_name = "xq_state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        self.queue = model_admin.queue
        self.counts: Mapping[str, int] = {}
        try:
            self.counts = self.queue.stats().counts
        except xq.Error as error:
            if request.method == "GET":  # a POST redirects to a GET
                messages.error(request, str(error))
        return [(letter, named(letter)) for letter in self.queue.machine.states]

    def queryset(self, request: Any, queryset: Any) -> Any:
        letter = self.value()
        if letter is None:
            return queryset
        if letter not in self.queue.machine.states:
            raise IncorrectLookupParameters(f"{letter!r} is no state of {self.queue.name}")
        return queryset.filter(**{self.queue.roles["status"]: self.queue.statuses[letter]})

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        shown = {None: "All"} | {letter: word(letter) for letter, _ in self.lookup_choices}
        for letter, text in shown.items():
            n = sum(self.counts.values()) if letter is None else self.counts.get(letter)
            yield {
                "selected": self.value() == letter,
                "query_string": changelist.get_query_string({self.parameter_name: letter}),
                "display": format_html('{} <span class="xq-count">{}</span>', text, n if self.counts else "?"),
            }


class QueueAdmin(admin.ModelAdmin):
    """A mixin for the admin of a model that is a queue: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`.

    The list has a column `xq_state` (last, unless `list_display` names it), a filter by state with the number of tasks
    in each, and the actions dig, release, restart and kill, if the queue has them. has_dig_permission(request) and its
    siblings decide who may run an action: users who may change the model; for kill, users who may delete. The fields
    that only xq writes are read-only. Raises ConfigurationError for a model that is not a queue.
    """

    class Media:
        css = {"all": ["xq/admin.css"]}

    def __init__(self, model: Any, admin_site: Any) -> None:
        super().__init__(model, admin_site)
        me = type(self).__name__
        queue = queue_of(model._meta.concrete_model)
        if queue is None:
            raise xq.ConfigurationError(
                f"{me} is a QueueAdmin, and {model.__name__} is no queue: upgrade it where it is defined, or register "
                "it by a plain ModelAdmin"
            )
        self.queue: xq.Queue[Any] = queue
        managed = [field for role, field in queue.roles.items() if role in MANAGED]
        if wrong := [name for name in self.list_editable if name in managed]:
            raise xq.ConfigurationError(f"{me}.list_editable has {', '.join(wrong)}, which only the queue may write")
        self.xq_state = admin.display(description="state", ordering=queue.roles["status"])(partial(self._word))
        self.readonly_fields: Sequence[Any] = _with(self.readonly_fields, managed)
        self.list_display: Sequence[Any] = _with(self.list_display, ["xq_state"])
        self.list_filter: Sequence[Any] = _with([StateFilter], self.list_filter)
        if self.actions is not None:
            offered = [name for name, action in ACTIONS.items() if queue.machine.sources(action.event)]
            self.actions: Sequence[Any] | None = _with(self.actions, offered)

    def get_queryset(self, request: Any) -> Any:
        """Read from the queue's database: a replica may be out of date."""
        return super().get_queryset(request).using(alias_of(self.queue))

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        """Write to the queue's database."""
        obj.save(using=alias_of(self.queue))

    def _word(self, task: Any) -> object:
        status = getattr(task, self.queue.roles["status"])
        letter = next((letter for letter, stored in self.queue.statuses.items() if stored == status), None)
        return status if letter is None else word(letter, status)  # the status of a row that is not a task

    def has_dig_permission(self, request: Any) -> bool:
        return bool(self.has_change_permission(request))

    def has_release_permission(self, request: Any) -> bool:
        return bool(self.has_change_permission(request))

    def has_restart_permission(self, request: Any) -> bool:
        return bool(self.has_change_permission(request))

    def has_kill_permission(self, request: Any) -> bool:
        return bool(self.has_delete_permission(request))

    @admin.action(permissions=["dig"], description="Dig out selected %(verbose_name_plural)s")
    def dig(self, request: Any, queryset: Any) -> Any:
        return self._act("dig", request, queryset)

    @admin.action(permissions=["release"], description="Release selected %(verbose_name_plural)s")
    def release(self, request: Any, queryset: Any) -> Any:
        return self._act("release", request, queryset)

    @admin.action(permissions=["restart"], description="Restart selected %(verbose_name_plural)s")
    def restart(self, request: Any, queryset: Any) -> Any:
        return self._act("restart", request, queryset)

    @admin.action(permissions=["kill"], description="Kill selected %(verbose_name_plural)s")
    def kill(self, request: Any, queryset: Any) -> Any:
        return self._act("kill", request, queryset)

    def _act(self, name: str, request: Any, queryset: Any) -> Any:
        action = ACTIONS[name]
        if action.warning and "post" not in request.POST:
            return self._ask(name, request, queryset)
        moved, left = 0, 0
        refused: list[str] = []  # the errors of the first remaining tasks
        for task in _batchwise(queryset):
            try:
                with transaction.atomic(alias_of(self.queue)):
                    getattr(self.queue, action.event)(task.pk)
            except xq.NotInstalled as error:
                self.message_user(request, str(error), messages.ERROR)
                break
            except (xq.Error, IntegrityError) as error:
                left += 1
                if len(refused) < NAMED:
                    refused.append(f"{task} ({_reason(error)})")
            else:
                moved += 1
                self.log_change(request, task, f"{action.done.capitalize()}.")
        if moved:
            text = f"{moved} {model_ngettext(self.opts, moved)} {_were(moved)} {action.done}."
            self.message_user(request, text, messages.SUCCESS)
        if left:
            text = (
                f"{left} {model_ngettext(self.opts, left)} {_were(left)} not {action.done}: {_listed(refused, left)}."
            )
            self.message_user(request, text, messages.WARNING)
        return None

    def _ask(self, name: str, request: Any, queryset: Any) -> TemplateResponse:
        n = queryset.count()
        tasks = model_ngettext(self.opts, n)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{name.capitalize()} {n} {tasks}?",
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            "warning": ACTIONS[name].warning,
            "tasks": queryset[:NAMED],
            "others": max(0, n - NAMED),
            "action": name,
            "checkbox": ACTION_CHECKBOX_NAME,
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "select_across": request.POST.get("select_across", "0"),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/xq/confirmation.html", context)


def _with(some: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """Return both lists as one, without duplicates."""
    return [*some, *(one for one in more if one not in some)]


def _batchwise(queryset: Any) -> Iterator[Any]:
    """Yield each row of a queryset once, in the order of keys, also if rows stop matching meanwhile.

    An open cursor would not do: on SQLite it may return moved rows again.
    """
    queryset = queryset.order_by("pk")
    rows = list(queryset[:BATCH])
    while rows:
        yield from rows
        rows = list(queryset.filter(pk__gt=rows[-1].pk)[:BATCH])


def _reason(error: Exception) -> str:
    if isinstance(error, xq.WrongState):
        return f"it is {named(error.state)}"
    return error.found or "it is gone" if isinstance(error, xq.NotFound) else str(error)


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def _listed(some: Sequence[str], n: int) -> str:
    """Return the names of some of `n`, and the number of the others."""
    return ", ".join(some) + (f" and {n - len(some)} more" if n > len(some) else "")
