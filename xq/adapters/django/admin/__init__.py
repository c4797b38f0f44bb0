"""Queues in Django's admin: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`, and a page of all queues."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin

from xq.adapters.django.admin.actions import ACTIONS, IN_MEMORY
from xq.adapters.django.admin.overview import add_overview
from xq.adapters.django.admin.queue_admin import QueueAdmin

__all__ = ["ACTIONS", "IN_MEMORY", "QueueAdmin", "add_overview"]

if apps.models_ready:  # the admin imports this module of the installed app, once its own site is there
    add_overview(admin.site)
