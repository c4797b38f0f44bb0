"""What tests of the tubes share: how they put, and a class of an application's own."""

from __future__ import annotations

import itertools
from typing import Any

import peewee as pw

from xq.tubes import Tube

_numbers = itertools.count(1)


def put(tube: Tube, *data: Any, **options: Any) -> list[int]:
    """Tasks, each in a sub-queue of its own where there are any; their ids."""
    found = []
    for one in data:
        own = {"utube": next(_numbers)} if "utube" in tube.type and "utube" not in options else {}
        task = tube.put(one, **own, **options)
        assert task is not None
        found.append(task.id)
    return found


class Rows:
    """A driver as an application may write one: a plain table, and no queue of xq's."""

    def __init__(self, model: Any, on_task_change: Any, options: dict[str, Any]) -> None:
        self.model, self.changed, self.options = model, on_task_change, options

    @staticmethod
    def create_space(db: pw.Database, name: str, options: dict[str, Any]) -> Any:
        meta = type("Meta", (), {"database": db, "table_name": name})
        fields = {"state": pw.CharField(default="r"), "text": pw.TextField()}
        model = type("Row", (pw.Model,), {**fields, "Meta": meta})
        db.create_tables([model])
        return model

    @classmethod
    def new(cls, model: Any, on_task_change: Any, options: dict[str, Any]) -> Rows:
        return cls(model, on_task_change, options)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def normalize_task(self, row: Any) -> tuple[int, str, str]:
        return row.id, row.state, row.text

    def _moved(self, row: Any, state: str, event: str) -> Any:
        row.state = state
        if state == "-":
            row.delete_instance()
        else:
            row.save()
        self.changed(row, event)
        return row

    def put(self, data: Any, options: dict[str, Any]) -> Any:
        row = self.model.create(text=options.get("prefix", "") + data)
        self.changed(row, "put")
        return row

    def take(self) -> Any:
        row = self.model.select().where(self.model.state == "r").order_by(self.model.id).first()
        return row and self._moved(row, "t", "take")

    def peek(self, id: int) -> Any:
        return self.model.get_or_none(id=id)

    def delete(self, id: int) -> Any:
        return self._moved(self.peek(id), "-", "delete")

    def release(self, id: int, options: dict[str, Any]) -> Any:
        return self._moved(self.peek(id), "r", "release")

    def bury(self, id: int) -> Any:
        return self._moved(self.peek(id), "!", "bury")

    def touch(self, id: int, increment: float) -> Any:
        return self._moved(self.peek(id), "t", "touch")

    def kick(self, count: int) -> int:
        rows = list(self.tasks_by_state("!"))[:count]
        return len([self._moved(row, "r", "kick") for row in rows])

    def truncate(self) -> None:
        self.model.delete().execute()

    def tasks_by_state(self, state: str) -> Any:
        return self.model.select().where(self.model.state == state).order_by(self.model.id)
