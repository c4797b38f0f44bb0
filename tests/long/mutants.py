"""Apply mutants: small deliberate faults, one at a time, in a copy of the checkout. A test should notice each.

    python tests/long/mutants.py                     # those that `make test` should notice
    python tests/long/mutants.py --tier rest 7 12    # numbers 7 and 12, by the tests of the tier `rest`
    python tests/long/mutants.py --from 41           # goes on where a run has ended

For each mutant the most likely tests run first, then the whole tier. A mutant that survives shows a missing test. If no
user could notice the fault, the mutant is equivalent: delete it from the list. The checkout itself is never changed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One fault: `new` replaces `old`, which is in `file` exactly once."""

    what: str  # what goes wrong
    file: str
    old: str
    new: str
    hints: str  # the tests that run first, with blanks between them: folders, files, or file::test, below tests/
    tier: str = "test"  # the tier in which a test should notice it


MUTANTS: Final[Sequence[Mutant]] = (
    # the machine and its features
    Mutant(
        "no waiter is called when a utube becomes free",
        "xq/core/machine.py",
        "return target == READY or (target != TAKEN and any(source in guard.in_the_way for guard in self.guards))",
        "return target == READY",
        "contract/core/test_utube.py unit/test_machine.py",
    ),
    Mutant(
        "two keys of one clock tick are the same",
        "xq/features/id.py",
        "self._last = max(self._read(), self._last + 1)",
        "self._last = self._read()",
        "contract/test_put.py::test_the_order_of_uuids_is_the_order_of_put_though_the_clock_stands_still_or_is_set_back",
    ),
    Mutant(
        "an error loses what it carries on its way to another process",
        "xq/core/errors.py",
        "return _unpickled, (type(self), self.args, self.__dict__)",
        "return _unpickled, (type(self), self.args, {})",
        "unit/test_errors.py::test_an_error_reaches_another_process_whole_and_says_what_its_attributes_are",
    ),
    # what a transition writes
    Mutant(
        "runat is not cleared where nothing times the state",
        "xq/core/compile.py",
        '        roles["runat"] = After(("now",), (seconds(timer),)) if timer else None',
        '        if timer:\n            roles["runat"] = After(("now",), (seconds(timer),))',
        "contract/test_time.py::test_a_task_moves_at_its_time_and_neither_before_nor_without_one",
    ),
    Mutant(
        "the ttl begins before the delay is over",
        "xq/core/compile.py",
        "waits = (brought[row.given],) if row.given in late else ()",
        "waits = ()",
        "contract/core/test_calls.py::test_a_call_returns_writes_and_counts_what_its_line_says",
    ),
    # moves, puts, time
    Mutant(
        "the first take of a process does not see what a killed one held",
        "xq/engine/take.py",
        "self._maintenance.reap(some=True) == reaped:",
        "self._maintenance.reap(some=True) >= reaped:",
        "inside/test_interleavings.py::test_the_first_take_of_a_process_finds_what_a_dead_one_held",
        tier="rest",
    ),
    Mutant(
        "an object that another session was given opens its fence",
        "xq/engine/named.py",
        "prefix, token if token and token.startswith(prefix) else NO_TAKE",
        'prefix, token or ""',
        "contract/core/test_ownership.py",
    ),
    Mutant(
        "the savepoint around many moves is left out",
        "xq/engine/several.py",
        "        tasks = self.executor.transaction(move)\n        for",
        "        tasks = move()\n        for",
        "contract/test_batches.py::test_one_that_is_missing_or_named_twice_stops_them_all explore/test_explore.py",
    ),
    Mutant(
        "a second task with the value is an error of the ORM",
        "xq/engine/executor.py",
        "and binding.dialect.moves.is_duplicate(str(last))",
        "and not binding.dialect.moves.is_duplicate(str(last))",
        "contract/core/test_unique.py::test_what_returns_to_a_state_where_its_value_is_taken_is_a_duplicate",
    ),
    Mutant(
        "one sweep forgets one batch of the history",
        "xq/engine/timers.py",
        "or swept.refreshed or swept.forgotten == PER_MOVE:",
        "or swept.refreshed:",
        "contract/core/test_history.py::test_many_rows_are_forgotten_at_once",
    ),
    Mutant(
        "what a take took is kept where a signal handler raised BadValue",
        "xq/engine/in_doubt.py",
        "return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))",
        "return isinstance(error, Error)",
        "unit/test_errors.py::test_an_error_that_the_handler_of_a_signal_may_have_raised_leaves_a_take_in_doubt",
    ),
    Mutant(
        "a batch of tasks that cannot be moved stops those behind it",
        "xq/engine/timers.py",
        "if moved or len(listed) < n:",
        "if moved or len(listed) <= n:",
        "contract/test_timers.py::test_more_than_a_batch_of_rows_that_cannot_be_moved_stops_no_other",
    ),
    Mutant(
        "a key that is made and taken already is not made again",
        "xq/engine/insert.py",
        "for key in self._keys_in(complete)):\n                        continue\n",
        "for key in self._keys_in(complete)):\n                        raise\n",
        "contract/test_transactions.py::test_a_made_key_that_is_taken_leaves_the_transaction_usable",
    ),
    Mutant(
        "the last task of each chunk is left out",
        "xq/core/values.py",
        "        yield chunk",
        "        yield chunk[: max(1, size - 1)]",
        "contract/test_batches.py::test_thousands_are_moved_at_once",
    ),
    Mutant(
        "conflicts are not retried",
        "xq/database/transactions.py",
        "store.classify(error) is not ErrorKind.CONFLICT:\n",
        "True:\n",
        "inside/test_mariadb.py inside/test_interleavings.py",
        tier="rest",
    ),
    Mutant(
        "an error within a transaction ends it: the savepoint is left out",
        "xq/engine/executor.py",
        "if saves and self.store.driver.errors_end_transactions:",
        "if saves and self.store.driver.errors_end_transactions is None:",
        "contract/core/test_unique.py::test_a_duplicate_leaves_the_transaction_usable",
    ),
    # installing
    Mutant(
        "two long names of tables have the same tables beside them",
        "xq/core/kinds.py",
        'table = f"{short}~{hashlib.sha256(table.encode()).hexdigest()[:8]}"',
        'table = f"{short}~"',
        "contract/core/test_install.py::test_two_queues_whose_long_table_names_begin_alike_have_each_its_own_history_and_counts",
    ),
    Mutant(
        "tasks are left in states that the new definition lacks",
        "xq/sql/installer/installation.py",
        "        if full:\n",
        "        if full and not lost:\n",
        "contract/core/test_install.py::test_features_may_not_go_while_tasks_are_in_their_states",
    ),
    Mutant(
        "uninstalling one queue drops the records of the others",
        "xq/sql/installer/installation.py",
        "if TUBES not in there and not self.store.execute(self.dialect.shared.queues):",
        "if TUBES not in there:",
        "contract/core/test_install.py::test_two_queues_of_a_database_come_and_go_on_their_own",
    ),
    Mutant(
        "the statement that moves a task of a lost state leaves its timer",
        "xq/sql/installer/installation.py",
        'dict.fromkeys({"runat", "deadline"} -',
        'dict.fromkeys({"deadline"} -',
        "contract/core/test_install.py::test_the_refusal_of_lost_states_has_the_statements_that_move_their_tasks_and_the_old_triggers_count_it",
    ),
    Mutant(
        "a row that leaves the queue keeps its timer",
        "xq/sql/installer/objects.py",
        '"emptied": LEFT.keys() & self.terms.roles',
        '"emptied": False',
        "contract/core/test_leaving.py::test_a_row_that_comes_back_has_no_time_and_no_lost_take_of_before",
    ),
    # sessions, waiting, workers
    Mutant(
        "two takes of one millisecond have the same token",
        "xq/database/sessions.py",
        "{int(now * 1000):x}.{_process}.{next(_takes) % 2**20:x}",
        "{int(now * 1000):x}.{_process}",
        "contract/core/test_ownership.py::test_an_object_is_refused_after_it_was_released_and_taken_again_at_the_same_moment",
    ),
    Mutant(
        "a session that other processes joined ends with the first that leaves",
        "xq/database/sessions.py",
        "if alone and not session.live:",
        "if not session.live:",
        "guarantees/test_death.py",
    ),
    Mutant(
        "a session does not expire when its ttr has passed",
        "xq/database/reaper.py",
        "if seconds is not None and seconds <= 0]",
        "if seconds is not None and seconds <= -3600]",
        "contract/test_tubes_processes.py inside/test_life.py",
    ),
    Mutant(
        "orphaned tasks are not reaped by the maintenance thread",
        "xq/database/duties.py",
        " and self._reaper.reap()\n",
        " and False\n",
        "inside/test_life.py::test_after_its_ttr_a_lost_session_is_unknown_and_its_tasks_are_ready",
    ),
    Mutant(
        "the waits of a killed process stay in the database",
        "xq/runtime/queue_maintenance.py",
        '        if event in ("died", OUTAGE):\n            of_sessions(self.executor, shared, forget_waits, uuids)\n',
        "",
        "contract/core/test_wait.py::test_of_a_process_that_is_killed_while_it_waits_no_row_is_left",
    ),
    Mutant(
        "a waiting take is not told that another process has put a task",
        "xq/runtime/waiters.py",
        "        if ready:\n            self.takers.wake_first()\n        self.putters",
        "        self.putters",
        "guarantees/test_waiting.py::test_a_take_in_another_process_wakes_by_a_task",
    ),
    Mutant(
        "a waiter that leaves keeps the call it has not used",
        "xq/runtime/waiters.py",
        "            if waiter.woken:  # and leaves without a look: others must look, in any tube",
        "            if waiter.woken and self.waiters is None:",
        "unit/test_runtime.py",
    ),
    Mutant(
        "a buried task counts as processed",
        "xq/runtime/waiting.py",
        'return any(row.event == "ack" and row.target == state for row in',
        "return any(row.target == state for row in",
        "contract/core/test_wait.py::test_who_waits_is_told_when_a_task_is",
    ),
    Mutant(
        "the backoff of a worker does not grow",
        "xq/workers/outcomes.py",
        "return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(max(attempt, 1) - 1, 20)) *",
        "return FIRST_PAUSE *",
        "contract/test_workers.py::test_what_fails_is_released_with_a_delay_that_grows_or_that_its_backoff_says",
    ),
    Mutant(
        "a task is tried once more than max_attempts",
        "xq/workers/failed.py",
        "(self._most and attempt.number >= self._most):",
        "(self._most and attempt.number > self._most):",
        "contract/test_workers.py::test_a_failed_attempt_is_a_warning_until_the_task_is_buried_with_its_error",
    ),
    Mutant(
        "a second SIGTERM is not heard while a task is worked on",
        "xq/workers/program.py",
        "                for pool in self._pools:\n                    pool.release_all()",
        "                for pool in self._pools[1:]:\n                    pool.release_all()",
        "contract/test_workers.py::test_a_second_signal_releases_a_task_and_no_other_worker_begins_it",
    ),
    Mutant(
        "workers that wait for a task do not hear that they are stopped",
        "xq/workers/pool.py",
        "        self._worker.waiting.waiters.takers.wake_all()",
        "        pass",
        "guarantees/test_workers.py::test_workers_that_wait_for_a_task_end_at_once_when_they_are_stopped",
    ),
    # SQL of every database
    Mutant(
        "a token fences nothing",
        "xq/sql/moves.py",
        'f" AND {owner} = :token"',
        '""',
        "contract/core/test_ownership.py::test_an_object_of_an_earlier_take_is_refused_even_in_the_same_session",
    ),
    Mutant(
        "the source state does not stand in the WHERE",
        "xq/sql/moves.py",
        'return f"{self.terms.by_key()} AND {state}{due}{self.terms.lost(rows)}{holds}"',
        'return f"{self.terms.by_key()}{due}{self.terms.lost(rows)}{holds}"',
        "contract/core/test_calls.py::test_a_call_that_is_refused_says_why_and_moves_none_of_its_tasks",
    ),
    Mutant(
        "what is due at this very moment is not moved",
        "xq/sql/rows.py",
        "{self.roles[rows.column]} <= {self.bound(",
        "{self.roles[rows.column]} < {self.bound(",
        "contract/core/test_take.py contract/core/test_transitions.py",
    ),
    Mutant(
        "a take hands out what is past its time and not swept yet",
        "xq/sql/rows.py",
        "        timers = self.machine.timers.get(state, ())\n        return",
        "        timers = self.machine.timers.get(state, ())[1:]\n        return",
        "contract/core/test_take.py::test_a_task_past_its_ttl_is_never_taken_though_the_database_refuses_to_delete_it",
    ),
    Mutant(
        "attempts are not counted",
        "xq/sql/moves.py",
        'PLUS_ONE.name: f"COALESCE({self.terms.roles[role]}, 0) + 1"}',
        'PLUS_ONE.name: f"COALESCE({self.terms.roles[role]}, 0)"}',
        "contract/core/test_history.py::test_a_row_tells_task_tube_owner_and_attempt contract/core/test_take.py",
    ),
    Mutant(
        "a queue is full one task too early",
        "xq/sql/moves.py",
        "+ :adding <= {guard.value}",
        "+ :adding < {guard.value}",
        "contract/core/test_limit.py::test_tasks_count_until_they_are_finished",
    ),
    Mutant(
        "quotes in names are not doubled",
        "xq/sql/named.py",
        "return quotes + name.replace(quotes, quotes * 2) + quotes",
        "return quotes + name + quotes",
        "contract/test_names.py",
    ),
    Mutant(
        "one more task of a utube is taken",
        "xq/features/utube/heads.py",
        "} < {of}most",
        "} <= {of}most",
        "contract/core/test_utube.py::test_tasks_of_utubes_are_taken_as_their_story_says",
    ),
    Mutant(
        "a default wins over the limit that was set",
        "xq/sql/limits.py",
        "is_set DESC",
        "is_set",
        "contract/test_limits.py::test_a_raised_limit_lets_the_next_tasks_go_and_a_lowered_one_takes_nothing_back",
    ),
    Mutant(
        "the newest row of the history goes to the archive",
        "xq/adapters/spark/archive.py",
        "NOT late AND id <> {newest} AND",
        "NOT late AND",
        "spark/test_archive.py::test_an_archive_and_the_table_are_one",
        tier="rest",
    ),
    Mutant(
        "the row of a checkpoint is read in the next part",
        "xq/pipeline/sql/readers.py",
        'beside(order, part.until, "<=")',
        'beside(order, part.until, "<")',
        "contract/test_pipeline.py::test_checkpoints_cut_the_history_where_they_are_told_to",
    ),
    Mutant(
        "what falls due in a block of acting has its actor",
        "xq/sql/terms.py",
        "return bool(event) and not any(row.event == event for row in self.machine.rows if row.due or row.loses)",
        "return bool(event)",
        "contract/test_act.py::test_what_the_application_writes_what_falls_due_and_what_follows_a_block_has_no_actor",
    ),
    # SQLite
    Mutant(
        "the history tells every event as a write",
        "xq/sql/sqlite/event_context.py",
        "context[EVENT] = event\n        context[AT]",
        "context[EVENT] = EVENT\n        context[AT]",
        "contract/core/test_history.py::test_what_is_done_is_told_by_the_name_of_its_event",
    ),
    Mutant(
        "the liveness lock is not taken",
        "xq/sql/file_liveness.py",
        "return self._locked(uuid, fcntl.F_RDLCK)",
        "return self._descriptor >= 0",
        "inside/test_life.py::test_a_shared_session_lives_as_long_as_one_of_its_processes",
    ),
    Mutant(
        "a transaction does not lock the file before it reads",
        "xq/drivers/sqlite.py",
        'begin = "BEGIN IMMEDIATE"',
        'begin = "BEGIN"',
        "contract/test_sqlite.py::test_a_call_that_reads_before_it_writes_locks_the_file_before_both",
    ),
    # PostgreSQL and MariaDB
    Mutant(
        "processes that put at once pass the limit",
        "xq/sql/server.py",
        "                self.terms.one_at_a_time(connection, within)\n                return run(connection",
        "                return run(connection",
        "guarantees/test_once.py::test_of_tasks_that_all_put_there_are contract/core/test_limit.py",
    ),
    Mutant(
        "a session whose process lives is reaped",
        "xq/sql/session_connection.py",
        "return [uuid for uuid in uuids if uuid not in living]",
        "return [*uuids]",
        "contract/core/test_ownership.py",
    ),
    Mutant(
        "of MariaDB a take does not lock the task that it picks",
        "xq/sql/server.py",
        'skip = f"{lock} SKIP LOCKED"',
        'skip = ""',
        "guarantees/test_once.py::test_no_task_is_taken_twice",
    ),
    Mutant(
        "PostgreSQL does not count a TRUNCATE",
        "xq/sql/postgres/postgres_objects.py",
        '(("delete", "changed"), ("truncate", f"{self.known[\'table\']} AS changed"))',
        '(("delete", "changed"),)',
        "contract/core/test_take.py::test_a_table_that_plain_sql_empties_is_counted_as_empty",
    ),
    Mutant(
        "rows of a dirty group pile up",
        "xq/features/utube/server.py",
        "if len(of_one) >= PILE and",
        "if len(of_one) >= PILE**3 and",
        "contract/core/test_utube.py::test_dirty_marks_that_no_transaction_sees_yet_do_not_pile_up",
    ),
    Mutant(
        "of MariaDB a call does not lock the task of a key",
        "xq/sql/innodb/innodb_moves.py",
        '{self.named(rows)}{self.fence(rows)}{self.terms.lock}"',
        '{self.named(rows)}{self.fence(rows)}"',
        "contract/core/test_ownership.py::test_threads_that_fight_for_one_task_have_one_winner explore/test_explore.py",
    ),
    Mutant(
        "a backslash in a status is not escaped for MariaDB",
        "xq/sql/innodb/innodb_language.py",
        'return text.replace("\\\\", "\\\\\\\\") if isinstance(value, str) else text',
        "return text",
        "contract/core/test_install.py::test_the_ddl_of_mariadb_and_mysql_is_run_by_the_client_whatever_the_quotes_of_a_session_are",
    ),
    Mutant(
        "a history is read beyond what is committed",
        "xq/pipeline/sql/postgres.py",
        'last = self._row(connection, Part(f"xid < {end}", after), "DESC") or after',
        'last = self._row(connection, Part("", after), "DESC") or after',
        "inside/test_pipeline.py::test_a_checkpoint_never_passes_what_is_not_committed",
        tier="rest",
    ),
    # loads, archives, extracts
    Mutant(
        "a partition is put by each of its attempts",
        "xq/pipeline/bulk.py",
        "                if is_new:\n",
        "                if True:\n",
        "inside/test_pipeline.py::test_each_partition_is_put_in_the_order_of_its_rows",
        tier="rest",
    ),
    Mutant(
        "a task that is done again meanwhile is deleted for the archive",
        "xq/pipeline/archive.py",
        "if self.executor.run(binding.dialect.queries.done_again(until)):",
        "if False:",
        "inside/test_pipeline.py::test_what_moves_after_it_was_written_stays",
        tier="rest",
    ),
    Mutant(
        "a batch is written twice",
        "xq/pipeline/rollup.py",
        "            if batch <= number:\n",
        "            if batch < number:\n",
        "inside/test_pipeline.py::test_transitions_are_added_up_also_when_its_rows_were_cleaned_up",
        tier="rest",
    ),
    Mutant(
        "partitions overlap",
        "xq/pipeline/scan.py",
        "return [(low, high - 1) for low, high in pairwise(ends)]",
        "return [(low, high) for low, high in pairwise(ends)]",
        "contract/test_pipeline.py::test_ranges_have_each_row_once",
    ),
    # Peewee and the tubes
    Mutant(
        "save() moves a task back",
        "xq/adapters/peewee/model.py",
        "if name not in guarded]",
        "if name]",
        "contract/test_upgrade.py::test_save_writes_what_it_wrote_before_and_never_moves_a_task_back",
    ),
    Mutant(
        "what fails for one task is asked of the database for ever",
        "xq/drivers/sqlite.py",
        "ErrorKind.PERMANENT: (sqlite3.SQLITE_ERROR,)",
        "ErrorKind.TRANSIENT: (sqlite3.SQLITE_ERROR,)",
        "contract/test_timers.py::test_a_row_for_which_a_trigger_fails_stops_no_other",
    ),
    Mutant(
        "the id of a deleted task is used again",
        "xq/tubes/tables.py",
        '[pw.SQL("AUTOINCREMENT")] if of_sqlite else None',
        "None",
        "contract/test_tubes.py::test_a_tube_returns_tells_and_counts_what_its_story_says",
    ),
    Mutant(
        "a tube whose table is gone keeps its name",
        "xq/tubes/__init__.py",
        "if self.database.table_exists(found.table):",
        "if found.table:",
        "contract/test_tubes.py::test_a_name_whose_table_is_gone_is_free",
    ),
    Mutant(
        "another session may ack a task of a custom driver",
        "xq/tubes/custom.py",
        "        if owner is None or owner.session != self._host.session():\n",
        "        if owner is None:\n",
        "contract/test_tubes.py::test_a_tube_returns_tells_and_counts_what_its_story_says",
    ),
    Mutant(
        "what is due in a tube that is not open is left",
        "xq/tubes/unopened.py",
        "if tube.due_at <= now]:",
        "if tube.due_at <= now - 3600]:",
        "contract/test_tubes_processes.py::test_a_process_that_takes_from_one_tube_expires_and_reaps_in_another",
    ),
    # Django
    Mutant(
        "a put goes past the cursor of the backend, into the schema of another tenant",
        "xq/adapters/django/connections.py",
        "        if kept.makes_cursors:\n",
        "        if kept.makes_cursors and connection.raw is None:\n",
        "django/test_tenants.py::test_a_put_goes_into_the_schema_that_django_would_write_to_in_any_thread_and_coroutine",
        tier="rest",
    ),
    Mutant(
        "puts of several contexts go to the database of one of them",
        "xq/aio.py",
        " or not self._queue.parts.store.may_share:",
        ":",
        "django/test_store.py::test_each_call_goes_to_the_database_that_a_router_chooses_by_its_context",
    ),
    Mutant(
        "save() of a stale instance moves its task back",
        "xq/adapters/django/stale_saves.py",
        "return _Itself(field.column) if unchanged else written",
        "return written",
        "django/test_store.py::test_save_moves_a_task_only_by_a_status_that_the_application_assigned",
    ),
    Mutant(
        "a transaction of SQLite reads before it locks",
        "xq/adapters/django/connections.py",
        'lambda: connection.cursor().execute("BEGIN IMMEDIATE")',
        'lambda: connection.cursor().execute("BEGIN")',
        "django/test_store.py::test_a_transaction_of_the_queue_on_sqlite_lets_nobody_write_between_what_it_reads_and_writes",
    ),
    Mutant(
        "a queue whose migration was undone is installed again at once",
        "xq/adapters/django/after_migrate.py",
        "        if defined is None and awaited not in (None, there):\n",
        "        if defined is None and not awaited and there:\n",
        "django/test_migrations.py::test_the_migration_that_is_written_installs_the_queue_and_goes_back_to_the_plain_table",
    ),
    Mutant(
        "a migration that alters the table does not bring the triggers back",
        "xq/adapters/django/detection.py",
        "    for sql in made:\n",
        "    for sql in made[:0]:\n",
        "django/test_migrations.py::test_migrations_of_other_columns_leave_a_queue_exact_and_one_that_fails_is_mended_by_the_next",
    ),
    Mutant(
        "a flush leaves what was counted",
        "xq/adapters/django/after_migrate.py",
        "            queue.recount()\n            queue.reset()\n",
        "            queue.recount()\n",
        "django/test_migrations.py::test_a_flush_leaves_nothing_that_was_counted",
    ),
    Mutant(
        "who may change tasks may kill them",
        "xq/adapters/django/admin/queue_admin.py",
        "        return bool(self.has_delete_permission(request, obj))",
        "        return bool(self.has_change_permission(request, obj))",
        "django/test_admin.py::test_actions_are_for_those_who_may_change_tasks_and_kill_for_those_who_may_delete",
    ),
    Mutant(
        "a worker retries a task whose end the database refuses, whatever its options say",
        "xq/workers/attempts.py",
        "if not (attempt.ack and self.worker.ended(attempt.task, error, finish)):",
        "if True:",
        "django/test_tasks.py::test_a_task_whose_end_the_database_refuses_has_failed_by_that_error",
    ),
    # Spark
    Mutant(
        "of a task that was buried, dug and done, the report tells the first end, too",
        "xq/adapters/spark/facts.py",
        '"n": "-1"',
        '"n": "0"',
        "spark/core/test_round_trip.py",
    ),
    Mutant(
        "an option that was signed as another is read",
        "xq/adapters/spark/packed.py",
        'f"{name}\\n{text}".encode()',
        "text.encode()",
        "spark/core/test_session.py::test_an_option_that_another_has_written_or_that_was_signed_as_another_is_not_unpickled",
    ),
    Mutant(
        "a text of the page ends its script",
        "xq/adapters/spark/page.py",
        'json.dumps(data).replace("<", "\\\\u003c")',
        "json.dumps(data)",
        "spark/core/test_round_trip.py",
    ),
    Mutant(
        "tasks are touched after their ttr",
        "xq/runtime/lease.py",
        "now + self.ttr / HEARTBEATS",
        "now + self.ttr * HEARTBEATS",
        "spark/core/test_session.py::test_only_what_ttr_times_is_touched",
    ),
    # workers
    Mutant(
        "what a function has acked in a transaction that was rolled back counts as acked",
        "xq/engine/named.py",
        "work.finished, work.in_doubt = event, self.store.in_transaction()",
        "work.finished, work.in_doubt = event, False",
        "contract/test_workers.py::test_what_a_function_ends_itself_is_not_acked_again",
    ),
    Mutant(
        "a program that is killed after a signal has counted an attempt",
        "xq/workers/pool.py",
        "            self.attempts.uncount()\n",
        "",
        "guarantees/test_workers.py::test_what_runs_when_a_signal_ends_the_program_counts_only_if_it_fails_by_itself",
    ),
    Mutant(
        "a function without a tube takes the tasks of one that has its own function",
        "xq/workers/program.py",
        "tuple(sorted(each for each in others if each is not None))",
        "()",
        "contract/test_workers.py::test_each_function_gets_the_tasks_of_its_tube_and_one_those_of_all_others",
    ),
    Mutant(
        "a worker that may take nothing ends, though another gives back what it has reserved",
        "xq/workers/threads.py",
        "return budget.left > 0 and not self._stop.wait(PAUSE)",
        "return False",
        "guarantees/test_workers.py::test_what_a_worker_has_reserved_and_does_not_find_another_takes",
    ),
    Mutant(
        "PostgreSQL does not notify",
        "xq/sql/postgres/postgres_objects.py",
        "PERFORM pg_notify('{CHANNEL}', '');",
        "PERFORM 1;",
        "guarantees/test_waiting.py::test_a_take_in_another_process_wakes_by_a_task",
    ),
    # pauses and schedules
    Mutant(
        "a take of any tube takes from a paused one",
        "xq/engine/take.py",
        "tubes = tuple(sorted({*paused.tubes, *but})) if but else paused.tubes",
        "tubes = but",
        "contract/test_pause.py",
    ),
    Mutant(
        "a process that begins to take knows what is paused from its parent",
        "xq/runtime/queue_maintenance.py",
        "self.pauses.read()  # this process may have looked long ago",
        "pass",
        "guarantees/test_once.py::test_who_begins_to_take_knows_what_is_paused",
    ),
    Mutant(
        "a schedule fires again at the moment of its firing",
        "xq/runtime/schedules.py",
        "_at(after) + MICROSECOND",
        "_at(after)",
        "contract/test_schedules.py",
    ),
    Mutant(
        "a process fires what another one has fired since it looked",
        "xq/sql/records.sql",
        " AND next_us <= {now_us} {skip}",
        " {skip}",
        "guarantees/test_once.py::test_each_firing_of_a_schedule_puts_one_task",
    ),
    Mutant(
        "a repeated definition puts the next firing off",
        "xq/runtime/schedules.py",
        "next_us = next_us if was == spec else first",
        "next_us = first",
        "contract/test_schedules.py",
    ),
    # what the explorer finds
    Mutant(
        "a call whose answer was lost is repeated, though it may have been made",
        "xq/database/transactions.py",
        "store.classify(error) is not ErrorKind.CONFLICT:\n            break",
        "store.classify(error) not in (ErrorKind.CONFLICT, ErrorKind.LOST):\n            break",
        "explore/test_explore.py::test_a_call_whose_connection_is_lost_is_as_if_it_was_made_or_not",
    ),
    Mutant(
        "a schedule's next firing is written before its task is put, in another transaction",
        "xq/runtime/schedules.py",
        "fired = self.executor.transaction(put, caught=True)",
        "fired = put()",
        "explore/test_explore.py::test_a_program_that_is_cut_at_some_statements_leaves_what_one_killed_between_its_calls_does",
    ),
    Mutant(
        "dependants are put in one transaction, and their links in another",
        "xq/features/after/settler.py",
        "return self.executor.transaction(put_all)",
        "return put_all()",
        "explore/test_explore.py::test_a_program_that_is_cut_at_some_statements_leaves_what_one_killed_between_its_calls_does",
    ),
    Mutant(
        "a limit is set in one transaction, and the heads of utubes get it in another",
        "xq/engine/limits.py",
        "self.executor.transaction(lambda: self._write(guard, given, label, by))",
        "self._write(guard, given, label, by)",
        "explore/test_explore.py::test_a_program_that_is_cut_at_some_statements_leaves_what_one_killed_between_its_calls_does",
    ),
    Mutant(
        "a group's number of members is written in one transaction, and the members are put in another",
        "xq/runtime/group.py",
        "return self._parts.executor.transaction(add)",
        "return add()",
        "explore/test_explore.py::test_a_program_that_is_cut_at_some_statements_leaves_what_one_killed_between_its_calls_does",
    ),
    Mutant(
        "of MariaDB the end of a group is left to the call that ends its last member",
        "xq/features/groups/settler.py",
        "ended = [name for name, has_ended in found if has_ended]",
        "ended = list[str]()",
        "explore/test_explore.py::test_a_program_that_is_cut_at_any_statement_leaves_what_one_killed_between_its_calls_does",
        tier="long",
    ),
    Mutant(
        "a take whose answer was lost is not in doubt",
        "xq/engine/in_doubt.py",
        "self.pending.update({token: time.monotonic() + LASTS for token in tokens if token})",
        "pass",
        "inside/test_connections_fail.py explore/test_explore.py",
        tier="long",
    ),
    Mutant(
        "a burial whose answer was lost is repeated on the buried task",
        "xq/workers/failed.py",
        "attempt.taken, options, taken=True, **fields)",
        "attempt.taken, options, **fields)",
        "inside/test_connections_fail.py explore/test_explore.py",
        tier="long",
    ),
    Mutant(
        "a call that waited for a row does not look again at what became of it",
        "xq/engine/named.py",
        "MOVE_TRIES = 20",
        "MOVE_TRIES = 1",
        "explore/test_explore.py::test_two_calls_at_once_are_as_one_after_the_other",
    ),
    Mutant(
        "who has a task is looked at before the call, not in its statement",
        "xq/engine/named.py",
        "        begun = self.executor.begin(reviews=True)\n        if transition.target",
        "        begun = self.executor.begin(reviews=True)\n"
        "        if transition.fenced:\n            self.find(asked, parts, token)\n"
        "            transition = replace(transition, fenced=False)\n        if transition.target",
        "explore/test_explore.py::test_two_calls_at_once_are_as_one_after_the_other",
    ),
)


