"""Durable steps under many kills, and signals beside waits in many rounds."""

from __future__ import annotations

import pytest

from tests.guarantees.test_steps import rounds
from tests.support.killed_steps import check


@pytest.mark.parametrize("in_transaction", [True, False], ids=["in atomic()", "plain"])
def test_a_thousand_kills(make_live, in_transaction):
    check(make_live, 500, in_transaction)


def test_ten_thousand_signals_beside_their_waits(make_live):
    rounds(make_live, 10_000)
