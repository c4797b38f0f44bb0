from django.db import migrations

from xq.adapters.django.migrations import InstallQueue


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        InstallQueue(
            model_name="Order",
            fields={
                "status": "status",
                "owner": "xq_owner",
                "runat": "xq_runat",
                "attempts": "xq_attempts",
                "error": "xq_error",
            },
            features={
                "delayed": True,
                "buried": True,
                "keep": True,
            },
            statuses={"B": "failed", "D": "mailed", "R": "new", "T": "packing", "W": "later"},
        ),
    ]
