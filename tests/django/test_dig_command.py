"""What manage.py xq_dig takes for a key, and what for a number."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.django.test_commands import buried, manage


def test_an_argument_is_a_key_and_n_a_number(office):
    keys = buried(office.Order, 4)
    assert manage("xq_dig", "office.Order", keys[2]) == "office.Order: 1 dug\n"
    assert [office.Order.xq.peek(key).status for key in keys] == ["B", "B", "R", "B"]
    assert manage("xq_dig", "office.Order", "-n", 1) == "office.Order: 1 dug\n"
    assert [office.Order.xq.peek(key).status for key in keys] == ["R", "B", "R", "B"]
    for both in (["-n", 1], ["--key", keys[3]]):
        with pytest.raises(CommandError, match="not allowed with argument"):
            manage("xq_dig", "office.Order", keys[1], *both)
    assert manage("xq_dig", "office.Order") == "office.Order: 2 dug\n"


def test_an_argument_may_be_a_key_of_several_parts(office):
    buried(office.Page, 1, site="one", number=7)
    assert manage("xq_dig", "office.Page", '["one", 7]') == "office.Page: 1 dug\n"
