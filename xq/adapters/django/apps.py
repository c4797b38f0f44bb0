"""The app `xq.adapters.django`."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class XqConfig(AppConfig):
    """xq: queues on other apps' models. It has no models itself."""

    name = "xq.adapters.django"
    label = "xq"
    verbose_name = "Queues"

    def ready(self) -> None:
        """Register the checks, and what migrations find, keep and end with."""
        from xq.adapters.django import checks, detection
        from xq.adapters.django.after_migrate import after_migrate

        checks.register()
        detection.patch()
        post_migrate.connect(after_migrate, dispatch_uid="xq")
