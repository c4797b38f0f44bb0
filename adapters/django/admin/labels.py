"""The words in which the admin speaks of states, times and errors, and the order in which it lists tasks."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.db.models import F
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from xq.core.ports import ORDERED_BY
from xq.core.words import name_of
from xq.handle import Queue

LINE: Final = 100  # characters of an error that a list shows
CLASS: Final = 80  # characters of the class of an error
END_OF_CLASS: Final = re.compile(r"[:\r\n]")


def labels_of(queue: Queue[Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the application's word for each state, by letter.

    The first of these that there is: `own`, the label of the status in `choices`, the stored status if it is a word of
    the application, and the queue's own name of the state.
    """
    field = queue.model._meta.get_field(queue.roles["status"])
    labels = dict(field.flatchoices)
    found = {}
    for letter in queue.machine.states:
        stored = queue.statuses[letter]
        told = stored if isinstance(stored, str) and stored != letter else name_of(letter)
        found[letter] = own.get(letter) or str(labels.get(stored, told))
    return found


def letter_of(queue: Queue[Any], task: Any) -> str | None:
    """Return the state of a row; None if its status is none of the queue's."""
    return queue.adapter.state_of(getattr(task, queue.roles["status"]))


def chip(letter: str, word: str, title: object = "") -> SafeString:
    """Return the word of a state as coloured HTML."""
    return format_html('<span class="xq-state xq-{}" title="{}">{}</span>', letter, title, word)


def first_line(error: object) -> str:
    """Return the first line of an error, shortened."""
    line = re.split(r"[\r\n]", str(error or ""), maxsplit=1)[0]
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def class_of(error: object) -> str:
    """Return the class of an error: of "TimeoutError: no answer", "TimeoutError"."""
    return END_OF_CLASS.split(str(error or ""), maxsplit=1)[0][:CLASS]


def in_order(queue: Queue[Any], newest: bool = False) -> list[Any]:
    """Return the order of a take for `order_by`, or its reverse: that of the indexes of take and of dig."""
    roles = [F(queue.roles[role]) for role in ORDERED_BY if role in queue.roles]
    if newest:
        return [*(role.desc(nulls_last=True) for role in roles), "-pk"]
    return [*(role.asc(nulls_first=True) for role in roles), "pk"]


def now_of(queue: Queue[Any]) -> float:
    """Return the seconds since 1970, by the clock of the queue."""
    return time.time() if queue.clock is None else float(queue.clock.now)


def moment(at: float) -> datetime:
    """Return a time in seconds since 1970 as templates show it: in the time zone of the project."""
    found = datetime.fromtimestamp(at, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found, timezone.get_default_timezone())


def seconds_since_1970(value: Any) -> float | None:
    """Return the time in a field of the role runat or deadline."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return None if value is None else float(value)
