"""From which errors of a take it is known that nothing was taken."""

from __future__ import annotations

import pytest

import xq
from xq.core.ports import ErrorKind
from xq.engine.take import InDoubtTakes


class Store:
    """A database that has raised none of these errors."""

    def classify(self, error):
        return ErrorKind.NOT_DATABASE


class Batches:
    store = Store()


@pytest.mark.parametrize("kind", [xq.BadValue, xq.BadType, KeyError, KeyboardInterrupt])
def test_an_error_that_the_handler_of_a_signal_may_have_raised_leaves_a_take_in_doubt(kind):
    assert not InDoubtTakes(Batches()).excluded_by(kind("by the application"))  # type: ignore[arg-type]


def test_an_error_that_xq_raises_before_it_takes_leaves_no_doubt():
    assert InDoubtTakes(Batches()).excluded_by(xq.ConfigurationError("other features"))  # type: ignore[arg-type]
