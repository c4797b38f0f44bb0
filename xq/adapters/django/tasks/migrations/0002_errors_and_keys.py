"""Keep the errors of all attempts, and the keys of unique tasks and of groups. `migrate` installs the queue then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db import migrations, models

from xq.adapters.django.migrations import UninstallQueue
from xq.adapters.django.tasks.fields import JSONTextField


def keep_tracebacks(apps: Any, editor: Any) -> None:
    """Move the tracebacks of failed tasks where the errors of all attempts are."""
    tasks = apps.get_model("xq_tasks", "Task").objects.using(editor.connection.alias)
    for task in tasks.exclude(traceback="").only("exception_class_path", "traceback").iterator():
        trace = task.traceback
        error = {"exception_class_path": task.exception_class_path, "traceback": trace}
        told = f"{trace.rstrip().rpartition(chr(10))[2]}\n{trace}"[:10_000]
        tasks.filter(pk=task.pk).update(error=told, errors=[error])


def take_queue_away(apps: Any, editor: Any) -> None:
    """Uninstall the queue before the columns go that it has indexes on."""
    UninstallQueue("task")._uninstall("xq_tasks", editor, SimpleNamespace(apps=apps))


def add(name: str, field: Any) -> Any:
    return migrations.AddField("task", name, field)


class Migration(migrations.Migration):
    dependencies = [("xq_tasks", "0001_initial")]

    operations = [
        add("error", models.TextField(null=True, help_text="The last attempt's: what it raised, and the traceback.")),
        add("errors", JSONTextField(null=True, help_text="One for each failed attempt, the newest last.")),
        add(
            "unique_key",
            models.CharField(max_length=255, null=True, help_text="Of unfinished tasks each has another one."),
        ),
        add(
            "group_key",
            models.CharField(max_length=255, null=True, help_text="Those with the same one run one by one."),
        ),
        migrations.RunPython(keep_tracebacks, migrations.RunPython.noop, elidable=True),
        migrations.RemoveField("task", "traceback"),
        migrations.RunPython(migrations.RunPython.noop, take_queue_away, atomic=False),
    ]
