"""The signal `moved`."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from django.db.models.signals import ModelSignal

from xq.api import Queue


class Moved(ModelSignal):
    """A signal for each move that this process has committed: also a put, a take, and what timers move.

    Receivers get `sender` (the model), `instance`, `event`, and `source` and `target`, the letters of the states: X
    where there is no row. As `sender`, `connect` takes a model or its label. Exceptions of receivers are logged. It
    costs nothing before a receiver is connected.
    """

    def __init__(self) -> None:
        super().__init__()
        self._queues = WeakSet[Queue[Any]]()

    def connect(self, *args: Any, **options: Any) -> None:
        super().connect(*args, **options)
        for queue in list(self._queues):
            self.add(queue)

    def add(self, queue: Queue[Any]) -> None:
        self._queues.add(queue)
        if self.has_listeners(queue.model):
            queue.on_change(self._send)

    def _send(self, task: Any, event: str, source: str, target: str) -> None:
        self.send_robust(type(task), instance=task, event=event, source=source, target=target)


moved = Moved()
