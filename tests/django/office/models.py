"""A queue with a worker and tubes and its proxy, two with neither, and a model that is none, with a field "xq"."""

from __future__ import annotations

import django
from django.db import models

from tests.django.office.jobs import bill
from xq.adapters.django import queue


@queue(
    fields={name: name for name in ("status", "runat", "tube", "attempts", "error")},
    features={"delayed": True, "buried": True, "keep": True, "ttr": 60},
    tube_stats=("mail",),
    worker=bill,
    workers=2,
)
class Order(models.Model):
    note = models.TextField(default="")
    status = models.CharField(max_length=1, default="R")
    runat = models.FloatField(null=True)
    tube = models.CharField(max_length=20, null=True)
    attempts = models.IntegerField(default=0)
    error = models.TextField(null=True)


class Bill(Order):
    class Meta:
        proxy = True


@queue(
    fields={"status": "status"},
    features={"buried": True},
    schedules={"nightly": ("0 3 * * *", {}, {"tz": "Asia/Tokyo"})},
)
class Parcel(models.Model):
    id = models.CharField(primary_key=True, max_length=36)
    status = models.CharField(max_length=1, default="R")


@queue(fields={"status": "status"}, features={"buried": True})
class Page(models.Model):
    if django.VERSION >= (5, 2):
        pk = models.CompositePrimaryKey("site", "number")
    else:
        key = models.AutoField(primary_key=True)
    site = models.CharField(max_length=20)
    number = models.IntegerField()
    status = models.CharField(max_length=1, default="R")


class Customer(models.Model):
    name = models.TextField()
    xq = models.TextField(default="")
