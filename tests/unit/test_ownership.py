"""Who owns a taken task: sessions, and the take that an object comes from."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.support import ownership as support

owner, queue = support.owner, support.queue


@pytest.mark.parametrize(("name", "error"), [("abc", xq.BadValue), ("", xq.BadValue), (5, xq.BadType)])
def test_a_session_is_named_by_its_uuid(queue, name, error):
    with pytest.raises(error):
        queue.xq.session(name)


def test_to_leave_the_check_out_needs_a_ttr(make):
    with pytest.raises(xq.ConfigurationError, match=r"not_check_session.*ttr"):
        make({"not_check_session": True})


def test_an_owner_field_must_hold_a_mark(make):
    with pytest.raises(xq.ConfigurationError, match="owner"):
        make(roles=("owner",), attributes={"owner": pw.CharField(max_length=10, null=True)})
