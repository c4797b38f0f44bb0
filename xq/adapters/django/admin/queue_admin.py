"""The mixin for the admin of a model that is a queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.templatetags.admin_urls import admin_urlname
from django.contrib.admin.utils import flatten, unquote
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

import xq
from xq.adapters.django.admin.actions import ACTIONS, Action
from xq.adapters.django.admin.filters import StateFilter
from xq.adapters.django.admin.panel import panel_of
from xq.adapters.django.admin.schedules import SchedulesInList
from xq.adapters.django.admin.words import chip, first_line, letter_of, words_of
from xq.adapters.django.connections import non_atomic
from xq.adapters.django.lookup import alias_of, queue_of
from xq.core.errors import shown
from xq.core.machine import MANAGED
from xq.operators.acts import ACTS

BUTTON = "xq_action"  # the parameter in which a button on a task's page names its action


class QueueAdmin(SchedulesInList, admin.ModelAdmin):
    """A mixin for the admin of a model that is a queue: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`.

    The list has a column `xq_state` (last, unless `list_display` names it), a filter by state with the number of tasks
    in each, and the actions dig, release, restart, bury, reprioritise, cancel and kill, if the queue has them. With the
    role error it also has a column `xq_failure`. A task's page says what the queue knows about it, and has buttons for
    the actions.

    If the model has words of its own for the states (`statuses=`), its rows are the application's: of the actions that
    repeat finished work or delete rows (restart, cancel, kill) it has those that `xq_actions` names.

    has_dig_permission(request, obj=None) and its siblings allow an action: by default to users with the right to change
    the model, cancel and kill with the right to delete. Fields that only xq writes are read-only, and left out when a
    row is added. The status of a row that is not a task can be edited. Raises ConfigurationError for a model that is
    not a queue.
    """

    state_words: Mapping[str, str] = {}  # words for states, by letter, in place of the model's
    xq_actions: Sequence[str] = ()  # with `statuses=`: those of restart, cancel and kill that it has
    xq_deferred: Sequence[str] = ()  # large fields, which the list does not read
    error_field: str | None = None  # the error's field; None: that of the role error
    dig, release, restart, bury, reprioritise, cancel, kill = ACTIONS.values()

    class Media:
        css = {"all": ["xq/admin.css"]}

    def __init__(self, model: Any, admin_site: Any) -> None:
        super().__init__(model, admin_site)
        me = type(self).__name__
        queue = queue_of(model._meta.concrete_model)
        if queue is None:
            raise xq.ConfigurationError(
                f"{me} is a QueueAdmin, and {model.__name__} is not a queue: upgrade it where it is defined, or "
                "register it by a plain ModelAdmin"
            )
        self.queue: xq.Queue[Any] = queue
        self.words = words_of(queue, self.state_words)
        self.error_field = self.error_field or queue.roles.get("error")
        status, self._managed = queue.roles["status"], [queue.roles[role] for role in MANAGED if role in queue.roles]
        if wrong := [name for name in self.list_editable if name in self._managed]:
            raise xq.ConfigurationError(f"{me}.list_editable has {', '.join(wrong)}, which only the queue may write")
        self._fixed_in_tasks = {status}.difference(self.readonly_fields)
        self.readonly_fields: Sequence[Any] = _with(self.readonly_fields, self._managed)
        self.xq_state = admin.display(description="state", ordering=status)(partial(self._state))
        columns = ["xq_state", "xq_failure"] if self.error_field else ["xq_state"]
        self.list_display: Sequence[Any] = _with(self.list_display, columns)
        self.list_filter: Sequence[Any] = _with([StateFilter], self.list_filter)
        if wrong := [name for name in self.xq_actions if name not in ACTIONS]:
            raise xq.ConfigurationError(
                f"{me}.xq_actions has {shown(wrong[0])}, and names some of {', '.join(ACTIONS)}"
            )
        maps = any(letter != word for letter, word in queue.statuses.items())
        if self.actions is not None:
            on = [act for act in ACTS.values() if act.risk in ("", "lost") or not maps or act.name in self.xq_actions]
            has = [act.name for act in on if act.moves(queue.machine, queue.machine.states)]
            self.actions: Sequence[Any] | None = _with(self.actions, has)

    def get_queryset(self, request: Any) -> Any:
        """Read from the queue's database: a replica may be out of date."""
        return super().get_queryset(request).using(alias_of(self.queue)).defer(*self.xq_deferred)

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        """Write to the queue's database."""
        obj.save(using=alias_of(self.queue))

    def get_readonly_fields(self, request: Any, obj: Any = None) -> Any:
        """Let the status of a row that is no task be edited: a status known to the queue makes it a task."""
        fields = super().get_readonly_fields(request, obj)
        if obj is None or letter_of(self.queue, obj) is not None:
            return fields
        return [name for name in fields if name not in self._fixed_in_tasks]

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """Leave out the fields that only the queue writes when a row is added: the queue has not written them yet."""
        sets = super().get_fieldsets(request, obj)
        if obj is not None:
            return sets
        left = [[name for name in flatten(options["fields"]) if name not in self._managed] for _, options in sets]
        return [(title, {**options, "fields": names}) for (title, options), names in zip(sets, left, strict=True)]

    def _state(self, task: Any) -> object:
        letter = letter_of(self.queue, task)
        return getattr(task, self.queue.roles["status"]) if letter is None else chip(letter, self.words[letter])

    @admin.display(description="error")
    def xq_failure(self, task: Any) -> str:
        return first_line(getattr(task, str(self.error_field)))

    # permissions

    def has_dig_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_change_permission(request, obj))

    has_release_permission = has_restart_permission = has_bury_permission = has_dig_permission
    has_reprioritise_permission = has_dig_permission

    def has_kill_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_delete_permission(request, obj))

    has_cancel_permission = has_kill_permission

    @non_atomic
    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show the list, or do an action: those of the queue outside of a transaction that ATOMIC_REQUESTS asks for."""
        is_of_xq = not ACTIONS.keys().isdisjoint(request.POST.getlist("action"))
        with ExitStack() as stack:
            for alias, settings in connections.settings.items():
                if settings["ATOMIC_REQUESTS"] and not is_of_xq:
                    stack.enter_context(transaction.atomic(alias))
            return super().changelist_view(request, extra_context)

    # a task's page

    def queue_actions(self, request: Any) -> dict[str, Action]:
        """Return the actions on tasks that the user may use, by name."""
        offered = self.get_actions(request).items()  # tuples before Django 6.1
        found = {name: each[0] if isinstance(each, tuple) else each.func for name, each in offered}
        return {name: action for name, action in found.items() if isinstance(action, Action)}

    def change_view(self, request: Any, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        """Do what a button on the page says, or show or save the form."""
        task = self.get_object(request, unquote(object_id)) if BUTTON in request.POST else None
        if task is None:
            return super().change_view(request, object_id, form_url, extra_context)
        action = self.queue_actions(request).get(request.POST[BUTTON])
        if action is None:
            raise PermissionDenied
        rows = self.get_queryset(request).filter(pk=task.pk)
        asks = action(self, request, rows)
        listed = reverse(admin_urlname(self.opts, "changelist"), current_app=self.admin_site.name)
        return asks or HttpResponseRedirect(request.get_full_path() if rows.exists() else listed)

    def render_change_form(self, request: Any, context: Any, *args: Any, obj: Any = None, **options: Any) -> Any:
        """Put what the queue knows about the task above the form. The form keeps its own template."""
        response = super().render_change_form(request, context, *args, obj=obj, **options)
        if obj is not None and isinstance(response, TemplateResponse):
            form = response.resolve_template(response.template_name)
            response.context_data |= {"xq_form": form, "xq": panel_of(self, request, obj)}
            response.template_name = "admin/xq/task.html"
        return response


def _with(some: Sequence[Any], more: Iterable[Any]) -> list[Any]:
    """Return both lists as one, without duplicates."""
    return [*some, *(one for one in more if one not in some)]
