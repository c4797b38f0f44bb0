"""Queues in Django's admin: `class OrderAdmin(QueueAdmin, admin.ModelAdmin)`."""

from __future__ import annotations

from xq.adapters.django.admin.actions import ACTIONS, IN_MEMORY
from xq.adapters.django.admin.queue_admin import QueueAdmin

__all__ = ["ACTIONS", "IN_MEMORY", "QueueAdmin"]
