from django.db import migrations

from xq.adapters.django.migrations import InstallQueue


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        InstallQueue("Order"),
    ]
