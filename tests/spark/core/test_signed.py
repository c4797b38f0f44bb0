"""An option is read only as what it was signed as."""

from __future__ import annotations

import pytest

import xq
from xq.adapters.spark.source import Xq


def test_an_option_that_was_signed_as_another_is_refused(make_live):
    options, source = xq.spark.options(make_live()), Xq.signed("local[*]")
    assert source(options).sent("extract").what == "tasks"
    for name, other in (("extract", "bulk"), ("bulk", "extract")):
        with pytest.raises(xq.ConfigurationError, match=f"the option '{name}' was not made by the process"):
            source({**options, name: options[other]}).sent(name)
