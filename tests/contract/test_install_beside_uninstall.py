"""Installing a queue while another process takes the last other queue away, and with it the tables that all share."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import xq
from tests.steps import PATIENCE, until_one_waits_for_a_lock


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # others install within no transaction
@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_queue_is_installed_as_the_last_other_one_is_taken_away(make_live, begun):
    db = make_live.db
    Other = make_live(model=make_live.model(table_name="other"))
    Task: Any = make_live.model()
    db.create_tables([Task])
    xq.upgrade(Task, {"status": "status"})
    errors: list[BaseException] = []

    def install() -> None:
        try:
            with db.connection_context():
                Task.xq.install()
        except BaseException as error:
            errors.append(error)

    installing = threading.Thread(target=install)
    with db.atomic():
        if begun == "after":
            Other.xq.uninstall()
        else:
            make_live(model=make_live.model(table_name="third")).xq.uninstall()  # nobody else installs from here on
        installing.start()
        until_one_waits_for_a_lock(db)
        Other.xq.uninstall()
    installing.join(PATIENCE)
    assert errors == []
    assert Task.xq.check() == []
    Task.put({})
    assert Task.take()
