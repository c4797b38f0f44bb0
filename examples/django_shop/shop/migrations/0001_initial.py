import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50)),
                ("email", models.EmailField(max_length=254, unique=True)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50)),
                ("cents", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pieces", models.PositiveIntegerField(default=1)),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
                ("invoiced", models.BooleanField(default=False)),
                ("status", models.CharField(default="new", max_length=10)),
                ("xq_owner", models.CharField(blank=True, editable=False, max_length=64, null=True)),
                ("xq_runat", models.FloatField(blank=True, editable=False, null=True)),
                ("xq_attempts", models.IntegerField(blank=True, editable=False, null=True)),
                ("xq_error", models.TextField(blank=True, editable=False, null=True)),
                ("customer", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="shop.customer")),
                ("product", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="shop.product")),
            ],
        ),
    ]
