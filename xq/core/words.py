"""The states' names, and other words in messages, statistics and documents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final

NAMES: Final[Mapping[str, str]] = {
    "R": "Ready",
    "T": "Taken",
    "W": "Waiting",
    "B": "Buried",
    "Z": "Zombie",
    "D": "Done",
}
SPANS: Final = ((172_800, 86_400, "days", 3_600, "h"), (3_600, 3_600, "h", 60, "min"), (120, 60, "min", 1, "s"))


def plain(word: str | int) -> str | int:
    """Return a text or an integer without its subclass, such as an enumeration, whose repr is no SQL literal."""
    return str.__str__(word) if isinstance(word, str) else int(word)


def name_of(letter: str, names: Mapping[str, str] = NAMES, event: str = "") -> str:
    """Return a state's name: for R, "ready"; for a state in a user's own feature, its letter.

    That of X is "deleted"; "left the queue" after a write of another program, which may have left the row.
    """
    gone = "Left the queue" if event == "write" else "Deleted"
    return {**names, "X": gone, "S": "Elsewhere"}.get(letter, letter).lower()


def alike(words: Mapping[Any, str]) -> dict[str, str]:
    """Return the states by what a status that is spelt like theirs is, without case and blanks at its ends.

    That is a word, or a letter, unless an own word is so short. Another status is the application's.
    """
    meant = {str(word).casefold(): state for word, state in words.items()}
    if all(len(str(word)) > 1 for word in words):
        meant |= {state.casefold(): state for state in words.values()}
    return meant


def lasting(seconds: float) -> str:
    """Return a time span as text: 250 ms, 4.2 s, 3 min 37 s, 5 h, 2 days 4 h."""
    for least, size, unit, smaller, part in SPANS:
        if seconds >= least:
            n, rest = divmod(round(seconds / smaller) * smaller, size)
            return f"{n:,.0f} {unit}" + (f" {rest / smaller:.0f} {part}" if rest else "")
    return f"{seconds:.3g} s" if abs(seconds) >= 0.9995 else f"{seconds * 1000:.3g} ms"


def never_finished(n: int) -> str:
    return f"taken {n:,} times and never finished"


def taken_too_often(n: int) -> str:
    cause = "a process that worked on it died or was killed, its ttr passed, or it was restarted"
    return f"it was taken {n:,} times, and max_attempts allows no more: unless it failed before, {cause}"


def counted(n: int, ended: bool = True) -> str:
    """Return a number; "10,000+" if the count has not come to the end."""
    return f"{n:,}{'' if ended else '+'}"


@dataclass(frozen=True)
class Wording:
    """The words that a queue's messages use for its states, owners and remedies."""

    stored: Mapping[str, object] = field(default_factory=dict)  # by letter: the stored status, if it differs

    names: ClassVar[Mapping[str, str]] = {**NAMES, "X": "Deleted"}
    spelled: ClassVar[Mapping[str, str]] = NAMES  # in statistics, and on pages
    signs: ClassVar[Mapping[str, str]] = {}  # by letter: what the caller writes in its place

    def state(self, letter: str) -> str:
        """Return "waiting (W)"; "waiting (W, status 'later')" where the application stores its own words."""
        return "".join(self._parts(letter))

    def letter(self, named: object, letters: Collection[str]) -> str | None:
        """Return the letter for a state named by its stored status, else its letter, else its name; or None.

        A member of an Enum stands for its value, else for its name.
        """
        if isinstance(named, Enum):
            found = (self.letter(text, letters) for text in (named.value, named.name) if not isinstance(text, Enum))
            return next((letter for letter in found if letter), None)
        if isinstance(named, bool) or not isinstance(named, (str, int)):
            return None
        if isinstance(named, int) and named.bit_length() > 64:  # str() of a longer one may raise
            return None
        own = {str(self.stored[each]): each for each in letters if each in self.stored}
        text = str(plain(named))
        if text in own or text in letters:
            return own.get(text, text)
        names = {name.lower(): each for each in letters for name in (each, self.names.get(each, each))}
        return names.get(text.lower())

    def states(self, letters: Iterable[str]) -> str:
        return ", ".join(map(self.state, letters))

    def counts(self, counts: Mapping[str, int]) -> str:
        """Return "1 buried (B), 2 done (D)"."""
        return ", ".join(f"{n} {self.state(letter)}" for letter, n in counts.items())

    def task_in(self, letters: Sequence[str]) -> str:
        """Return "a taken task (T)", or "a task that is ready (R) or waiting (W)"."""
        if len(letters) == 1:
            name, note = self._parts(letters[0])
            return f"a {name} task{note}"
        return f"a task that is {either([*map(self.state, letters)])}"

    def _parts(self, letter: str) -> tuple[str, str]:
        name = self.names.get(letter)
        notes = [self.signs.get(letter, letter)] if name else []  # the states in users' own features have no name
        notes += [f"status {self.stored[letter]!r}"] if letter in self.stored else []
        return name.lower() if name else letter, f" ({', '.join(notes)})" if notes else ""

    def owner(self, token: str | None) -> str:
        """Return who owns a task that the caller may not move, and a remedy."""
        if token is None:
            return "an unknown owner (plain SQL?); snatch() takes it away"
        return (
            f"another session, or by another take of this one ({token}). If you had taken it, its ttr has passed: let "
            "it go, or give it a longer ttr. For another process to finish it there is the feature not_check_session"
        )

    def lacks(self, queue: str, event: str, option: str, features: Sequence[str]) -> str:
        """Return that an event, or one of its options, needs a feature missing in the queue."""
        return (
            f"{called(event, option)} needs the feature {either([*map(repr, features)])}, which {queue} does not have"
        )


PLAIN: Final = Wording()


def called(event: str, option: str) -> str:
    return f"{event}({option}=)" if option else event


def either(items: Sequence[str]) -> str:
    """Return "a, b or c"."""
    return " or ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
