"""A release with another definition is installed while processes of the older one go on: their puts fail none."""

from __future__ import annotations

from itertools import islice
from typing import Any

import xq
from tests.steps import another_process, next_release


def test_a_process_of_the_older_release_goes_on_to_put_and_only_that(make_live):
    Task = make_live({"delayed": True})

    def script():
        while True:
            said: list[Any] = []
            for call in (Task.put, Task.take):
                try:
                    said.append(bool(call()))
                except xq.NotInstalled as error:
                    said.append("its puts go on" in str(error) and "NotInstalled")
            yield said

    with another_process(make_live.db, script) as old:
        said = [next(old)]
        Newer = next_release(Task, features={"delayed": True, "keep": True, "buried": True, "history": True})
        Newer.install()
        said += islice(iter(lambda: old.send(None), [True, "NotInstalled"]), 100_000)  # takes end within a second
        said.append([True, "NotInstalled"])
        said += [old.send(None) for _ in range(20)]
    assert {(put, take) for put, take in said} == {(True, True), (True, "NotInstalled")}
    assert Newer.stats().transition["X-R"] == len(said)
    assert Newer.check() == []
