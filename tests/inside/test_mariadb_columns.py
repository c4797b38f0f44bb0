"""The columns that MariaDB makes of others for `unique` and `utube` are stored: it damages indexes of virtual ones.

xq 0.1 installed virtual ones, and `install()` moves those.
"""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import eventually, is_exact, processes, run_script

pytestmark = pytest.mark.parametrize("shared_db", ["mariadb"], indirect=True)

FEATURES = {"unique": True, "utube": True, "keep": True}
QUEUE: dict[str, Any] = {"features": FEATURES, "roles": ("priority", "unique", "utube")}

# What xq 0.1 installed in the place of today's columns and indexes, in its words; the rest is the same.
OF_0_1 = (
    "ALTER TABLE `task` DROP INDEX `task_xq_utube`, DROP COLUMN `task_xq_turn`",
    "ALTER TABLE `task` DROP INDEX `task_xq_unique`, DROP COLUMN `task_xq_held`",
    "ALTER TABLE `task_xq_utube_1` DROP INDEX open, DROP COLUMN open",
    "ALTER TABLE `task_xq_utube_1` ADD COLUMN "
    "open BOOLEAN GENERATED ALWAYS AS (taken < 1 AND k0 IS NOT NULL) VIRTUAL, ADD INDEX (open, priority, k0)",
    "ALTER TABLE `task` ADD COLUMN IF NOT EXISTS `task_xq_turn` CHAR(64) CHARACTER SET ascii GENERATED ALWAYS AS "
    "(SHA2(CONVERT(`utube` USING utf8mb4), 256)) VIRTUAL INVISIBLE, "
    "ADD INDEX IF NOT EXISTS `task_xq_utube` (`status`, `task_xq_turn`, `priority`, `id`)",
    "ALTER TABLE `task` ADD COLUMN IF NOT EXISTS `task_xq_held` CHAR(64) CHARACTER SET ascii GENERATED ALWAYS AS "
    "(CASE WHEN (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) "
    "THEN SHA2(CONVERT(`job` USING utf8mb4), 256) END) VIRTUAL INVISIBLE, "
    "ADD UNIQUE INDEX IF NOT EXISTS `task_xq_unique` (`task_xq_held`)",
    "UPDATE xq_queue SET version = '5'",
)


def made_of_others(db):
    """The columns that the database makes of others, and whether each is stored."""
    found = db.execute_sql(
        "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND generation_expression IS NOT NULL"
    )
    return {name: "STORED" in extra for name, extra in found.fetchall()}


STORED = {"task_xq_held": True, "task_xq_turn": True, "open": True}


def as_of_0_1(make):
    """A queue as xq 0.1 installed it, with tasks in all states, and a definition of it by this version."""
    Task = make(**QUEUE)
    for n, utube in enumerate("aabb"):
        Task.put(task(job=str(n), utube=utube))
    eventually(Task.take).ack()  # another connection may be refreshing the heads
    assert eventually(Task.take)
    for sql in OF_0_1:
        make.db.execute_sql(sql)
    assert made_of_others(make.db) == dict.fromkeys(STORED, False)
    model = make.model()
    xq.upgrade(
        model, {"status": "status", "priority": "priority", "unique": "job", "utube": "utube"}, QUEUE["features"]
    )
    return model


def test_install_moves_what_0_1_installed(make_live):
    Task = as_of_0_1(make_live)
    with pytest.raises(xq.NotInstalled, match="layout 5, this is 10"):
        Task.put(task())

    def script():
        Task.xq.install()
        yield made_of_others(make_live.db)

    with processes(make_live.db, *[script] * 3) as others:
        assert [next(other) for other in others] == [STORED] * 3
    assert Task.stats().transition == {"X-R": 4, "R-T": 2, "T-D": 1}
    assert is_exact(Task)
    with pytest.raises(xq.Duplicate):
        Task.put(task(job="3"))
    assert eventually(Task.take)
    assert sorted(found.utube for found in Task.xq.by_state("T")) == ["a", "b"]
    assert Task.take() is None
    damages = make_live.db.execute_sql("CHECK TABLE task, task_xq_utube_1 EXTENDED").fetchall()
    assert {found[-1] for found in damages} == {"OK"}


def test_the_ddl_as_text_moves_it_as_well(make_live):
    Task = as_of_0_1(make_live)
    run_script(make_live.db, Task.xq.ddl())
    assert made_of_others(make_live.db) == STORED
    assert Task.xq.check() == []


def test_uninstall_takes_the_columns_away_also_those_of_0_1(make_live):
    for of_0_1 in (False, True):
        Task = as_of_0_1(make_live) if of_0_1 else make_live(**QUEUE)
        Task.xq.uninstall()
        assert made_of_others(make_live.db) == {}
        assert list(make_live.db.get_tables()) == ["task"]
        Task.drop_table()


def test_what_the_application_writes_and_reads_has_no_more_columns_than_before(make_shared):
    Task = make_shared(**QUEUE)
    columns = [field.column_name for field in Task._meta.sorted_fields]
    values = ["7", "'mine'", "0", "'R'", *["NULL"] * (len(columns) - 4)]
    values[columns.index("attempts")] = "0"
    make_shared.db.execute_sql(f"INSERT INTO task VALUES ({', '.join(values)})")
    assert len(make_shared.db.execute_sql("SELECT * FROM task").fetchone()) == len(columns)
    assert Task.take().id == 7


@pytest.mark.parametrize("role", ["unique", "utube"])
def test_a_foreign_key_that_changes_a_column_of_which_one_is_stored_is_refused(make_shared, role):
    db = make_shared.db
    meta = {"database": db, "table_name": "site"}
    Site: Any = type("Site", (pw.Model,), {"id": pw.IntegerField(primary_key=True), "Meta": type("Meta", (), meta)})
    db.create_tables([Site])
    changes: Any
    for changes in ({"on_delete": "SET NULL"}, {"on_update": "CASCADE"}, {"on_update": "SET NULL"}):
        model = make_shared.model(site=pw.ForeignKeyField(Site, null=True, **changes))
        queue = {"model": model, "features": {role: True}, "fields": {"status": "status", role: "site"}}
        with pytest.raises(pw.DatabaseError, match="1901"):
            make_shared(**queue)
        db.drop_tables([model])
    Task = make_shared(
        **{**queue, "model": make_shared.model(site=pw.ForeignKeyField(Site, null=True, on_delete="CASCADE"))}
    )
    Task.put(task(site=Site.create(id=1)))
    assert Task.take().site_id == 1
