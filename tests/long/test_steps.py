"""Durable steps under many kills, and signals beside waits in many rounds."""

from __future__ import annotations

import pytest

from tests.guarantees.test_steps import rounds
from tests.support.killed_steps import check, check_sessions


@pytest.mark.parametrize("in_transaction", [True, False], ids=["in atomic()", "plain"])
def test_a_thousand_kills(make_live, in_transaction):
    check(make_live, 500, in_transaction)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["session", "async session"])
def test_a_thousand_kills_of_sessions(make_live, asynchronous):
    check_sessions(make_live.db, 250, asynchronous)


def test_ten_thousand_signals_beside_their_waits(make_live):
    rounds(make_live, 10_000)
