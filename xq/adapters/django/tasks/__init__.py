"""django.tasks on a queue: `TASKS = {"default": {"BACKEND": "xq.adapters.django.tasks.XQBackend"}}`."""

from xq.adapters.django.tasks.backend import XQBackend, group

__all__ = ["XQBackend", "group"]
