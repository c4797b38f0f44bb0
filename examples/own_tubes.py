"""Define two types of tubes: a preset of features, and a class with a storage of its own.

A preset is short: done letters are kept, and a letter that stays unread for a week is dropped. A class can do more than
features: a stack, for example, takes the newest task first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import peewee as pw

import xq

db = pw.SqliteDatabase(":memory:")
queue = xq.Tubes(db)
Options = Mapping[str, Any]  # of create_tube, put, release

# ---- a preset

queue.register_driver("letters", {"keep": True, "buried": True, "ttl": True, "priority": True})
letters = queue.create_tube("letters", "letters", ttl=7 * 86400)
letters.put("a bill")
letters.put("a love letter", pri=-1)
while letter := letters.take(0):
    letters.ack(letter)
    print(f"Read {letter.data}")
print(f"Kept: {letters.model.select().count()}, calls: {letters.statistics()['calls']['ack']} acks")

# ---- a class


class Stack:
    """A storage that reports each change to `self.changed(row, event)`. The tube does waits, owners and statistics."""

    def __init__(self, model: Any, on_task_change: Callable[[Any, str], None]) -> None:
        self.model, self.changed = model, on_task_change

    @staticmethod
    def create_space(db: pw.Database, name: str, options: Options) -> type[pw.Model]:
        class Sheet(pw.Model):
            state = pw.CharField(default="r")
            text = pw.TextField()

            class Meta:
                database = db
                table_name = name

        db.create_tables([Sheet])
        return Sheet

    @classmethod
    def new(cls, model: Any, on_task_change: Callable[[Any, str], None], options: Options) -> Stack:
        return cls(model, on_task_change)

    def normalize_task(self, row: Any) -> tuple[int, str, str]:
        return row.id, row.state, row.text

    def move(self, row: Any, state: str, event: str) -> Any:
        row.state = state
        if state == "-":
            row.delete_instance()
        else:
            row.save()
        self.changed(row, event)
        return row

    def put(self, data: str, options: Options) -> Any:
        row = self.model.create(text=data)
        self.changed(row, "put")
        return row

    def take(self) -> Any:
        with db.atomic():  # the newest task first
            row = self.tasks_by_state("r").order_by(self.model.id.desc()).first()
            return row and self.move(row, "t", "take")

    def peek(self, id: int) -> Any:
        return self.model.get_or_none(id=id)

    def delete(self, id: int) -> Any:
        return self.move(self.peek(id), "-", "delete")

    def release(self, id: int, options: Options) -> Any:
        return self.move(self.peek(id), "r", "release")

    def bury(self, id: int) -> Any:
        return self.move(self.peek(id), "!", "bury")

    def touch(self, id: int, seconds: float) -> Any:
        return self.move(self.peek(id), "t", "touch")

    def kick(self, count: int) -> int:
        return len([self.move(row, "r", "kick") for row in self.tasks_by_state("!").limit(count)])

    def truncate(self) -> None:
        self.model.delete().execute()

    def tasks_by_state(self, state: str) -> Any:
        return self.model.select().where(self.model.state == state)


queue.register_driver("stack", Stack)
desk = queue.create_tube("desk", "stack")
for sheet in ("the first sheet", "the second", "the last"):
    desk.put(sheet)
while task := desk.take(0):
    desk.ack(task)
    print(f"From the desk: {task.data}")

# ---- both work like any other tube

print(f"Tubes: {', '.join(f'{name} ({tube.type})' for name, tube in queue.tube.items())}")
for tube in list(queue.tube.values()):
    tube.drop()
print(f"Tubes in the end: {queue.tube()}")
db.close()
