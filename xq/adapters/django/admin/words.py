"""The words that the admin uses for states, times and errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from xq.api import Queue
from xq.core.words import name_of

LINE: Final = 100  # characters that a page shows from an error


def words_of(queue: Queue[Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the application's word for each state, by letter.

    The first that exists: `own`, the status's label in `choices`, the stored status if it is a word that the
    application chose, and the state's name in xq.
    """
    labels = dict(queue.model._meta.get_field(queue.roles["status"]).flatchoices)
    words = {letter: name_of(letter) for letter in queue.statuses}
    words |= {letter: word for letter, word in queue.statuses.items() if isinstance(word, str) and word != letter}
    return {letter: own.get(letter) or str(labels.get(queue.statuses[letter], words[letter])) for letter in words}


def letter_of(queue: Queue[Any], task: Any) -> str | None:
    """Return a row's state; None if its status belongs to no state."""
    return queue.parts.definition.state_of(getattr(task, queue.roles["status"]))


def chip(letter: str, word: str | None, event: str = "") -> SafeString:
    """Return a state's word, or its name, as coloured HTML. `event` is what has led to it."""
    name = name_of(letter, event=event)
    return format_html('<span class="xq-state xq-{}" title="{}">{}</span>', letter, name, word or name)


def first_line(error: object) -> str:
    """Return an error's first line, shortened."""
    return str(Truncator("".join(str(error or "").splitlines()[:1])).chars(LINE))


def moment(at: float | datetime) -> str:
    """Return a time (a number is seconds since 1970) as text, in the project's time zone."""
    zone = timezone.get_current_timezone()
    return f"{at.astimezone(zone) if isinstance(at, datetime) else datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M:%S}"
