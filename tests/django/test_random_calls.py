"""Random calls on a queue of a model of Django's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.db import Error, models, transaction

import xq
from tests.django.conftest import ENGINES, fresh
from tests.random_calls import check_random_calls
from xq.adapters.django import upgrade
from xq.testing import Clock


class DjangoApplication:
    """By Django, on the alias "default"."""

    errors = Error
    errors_end_transactions = True
    whole: tuple[str, ...] = ("bigint",)

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._made = fresh(kind, folder)
        self.database = self._made.__enter__()

    def make(
        self,
        setup: Mapping[str, Any],
        attributes: Mapping[str, Any],
        features: Mapping[str, Any],
        roles: Sequence[str],
        clock: Clock,
    ) -> Any:
        attributes = {
            name: column and column.strip('"') for name, column in attributes.items()
        }  # which Django takes off
        word = setup["statuses"].get("R", "R")
        status: Any = models.BigIntegerField if isinstance(word, int) else models.CharField
        length = {} if isinstance(word, int) else {"max_length": 50}
        kinds = {"double": models.FloatField, "bigint": models.BigIntegerField, "datetime": models.DateTimeField}
        time = kinds[setup["time"]]
        made: dict[str, Any] = {
            "status": status(default=word, db_column=attributes["status"], **length),
            "runat": time(null=True, db_column=attributes["runat"]),
            "deadline": time(null=True, db_column=attributes["deadline"]),
            "error": None,
        }
        keys: Mapping[str, Mapping[str, Any]] = {
            "time64": {"id": models.BigIntegerField(primary_key=True)},
            "uuid": {"id": models.UUIDField(primary_key=True)},
            "text": {"id": models.CharField(max_length=50, primary_key=True)},
            "required": {"id": models.IntegerField(primary_key=True)},
            "callable": {"id": models.IntegerField(primary_key=True)},
            "auto": {"id": models.BigAutoField(primary_key=True)},
        }
        key = keys.get(setup["key"]) or {
            "pk": models.CompositePrimaryKey("a", "b"),
            "a": models.IntegerField(),
            "b": models.CharField(max_length=50),
        }
        model = self.database.model("Task", {"db_table": attributes["table"]}, **key, **made)
        mapped = {role: "job" if role == "unique" else role for role in ("status", *roles)}
        upgrade(model, mapped, features, statuses=setup["statuses"], tube_stats=setup["tube_stats"], clock=clock)
        self.database.create(model)
        model.xq.install()
        return model

    def fields(self, model: Any) -> list[str]:
        return [field.name for field in model._meta.concrete_fields]

    def values(self, task: Any) -> dict[str, Any]:
        assert not task._state.adding
        return {name: getattr(task, name) for name in self.fields(type(task))}

    def rows(self, model: Any) -> Iterable[dict[str, Any]]:
        return list(model.objects.values(*self.fields(model)))

    def insert(self, model: Any, **values: Any) -> Any:
        made = model(**values)
        made.save(force_insert=True)
        return made.pk

    def update(self, model: Any, key: Any, **values: Any) -> None:
        model.objects.filter(pk=key).update(**values)

    def delete(self, model: Any, key: Any) -> None:
        model.objects.filter(pk=key)._raw_delete("default")

    def clear(self, model: Any) -> None:
        model.objects.all()._raw_delete("default")

    def save(self, task: Any, is_there: bool) -> None:
        # Django writes what it has read of fields that are not the queue's, whoever has changed them since.
        own = {"name", "tube", "job", "utube", "priority", "ttl", "ttr"} - {*task.xq.roles.values()}
        if is_there:
            task.refresh_from_db(fields=own)
        with nullcontext() if is_there else pytest.raises(xq.NotFound), transaction.atomic():
            task.save()

    def atomic(self) -> AbstractContextManager[Any]:
        block: AbstractContextManager[Any] = transaction.atomic()
        return block

    def close(self) -> None:
        self._made.__exit__(None, None, None)


@pytest.mark.parametrize("kind", ENGINES)
def test_random_calls_leave_what_the_model_says(kind, tmp_path_factory):
    check_random_calls(
        lambda: DjangoApplication(kind, tmp_path_factory.mktemp("model")), programs=30 if kind == "sqlite" else 10
    )
