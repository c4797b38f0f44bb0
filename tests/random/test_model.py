"""Random calls on a queue of a model of Peewee's."""

from __future__ import annotations

import pytest

from tests.conftest import DATABASES
from tests.random_calls import PeeweeApplication, check_random_calls

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


@pytest.mark.parametrize("kind", DATABASES)
def test_random_calls_leave_what_the_model_says(kind, tmp_path_factory):
    check_random_calls(
        lambda: PeeweeApplication(kind, tmp_path_factory.mktemp("model")), programs=100 if kind == "sqlite" else 12
    )
