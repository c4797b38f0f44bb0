"""The list of mutants in tests/long/mutants.py fits the code and its tests."""

from __future__ import annotations

import pytest

from tests.long.mutants import MUTANTS, ROOT, Mutant, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_changes_one_place_of_the_code_and_can_be_compiled(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    changed = mutated(text, mutant)
    assert changed != text
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec", dont_inherit=True)


def test_the_tests_that_should_notice_a_mutant_exist() -> None:
    for mutant in MUTANTS:
        for file, _, test in (hint.partition("::") for hint in mutant.hints.split()):
            path = ROOT / "tests" / file
            assert path.is_dir() or f"def {test}" in path.read_text(), f"{mutant.what}: there is no {file}::{test}"
