"""Keep the groups that another task follows. `migrate` installs the queue then, if the setting TASKS asks for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db import migrations, models

from xq.adapters.django.migrations import UninstallQueue


def take_queue_away(apps: Any, editor: Any) -> None:
    """Uninstall the queue before the column goes that it may have an index on."""
    UninstallQueue("task")._uninstall("xq_tasks", editor, SimpleNamespace(apps=apps))


class Migration(migrations.Migration):
    dependencies = [("xq_tasks", "0002_errors_and_keys")]

    operations = [
        migrations.AddField(
            "task",
            "member_of",
            models.CharField(
                max_length=255, null=True, help_text="When all with the same one have ended, a task follows."
            ),
        ),
        migrations.RunPython(migrations.RunPython.noop, take_queue_away, atomic=False),
    ]
