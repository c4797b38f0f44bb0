"""The mixin for the admin of a model that is a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import flatten, model_ngettext, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

import xq
from xq.adapters.django.admin.filters import ErrorFilter, StateFilter
from xq.adapters.django.admin.labels import chip, first_line, labels_of, letter_of
from xq.adapters.django.admin.moves import ACTIONS, batchwise, offered
from xq.adapters.django.admin.overview import add_overview
from xq.adapters.django.admin.panel import panel_of
from xq.adapters.django.lookup import alias_of, queue_of
from xq.core.machine import MANAGED
from xq.core.words import name_of

NAMED: Final = 10  # tasks that a message or a page names; it counts the others
HISTORY: Final = "xq_history"  # the parameter of a task's page that asks for a long history


class QueueAdmin(admin.ModelAdmin):
    """A mixin for the admin of a model that is a queue: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`.

    The list has a column `xq_state` (last, unless `list_display` names it), a filter by state with the number of tasks
    in each, and the actions dig, release, restart, put and kill, if the queue has them. With the role error it also has
    a column `xq_error` and a filter by errors. The page of a task says what the queue knows of it, and has buttons for
    the actions.

    has_dig_permission(request, obj=None) and its siblings allow an action: by default to users that may change the
    model, and kill to those that may delete. Fields that only xq writes are read-only, and left out when a row is
    added. The status of a row that is not a task can be edited. Raises ConfigurationError for a model that is not a
    queue.
    """

    state_words: Mapping[str, str] = {}  # words for states, by letter, in place of those of the model
    error_field: str | None = None  # the field of the error; None: that of the role error

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
        self.words = labels_of(queue, self.state_words)
        self.error_field = self.error_field or queue.roles.get("error")
        self._managed = [field for role, field in queue.roles.items() if role in MANAGED]
        if wrong := [name for name in self.list_editable if name in self._managed]:
            raise xq.ConfigurationError(f"{me}.list_editable has {', '.join(wrong)}, which only the queue may write")
        self.xq_state = admin.display(description="state", ordering=queue.roles["status"])(partial(self._word))
        self.xq_error = admin.display(description="error")(partial(self._error))
        columns, filters = ["xq_state"], [StateFilter]
        if self.error_field:
            columns, filters = [*columns, "xq_error"], [*filters, ErrorFilter]
        self._of_tasks = {queue.roles["status"]}.difference(self.readonly_fields)  # fixed in tasks, not in other rows
        self.readonly_fields: Sequence[Any] = _with(self.readonly_fields, self._managed)
        self.list_display: Sequence[Any] = _with(self.list_display, columns)
        self.list_filter: Sequence[Any] = _with(filters, self.list_filter)
        if self.actions is not None:
            self.actions: Sequence[Any] | None = _with(self.actions, offered(queue))
        add_overview(admin_site)

    # what is read and shown

    def get_queryset(self, request: Any) -> Any:
        """Read from the queue's database: a replica may be out of date."""
        return super().get_queryset(request).using(alias_of(self.queue))

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        """Write to the queue's database."""
        obj.save(using=alias_of(self.queue))

    def get_readonly_fields(self, request: Any, obj: Any = None) -> Any:
        """Let the status of a row that is no task be edited: a status of the queue's makes it a task."""
        fields = super().get_readonly_fields(request, obj)
        if obj is None or letter_of(self.queue, obj) is not None:
            return fields
        return [name for name in fields if name not in self._of_tasks]

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """Leave out the fields that only the queue writes when a row is added: the queue has not written them yet."""
        sets = super().get_fieldsets(request, obj)
        return sets if obj is not None else [(name, self._without_managed(options)) for name, options in sets]

    def _without_managed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        lines: list[Any] = []
        for line in options.get("fields", ()):
            kept = [name for name in flatten([line]) if name not in self._managed]
            lines += [tuple(kept)] if len(kept) > 1 else kept
        return {**options, "fields": lines}

    def _word(self, task: Any) -> object:
        letter = letter_of(self.queue, task)
        status = getattr(task, self.queue.roles["status"])
        return status if letter is None else chip(letter, self.words[letter], f"{name_of(letter)}, status {status}")

    def _error(self, task: Any) -> str:
        return first_line(getattr(task, str(self.error_field)))

    # who may do what

    def has_dig_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_change_permission(request, obj))

    def has_release_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_change_permission(request, obj))

    def has_restart_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_change_permission(request, obj))

    def has_put_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_change_permission(request, obj))

    def has_kill_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self.has_delete_permission(request, obj))

    def _may(self, name: str, request: Any, task: Any) -> bool:
        return bool(getattr(self, f"has_{name}_permission")(request, task))

    # actions on the tasks of a list

    @admin.action(permissions=["dig"], description=ACTIONS["dig"].offer)
    def dig(self, request: Any, queryset: Any) -> Any:
        return self._act("dig", request, queryset)

    @admin.action(permissions=["release"], description=ACTIONS["release"].offer)
    def release(self, request: Any, queryset: Any) -> Any:
        return self._act("release", request, queryset)

    @admin.action(permissions=["restart"], description=ACTIONS["restart"].offer)
    def restart(self, request: Any, queryset: Any) -> Any:
        return self._act("restart", request, queryset)

    @admin.action(permissions=["put"], description=ACTIONS["put"].offer)
    def put(self, request: Any, queryset: Any) -> Any:
        return self._act("put", request, queryset)

    @admin.action(permissions=["kill"], description=ACTIONS["kill"].offer)
    def kill(self, request: Any, queryset: Any) -> Any:
        return self._act("kill", request, queryset)

    def _act(self, name: str, request: Any, queryset: Any) -> Any:
        action = ACTIONS[name]
        if action.warning and "post" not in request.POST:
            return self._ask_for_selected(name, request, queryset)
        moved, left = 0, 0
        refused: list[str] = []  # the errors of the first remaining tasks
        for task in batchwise(queryset):
            try:
                reason = self._move(name, request, task)
            except xq.NotInstalled as error:
                self.message_user(request, str(error), messages.ERROR)
                break
            if not reason:
                moved += 1
                continue
            left += 1
            if len(refused) < NAMED:
                refused.append(f"{task} ({reason})")
        if moved:
            text = f"{moved} {model_ngettext(self.opts, moved)} {_were(moved)} {action.done}."
            self.message_user(request, text, messages.SUCCESS)
        if left:
            text = (
                f"{left} {model_ngettext(self.opts, left)} {_were(left)} not {action.done}: {_listed(refused, left)}."
            )
            self.message_user(request, text, messages.WARNING)
        return None

    def _move(self, name: str, request: Any, task: Any) -> str:
        """Move one task, in a transaction of its own, and log it. Returns why not, or "". Raises NotInstalled."""
        if not self._may(name, request, task):
            return "you may not"
        action = ACTIONS[name]
        try:
            with transaction.atomic(alias_of(self.queue)), self.queue.acting(request.user.get_username()):
                action.move(self.queue, task)
        except xq.NotInstalled:
            raise
        except (xq.Error, IntegrityError) as error:
            return self._reason(error)
        self.log_change(request, task, f"{action.done.capitalize()}.")
        return ""

    def _reason(self, error: Exception) -> str:
        if isinstance(error, xq.WrongState):
            return f"it is {self.words.get(error.state, name_of(error.state))}"
        return error.found or "it is gone" if isinstance(error, xq.NotFound) else str(error)

    def _ask_for_selected(self, name: str, request: Any, queryset: Any) -> TemplateResponse:
        n = queryset.count()
        asked = {
            "title": ACTIONS[name].question(f"{n} {model_ngettext(self.opts, n)}"),
            "tasks": queryset[:NAMED],
            "others": max(0, n - NAMED),
            "checkbox": ACTION_CHECKBOX_NAME,
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "select_across": request.POST.get("select_across", "0"),
            "back": request.get_full_path(),
        }
        return self._ask(name, request, asked)

    def _ask(self, name: str, request: Any, asked: Mapping[str, Any]) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            "warning": ACTIONS[name].warning,
            "action": name,
            **asked,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/xq/confirmation.html", context)

    # the page of one task

    def get_urls(self) -> list[Any]:
        """Add the address to which the buttons of a task's page are sent."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_queue"
        view = self.admin_site.admin_view(self.move_view)
        return [path("<path:object_id>/queue/", view, name=name), *super().get_urls()]

    def _address(self, name: str, *args: object) -> str:
        at = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(at, args=args, current_app=self.admin_site.name)

    def move_view(self, request: Any, object_id: str) -> Any:
        """Move one task as a button of its page says, after a confirmation if the action has a warning."""
        task = self.get_object(request, unquote(object_id))
        if not self.has_view_or_change_permission(request, task):
            raise PermissionDenied
        if task is None:
            self.message_user(request, f"This {self.opts.verbose_name} is gone.", messages.WARNING)
            return HttpResponseRedirect(self._address("changelist"))
        page = self._address("change", quote(task.pk))
        if request.method != "POST":
            return HttpResponseRedirect(page)
        name = request.POST.get("action", "")
        if name not in offered(self.queue):
            raise Http404(f"{self.queue.name} has no such action")
        if not self._may(name, request, task):
            raise PermissionDenied
        if ACTIONS[name].warning and "post" not in request.POST:
            return self._ask(name, request, {"title": ACTIONS[name].question(str(task)), "back": page})
        return HttpResponseRedirect(page if self._press(name, request, task) else self._address("changelist"))

    def _press(self, name: str, request: Any, task: Any) -> bool:
        """Move a task, and report it. Returns whether the page of the task is still there."""
        shown = f"{self.opts.verbose_name} “{task}”"
        try:
            reason = self._move(name, request, task)
        except xq.NotInstalled as error:
            self.message_user(request, str(error), messages.ERROR)
            return True
        if reason:
            self.message_user(request, f"The {shown} was not {ACTIONS[name].done}: {reason}.", messages.WARNING)
            return True
        self.message_user(request, f"The {shown} was {ACTIONS[name].done}.", messages.SUCCESS)
        return name != "kill"

    def render_change_form(
        self, request: Any, context: Any, add: bool = False, change: bool = False, form_url: str = "", obj: Any = None
    ) -> Any:
        """Put the state, times and history of the task above the form. The form keeps its own template."""
        response = super().render_change_form(request, context, add=add, change=change, form_url=form_url, obj=obj)
        if obj is None or not change or not isinstance(response, TemplateResponse):
            return response
        letter = letter_of(self.queue, obj)
        buttons = [name for name in offered(self.queue) if ACTIONS[name].moves(self.queue, letter)]
        response.context_data |= {
            "xq_form": response.resolve_template(response.template_name),
            "xq": panel_of(self.queue, obj, self.words, self.error_field, HISTORY in request.GET),
            "xq_address": self._address("queue", quote(obj.pk)),
            "xq_buttons": [(name, ACTIONS[name].label) for name in buttons if self._may(name, request, obj)],
            "xq_history": f"?{HISTORY}=1",
        }
        response.template_name = "admin/xq/task.html"
        return response


def _with(some: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """Return both lists as one, without duplicates."""
    return [*some, *(one for one in more if one not in some)]


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def _listed(some: Sequence[str], n: int) -> str:
    """Return the names of some of `n`, and the number of the others."""
    return ", ".join(some) + (f" and {n - len(some)} more" if n > len(some) else "")
