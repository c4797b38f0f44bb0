"""The page of all queues of a project, which the index of the admin links."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.templatetags.admin_urls import admin_urlname
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models
from django.template.response import TemplateResponse
from django.urls import reverse

import xq
from xq.adapters.django.admin.words import chip, words_of
from xq.adapters.django.lookup import APP, alias_of, queue_of, queues
from xq.handle import Queue
from xq.operators.inspection import place


class Overview(models.Model):
    """What the index of the admin lists. Nothing else knows it, so it has no table, permissions or content type."""

    class Meta:
        apps = Apps()
        app_label = "xq"
        verbose_name = verbose_name_plural = "overview of all queues"


class OverviewAdmin(admin.ModelAdmin):
    """The overview in place of a list. A member of the staff sees the queues whose models they may view."""

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(self._shown(request))

    has_module_permission = has_view_permission

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def get_urls(self) -> list[Any]:
        """Return the address of the overview only: there are no rows to show or change."""
        return [url for url in super().get_urls() if url.name == "xq_overview_changelist"]

    def changelist_view(self, request: Any, extra_context: Any = None) -> TemplateResponse:
        """Show the queues."""
        if not (shown := self._shown(request)):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "rows": [self._row(queue, of_model) for queue, of_model in shown.items()],
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/xq/overview.html", context)

    def _shown(self, request: Any) -> dict[Queue[Any], Any]:
        """Return the queues that the user may view, on this site or not, and their admins."""
        here = {model._meta.concrete_model: of_model for model, of_model in self.admin_site._registry.items()}
        known = [*queues(), *filter(None, map(queue_of, here))]
        admins = {q: here.get(q.model) or admin.ModelAdmin(q.model, self.admin_site) for q in known}
        return {q: of_model for q, of_model in admins.items() if of_model.has_view_or_change_permission(request)}

    def _row(self, queue: Queue[Any], of_model: Any) -> dict[str, Any]:
        """Return what the page shows of a queue."""
        row: dict[str, Any] = {"name": of_model.opts.verbose_name_plural, "database": alias_of(queue)}
        if self.admin_site.is_registered(of_model.model):
            row["address"] = reverse(admin_urlname(of_model.opts, "changelist"), current_app=self.admin_site.name)
        words = getattr(of_model, "words", None) or words_of(queue, {})
        try:
            now = queue.adapter.inspection.snapshot()
            return row | {
                "counts": [(letter, chip(letter, words[letter]), n) for letter, n in now.stats.counts.items()],
                "oldest": now.oldest if now.oldest and now.stats.counts["R"] else "",
                "paused": ", ".join(place(pause.tube) for pause in now.pauses),
                "sessions": sum(not process.gone for process in queue.processes()),
            }
        except (xq.Error, DatabaseError) as error:
            return row | {"problem": error}


def add_overview(site: Any) -> None:
    """Add the overview of all queues to a site of the admin, once. A site with a QueueAdmin has it."""
    if apps.is_installed(APP) and not site.is_registered(Overview):
        site.register(Overview, OverviewAdmin)
