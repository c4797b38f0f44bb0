from django.db import migrations

from xq.adapters.django.migrations import InstallQueue


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        InstallQueue(
            "Order",
            definition={
                "features": {"buried": True, "delayed": True, "id": "auto_increment", "keep": True},
                "roles": {
                    "attempts": "xq_attempts",
                    "error": "xq_error",
                    "owner": "xq_owner",
                    "runat": "xq_runat",
                    "status": "status",
                },
                "statuses": {"R": "new", "W": "later", "T": "packing", "D": "mailed", "B": "failed"},
            },
        ),
    ]
