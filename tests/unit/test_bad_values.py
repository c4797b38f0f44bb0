"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

import pytest

import xq


def test_a_refused_upgrade_leaves_the_model_as_it_was(make):
    Task = make.model()
    for call in (
        lambda: xq.upgrade(Task, {}),
        lambda: xq.upgrade(Task, {"status": "status"}, {"ttl": True}),
        lambda: xq.upgrade(Task, {"status": "status"}, methods=("put", "nonsense")),
    ):
        with pytest.raises(xq.ConfigurationError):
            call()
        assert not hasattr(Task, "xq")
        assert not hasattr(Task, "put")
        assert not Task._meta.only_save_dirty  # save() writes all, as it did
