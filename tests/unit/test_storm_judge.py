"""The judge of a storm finds what is wrong, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.storm import Away, Witness

A, B = "a/1", "b/1"  # takes of two sessions
NEVER = 1000.0

Hear = Callable[..., list[str]]


@pytest.fixture
def two_hands(tmp_path: Path) -> Hear:
    """What is found in the logs of processes, each a list of lines; the second one is killed at a time, if any."""

    def hear(*logs: Sequence[Sequence[Any]], away: Sequence[Away] = (), killed: float | None = None) -> list[str]:
        witness = Witness(away)
        for n, lines in enumerate(logs):
            path = tmp_path / f"{n}.log"
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            witness.hear(path, killed if n == 1 else None)
        return [*witness.errors, *witness.two_hands()]

    return hear


def has(at: float, token: str, since: float | None = None, until: float | None = NEVER) -> list[Any]:
    return [at, "has", 1, token, at if since is None else since, until]


def lets_go(at: float, token: str) -> list[Any]:
    return [at, "lets go", 1, token, "ack", None]


FOUND = [f"task 1 was handed to {B} while {A} had it"]


HELD = [has(1, A), lets_go(4, A)]
OTHER = [has(2, B), lets_go(3, B)]
# the logs of two processes, and what was away or killed; whether the task was in two hands
JUDGED: dict[str, tuple[list[Any], list[Any], dict[str, Any], bool]] = {
    "from hand to hand": ([has(1, A), lets_go(2, A)], [has(3, B), lets_go(4, B)], {}, False),
    "while another has it": (HELD, OTHER, {}, True),
    "whose ttr has passed": ([has(1, A, until=1.9), lets_go(4, A)], OTHER, {}, False),
    "taken away": (HELD, [[1.2, "takes away", 1], [1.8, "took away", 1], *OTHER], {}, False),
    "who is told of it when it was taken away": (
        [[2, "takes away", 1], [2.1, "took away", 1], has(3, A, since=2.2), lets_go(5, A)],
        [has(4, B, since=1), lets_go(4.5, B)],
        {},
        False,
    ),
    "whose server went away": (HELD, [has(3, B), lets_go(3.5, B)], {"away": [(1.5, 2.5)]}, False),
    "whose server went away later": (HELD, OTHER, {"away": [(2.5, 2.7)]}, True),
    "who was killed": ([has(3, B), lets_go(4, B)], [has(1, A)], {"killed": 2}, False),
    "who was killed later": ([has(3, B), lets_go(4, B)], [has(1, A)], {"killed": 3.5}, True),
}


@pytest.mark.parametrize("what", JUDGED)
def test_a_task_is_in_two_hands_only_if_it_is_handed_out_while_another_has_it(two_hands, what):
    *logs, options, is_found = JUDGED[what]
    assert two_hands(*logs, **options) == FOUND * is_found


def test_what_was_let_go_of_in_a_transaction_that_was_undone_was_in_hand_all_the_time(two_hands):
    undone = [has(1, A), lets_go(2, A), has(4.1, A, since=1), lets_go(4.2, A)]
    taken_away = [[1.5, "takes away", 1], [3.8, "took away", 1], has(4, B, since=3.9), lets_go(5, B)]
    assert two_hands(undone, taken_away) == []  # told of late
    assert two_hands(undone, [has(3, B), lets_go(5, B)]) == FOUND
