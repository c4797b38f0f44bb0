"""The schedules and the limits of a queue, above the list of its tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse

import xq
from xq.adapters.django.admin.words import moment
from xq.core.words import lasting
from xq.engine.limits import limit_in_text

SCHEDULE: Final = "xq_schedule"  # the parameter in which a button names its schedule
LIMIT: Final = "xq_limit"  # the parameter in which a form names the feature whose limit it sets
MOST: Final = 100  # limits that are shown
DONE: Final = {"pause": "paused", "resume": "resumed"}  # by what the parameter xq_change says


class SchedulesInList(admin.ModelAdmin):
    """Shows the queue's schedules and limits above the list. Users that may change the model change them."""

    queue: xq.Queue[Any]

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        if SCHEDULE in request.POST:
            return self._change_schedule(request, request.POST[SCHEDULE], request.POST.get("xq_change"))
        if LIMIT in request.POST:
            return self._set_limit(request, request.POST)
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and "cl" in (response.context_data or {}):
            with suppress(xq.Error):  # the filter by state reports it
                found, limits = [(each, *_shown(each)) for each in self.queue.schedules()], self.queue.limits()
                if found or limits:
                    shown = {"xq_schedules": found, "xq_limits": limits[:MOST], "xq_more": len(limits[MOST:])}
                    shown["xq_limited"] = [guard.name for guard in self.queue.machine.limited]
                    whole = response.resolve_template(response.template_name)
                    may = self.has_change_permission(request)
                    response.context_data |= {"xq_list": whole, "xq_may_change": may, **shown}
                    response.template_name = "admin/xq/schedules.html"
        return response

    def _set_limit(self, request: Any, given: Any) -> HttpResponseRedirect:
        if not self.has_change_permission(request):
            raise PermissionDenied
        feature, value, limit = given[LIMIT], given.get("xq_value") or None, limit_in_text(given.get("xq_to", ""))
        try:
            self.queue.set_limit(feature, limit, value, actor=request.user.get_username())
        except xq.Error as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self.message_user(request, f"The limit of {feature} was {'removed' if limit is None else 'set'}.")
        return HttpResponseRedirect(request.get_full_path())

    def _change_schedule(self, request: Any, name: str, change: Any) -> HttpResponseRedirect:
        if change not in DONE or not self.has_change_permission(request):
            raise PermissionDenied
        there = getattr(self.queue, f"{change}_schedule")(name, actor=request.user.get_username())
        self.message_user(request, f"The schedule {name} {f'was {DONE[change]}' if there else 'is gone'}.")
        return HttpResponseRedirect(request.get_full_path())


def _shown(each: xq.Schedule) -> tuple[str, str, str]:
    """Return when a schedule fires, when it fired last, and when it fires next."""
    spec = f"every {lasting(each.spec)}" if isinstance(each.spec, float) else str(each.spec)
    following = each.next if isinstance(each.next, str) else moment(each.next)
    if each.paused:
        following = f"paused by {each.actor}" if each.actor else "paused"
    zone, overdue = "" if each.tz in ("", "UTC") else f" {each.tz}", " (overdue)" if each.overdue else ""
    return spec + zone, moment(each.last) if each.last else "", following + overdue
