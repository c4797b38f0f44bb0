"""Keep the records of steps. `migrate` installs the queue then, if the setting TASKS asks for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db import migrations, models

from xq.adapters.django.migrations import UninstallQueue


def take_queue_away(apps: Any, editor: Any) -> None:
    """Uninstall the queue before the columns go that its triggers use."""
    UninstallQueue("task")._uninstall("xq_tasks", editor, SimpleNamespace(apps=apps))


class Migration(migrations.Migration):
    dependencies = [("xq_tasks", "0003_groups")]

    operations = [
        migrations.AddField(
            "task", "xq_steps", models.TextField(null=True, help_text="What is recorded of its steps, a line for each.")
        ),
        migrations.AddField(
            "task", "xq_awaits", models.CharField(max_length=255, null=True, help_text="The signal that it waits for.")
        ),
        migrations.RunPython(migrations.RunPython.noop, take_queue_away, atomic=False),
    ]
