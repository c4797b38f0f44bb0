"""Create the task table and install its queue."""

from __future__ import annotations

import django.utils.timezone
from django.db import migrations, models

from xq.adapters.django.migrations import InstallQueue
from xq.adapters.django.tasks.fields import JSONTextField

WORDS = ["WAITING", "READY", "RUNNING", "SUCCESSFUL", "FAILED"]


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                (
                    "status",
                    models.CharField(choices=[(word, word.title()) for word in WORDS], default="READY", max_length=10),
                ),
                (
                    "rank",
                    models.SmallIntegerField(default=0, help_text="The priority, negated: the lowest is taken first."),
                ),
                ("queue_name", models.CharField(default="default", max_length=255)),
                ("backend", models.CharField(max_length=255)),
                ("task_path", models.TextField()),
                ("args", JSONTextField(default=list)),
                ("kwargs", JSONTextField(default=dict)),
                ("run_after", models.DateTimeField(null=True)),
                ("return_value", JSONTextField(null=True)),
                ("exception_class_path", models.TextField(default="")),
                ("traceback", models.TextField(default="")),
                ("enqueued_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("worker_ids", JSONTextField(default=list)),
                ("attempts", models.IntegerField(default=0)),
                ("owner", models.CharField(max_length=64, null=True)),
                ("runat", models.FloatField(null=True)),
            ],
        ),
        InstallQueue("task"),
    ]
