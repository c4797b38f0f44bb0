"""The page of all queues of a project, which the index of the admin links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django.apps import apps
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse

import xq
from xq.adapters.django.admin.labels import in_order, labels_of
from xq.adapters.django.admin.panel import MANY
from xq.adapters.django.lookup import APP, alias_of, queue_of, queues
from xq.core.machine import NAMES, READY
from xq.core.words import lasting, name_of
from xq.handle import Queue


class Overview(models.Model):
    """What the index of the admin lists. It has no table, no permissions and no content type."""

    class Meta:
        apps = Apps()
        app_label = "xq"
        managed = False
        default_permissions = ()
        verbose_name = verbose_name_plural = "overview of all queues"


@dataclass
class Row:
    """One queue of the overview."""

    name: str
    alias: str
    address: str = ""  # of its list in the admin
    counts: list[tuple[str, str, int | None]] = field(
        default_factory=list
    )  # letter, the application's own word, number of tasks
    next: Any = None  # the ready task that a take returns next
    next_address: str = ""
    ready_for: str = ""  # how long that has been ready, if the history says it
    paused: list[str] = field(default_factory=list)
    sessions: int = 0  # of the database
    problem: str = ""  # why the queue does not answer


ORDER: Final = tuple(NAMES)  # of the columns; states of the application's features come last


class OverviewAdmin(admin.ModelAdmin):
    """The overview in place of a list. A member of the staff sees the queues whose models they may view."""

    class Media:
        css = {"all": ["xq/admin.css"]}

    def has_module_permission(self, request: Any) -> bool:
        return any(True for _ in self._queues(request))

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        """Return the address of the overview only: there are no rows to show or change."""
        return [url for url in super().get_urls() if url.name == "xq_overview_changelist"]

    def changelist_view(self, request: Any, extra_context: Any = None) -> TemplateResponse:
        """Show the queues."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = [self._row(queue, model) for queue, model in self._queues(request)]
        letters = {letter for row in rows for letter, *_ in row.counts}
        ordered = sorted(letters, key=lambda letter: (ORDER.index(letter) if letter in ORDER else len(ORDER), letter))
        for row in rows:
            of = {letter: (letter, word, n) for letter, word, n in row.counts}
            row.counts = [of.get(letter, (letter, "", None)) for letter in ordered]
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "subtitle": None,
            "opts": self.opts,
            "media": self.media,
            "states": [(letter, name_of(letter)) for letter in ordered],
            "rows": rows,
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/xq/overview.html", context)

    def _queues(self, request: Any) -> Iterator[tuple[Queue[Any], Any]]:
        """Yield each queue that the user may view, with its model; also those of models that the site does not have."""
        here = self._registered()
        of_the_site = [queue for queue in map(queue_of, here) if queue is not None]
        for queue in dict.fromkeys([*queues(), *of_the_site]):
            shown = here.get(queue.model)
            if shown is not None:
                may = shown.has_view_or_change_permission(request)
            else:
                label, view = queue.model._meta.app_label, get_permission_codename("view", queue.model._meta)
                may = request.user.has_perm(f"{label}.{view}")
            if may:
                yield queue, queue.model if shown is None else shown.model

    def _registered(self) -> dict[Any, Any]:
        """Return what the site has registered, by model; a proxy stands for its model."""
        return {model._meta.concrete_model: one for model, one in self.admin_site._registry.items()}

    def _row(self, queue: Queue[Any], model: Any) -> Row:
        row = Row(str(model._meta.verbose_name_plural), alias_of(queue), self._address(model, "changelist"))
        words = getattr(self._registered().get(queue.model), "words", None) or labels_of(queue, {})
        try:
            counts = queue.stats().counts
            row.counts = [(letter, _own(words[letter], letter), n) for letter, n in counts.items()]
            row.paused = ["the whole queue" if tube is None else f"tube {tube}" for tube in queue.paused()]
            row.sessions = len(queue.adapter.inspection.online())
            if counts.get(READY):
                self._note_next(queue, model, row)
        except (xq.Error, DatabaseError) as error:
            row.problem = str(error)
        return row

    def _note_next(self, queue: Queue[Any], model: Any, row: Row) -> None:
        status = {queue.roles["status"]: queue.statuses[READY]}
        found = queue.model._base_manager.using(row.alias).filter(**status).order_by(*in_order(queue)).first()
        if found is None:
            return
        row.next, row.next_address = found, self._address(model, "change", quote(found.pk))
        if queue.machine.settings.history is not None and queue.adapter.inspection.newest() <= MANY:
            steps = queue.timeline(found.pk)
            if steps and steps[-1].target == READY:
                row.ready_for = lasting(max(0.0, steps[-1].seconds or 0.0))

    def _address(self, model: Any, page: str, *args: object) -> str:
        try:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
            return reverse(name, args=args, current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""


def _own(word: str, letter: str) -> str:
    """Return the word of a state if it is not that of the heading."""
    return "" if word == name_of(letter) else word


def add_overview(site: Any) -> None:
    """Add the overview of all queues to a site of the admin, once. A site with a QueueAdmin has it."""
    if apps.is_installed(APP) and not site.is_registered(Overview):
        site.register(Overview, OverviewAdmin)