# Tests that compare the code with a record of itself: they notice every change, and prove nothing about behaviour.
# The last one fails for every mutant, because it looks for the old text.
LEFT_OUT: Final = (
    "--deselect=tests/unit/test_compile.py::test_the_sql_is_what_the_golden_file_says",
    "--ignore=tests/unit/test_mutants.py",
)
NOT_COPIED: Final = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info")

PASSED, UNUSABLE, NONE = 0, 4, 5  # how pytest exits: all passed, it cannot be called so, nothing to run
KILLER: Final = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
STUCK: Final = "Timeout ("  # what faulthandler says of a test that hangs
GRACE: Final = 20.0  # seconds in which pytest stops its servers when it is interrupted
LIMIT: Final = 1800.0  # seconds; a mutant that takes longer hangs
LANES: Final = "2"  # of a whole tier

KILLED, HUNG, SURVIVED, UNCLEAR = "killed", "hung", "SURVIVED", "UNCLEAR"  # a person must look at those in capitals


@dataclass(frozen=True)
class Result:
    """The verdict on a mutant."""

    number: int
    what: str
    verdict: str
    by: str  # the test that noticed the mutant, or why the verdict is unclear
    seconds: float

    @property
    def lives(self) -> bool:
        return self.verdict in (SURVIVED, UNCLEAR)

    def __str__(self) -> str:
        by = f" -- {self.by}" if self.by else ""
        return f"{self.number:3}  {self.verdict:8} {self.seconds:7.1f} s  {self.what}{by}"


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text of a file with the fault. Raises ValueError unless the old text is there exactly once."""
    if (found := text.count(mutant.old)) != 1:
        raise ValueError(
            f"the mutant {mutant.what!r} does not fit the code any more: its old text is in {mutant.file} {found} "
            f"times, not once. Change the mutant, or delete it from MUTANTS:\n{mutant.old}"
        )
    return text.replace(mutant.old, mutant.new)


class Copy:
    """A copy of the checkout. It holds one mutant at a time, and its tests judge it."""

    def __init__(self, folder: Path, tiers: Sequence[str], hints_only: bool) -> None:
        self.root = folder / "checkout"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        self.log = folder / "pytest.log"
        self.tiers = tiers
        self.hints_only = hints_only
        self.writes = itertools.count(1_000_000_000)
        self.sound: set[str] = set()  # tests that pass without any mutant
        self.environment = {**os.environ, "PYTHONPATH": str(self.root)}
        self._check_import()

    def _check_import(self) -> None:
        """Raise RuntimeError where Python would import xq from elsewhere."""
        command = [sys.executable, "-c", "import xq, xq.adapters; print(xq.__file__, xq.adapters.__file__)"]
        ran = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=True)
        if any(not path.startswith(f"{self.root}/") for path in ran.stdout.split()):
            raise RuntimeError(f"xq is imported from {ran.stdout.strip()}, not from the copy in {self.root}")

    @contextmanager
    def applied(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant within the block, and take it back."""
        path = self.root / mutant.file
        before = path.read_text()
        try:
            self._write(path, mutated(before, mutant))
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        moment = next(self.writes)  # unique, or Python might use the bytecode of the text before
        os.utime(path, (moment, moment))

    def judge(self, number: int, mutant: Mutant) -> Result:
        """Apply a mutant, and run the tests of its hints, then all tests of the tiers, until one fails."""
        began = time.monotonic()
        verdict, by = SURVIVED, ""
        with self.applied(mutant):
            hints = [f"tests/{hint}" for hint in mutant.hints.split()]
            for targets in [hints] + [[]] * (not self.hints_only):
                verdict, by = self._noticed(targets, began + LIMIT)
                if verdict != SURVIVED:
                    break
        if verdict == KILLED and by.startswith("tests/") and not self._is_sound(by):
            verdict, by = UNCLEAR, f"{by} fails without the mutant as well"
        return Result(number, mutant.what, verdict, by, time.monotonic() - began)

    def _noticed(self, targets: Sequence[str], deadline: float) -> tuple[str, str]:
        """Run the tests of these targets, in their order, until one fails. Return the verdict and that test.

        Without targets, run all tests of the tiers.
        """
        for each in [[target] for target in targets] or [["-n", LANES, "--dist", "worksteal"]]:
            lanes = ["-n", "0"] if targets else []
            code = self._pytest([*lanes, *each, *(f"--tier={tier}" for tier in self.tiers)], deadline)
            if code is None:
                return HUNG, ""
            if code in (PASSED, NONE):
                continue
            text = self.log.read_text(errors="replace")
            if code == UNUSABLE:
                raise RuntimeError(f"pytest cannot run {' '.join(each)}:\n{text[-2000:]}")
            if STUCK in text:
                return HUNG, ""
            found = KILLER.search(text)
            return KILLED, found[1] if found else f"pytest exits with {code}"
        return SURVIVED, ""

    def _is_sound(self, test: str) -> bool:
        """Return whether a test passes without a mutant, or a file can be imported. If not, it has killed nothing."""
        if test not in self.sound:
            whole_file = ["--collect-only"] * test.endswith(".py")
            if self._pytest(["-n", "0", test, *whole_file], time.monotonic() + LIMIT) == PASSED:
                self.sound.add(test)
        return test in self.sound

    def _pytest(self, arguments: Sequence[str], deadline: float) -> int | None:
        """Run pytest. Return its exit status, or None where it does not end before the deadline."""
        options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", *LEFT_OUT]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        with self.log.open("w") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            place: dict[str, Any] = {"cwd": self.root, "env": self.environment, "start_new_session": True}
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **streams, **place)
            try:
                return process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop pytest and the processes that it started, unless it has ended."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="these only (default: all of the tiers)")
    tiers = "as for pytest; again for more (default: test)"
    parser.add_argument("--tier", action="append", choices=("test", "rest", "more", "long"), help=tiers)
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="NUMBER", help="the first one to judge")
    parser.add_argument("--hints-only", action="store_true", help="run the most likely tests, and not the whole tier")
    return parser.parse_args()


def main() -> int:
    """Judge mutants. Return 1 if one survived or is unclear, else 0."""
    options = _arguments()
    tiers = list(dict.fromkeys(options.tier or ["test"]))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # else pytest and the copy would stay
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="xq-mutants-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # as a checkout: some tests run programs as another user
        copy = Copy(folder, tiers, options.hints_only)
        for number, mutant in enumerate(MUTANTS, start=1):
            if number in options.numbers if options.numbers else mutant.tier in tiers and number >= options.first:
                results.append(copy.judge(number, mutant))
                print(results[-1], flush=True)
    verdicts = Counter(result.verdict for result in results)
    print(f"{len(results)} mutants: {', '.join(f'{n} {verdict}' for verdict, n in verdicts.items()) or 'none'}")
    alive = [result for result in results if result.lives]
    for result in alive:
        print(result)
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main())
