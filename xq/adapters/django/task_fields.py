"""Django's model with the fields that queues use: `xq.adapters.django.TaskFields`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from xq.methods import Verbs

    class Model(Verbs, models.Model):
        pass
else:
    Model = models.Model  # a model's bases stand in its migration


class Key(models.BigAutoField):  # each put uses up a number, and those of 32 bits end
    """The key for models that lack one: there Django's BigAutoField."""

    def contribute_to_class(self, cls: type[models.Model], name: str, **options: Any) -> None:
        if cls._meta.abstract:
            super().contribute_to_class(cls, name, **options)
        elif cls._meta.pk is None:
            key = models.BigAutoField(verbose_name="ID", primary_key=True, auto_created=True)
            key.contribute_to_class(cls, name, **options)


class TaskFields(Model):
    """A model with the queue's fields: models that inherit from it need no `fields=` in `upgrade`.

    The features unique and utube compare a field of yours, which `fields=` names.

    It is abstract. A field with the same name replaces one of these, a primary key the `id`, and `tube = None` removes
    one. Forms do not show the fields that only the queue writes.
    """

    id: Any = Key(primary_key=True)
    status = models.CharField(max_length=1, default="R", editable=False)
    runat = models.FloatField(null=True, editable=False)
    deadline = models.FloatField(null=True, editable=False)
    priority = models.IntegerField(default=0)
    tube = models.CharField(max_length=255, null=True, blank=True)
    owner = models.CharField(max_length=64, null=True, editable=False)  # a token
    attempts = models.IntegerField(default=0, editable=False)
    ttl = models.FloatField(null=True, blank=True)
    ttr = models.FloatField(null=True, blank=True)
    error = models.TextField(null=True, blank=True)
    trace = models.CharField(max_length=64, null=True, editable=False)  # a traceparent

    class Meta:
        abstract = True
