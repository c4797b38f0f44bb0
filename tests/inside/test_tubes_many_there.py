"""What tubes cost where there are many."""

from __future__ import annotations

import xq
from xq.adapters.peewee import PeeweeStore
from xq.sessions import session as sessions


def test_making_a_tube_reads_no_more_rows_when_there_are_others(sqlite_db, monkeypatch):
    queue, read = xq.Tubes(sqlite_db), 0
    plain = PeeweeStore.execute

    def execute(self, sql, values=()):
        nonlocal read
        found = plain(self, sql, values)
        read += len(found)
        return found

    monkeypatch.setattr(PeeweeStore, "execute", execute)
    needed = []
    for n in range(6):
        before = read
        queue.create_tube(f"tube {n}", "fifottl")
        needed.append(read - before)
    assert needed[-1] == needed[1], "the first makes what all share, too"


def test_tubes_that_nobody_writes_are_not_looked_at_again(sqlite_db, monkeypatch):
    queue = xq.Tubes(sqlite_db)
    for n in range(30):
        queue.create_tube(f"tube {n}", "fifottl").put(n)
    (upkeep,) = sessions.of(queue.database).reaper.others
    looked, plain = [], PeeweeStore.execute

    def execute(self, sql, values=()):
        looked.append(sql)
        return plain(self, sql, values)

    monkeypatch.setattr(PeeweeStore, "execute", execute)
    upkeep.expire()
    assert len([sql for sql in looked if "UNION ALL" in sql]) == 2, "many by one statement"
    looked.clear()
    monkeypatch.setattr(upkeep, "_next_look", 0.0)
    upkeep.expire()
    assert len(looked) == 1, "whether anything was committed"
