"""The schedules of a queue, above the list of its tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse

import xq
from xq.adapters.django.admin.words import moment
from xq.core.words import lasting

SCHEDULE: Final = "xq_schedule"  # the parameter in which a button names its schedule
DONE: Final = {"pause": "paused", "resume": "resumed"}  # by what the parameter xq_change says


class SchedulesInList(admin.ModelAdmin):
    """Shows the queue's schedules above the list. Users that may change the model pause and resume them."""

    queue: xq.Queue[Any]

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        if SCHEDULE in request.POST:
            return self._change_schedule(request, request.POST[SCHEDULE], request.POST.get("xq_change"))
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and "cl" in (response.context_data or {}):
            with suppress(xq.Error):  # the filter by state reports it
                if found := [(each, *_shown(each)) for each in self.queue.schedules()]:
                    whole = response.resolve_template(response.template_name)
                    may = self.has_change_permission(request)
                    response.context_data |= {"xq_list": whole, "xq_schedules": found, "xq_may_change": may}
                    response.template_name = "admin/xq/schedules.html"
        return response

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
