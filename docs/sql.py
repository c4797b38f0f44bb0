"""docs/sql.md: the SQL of an ordinary queue on each database, and sentences that explain it. It needs no server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from textwrap import fill
from typing import Any

import peewee as pw
from layout import laid_out

import xq
from xq.core.acting import PART
from xq.sql.innodb import innodb_objects
from xq.sql.mariadb.mariadb_dialect import Mariadb
from xq.sql.postgres import postgres_objects
from xq.sql.postgres.postgres_dialect import Postgres

FEATURES: Mapping[str, Any] = {"delayed": True, "buried": True, "keep": True, "ttr": 60}

INTRODUCTION = """
# The SQL of a queue

This is the SQL of one ordinary queue: a table `page` with the fields url, title, status, runat and owner, and
`{features}`.

For your own queue, `print(Page.xq.sql("take"))` prints the SQL of a call, and `Page.xq.ddl()` prints
what `install()` creates. [machine.md](machine.md) has the transitions.

A word after a colon is a value that the call sends:

| value | content |
|---|---|
| `:k0` | the key of the task |
| `:url`, `:title` | values of your fields; `:url_0` is that of the first task |
| `:owner` | the token that a take writes |
| `:token` | the token that the caller of ack, release or bury has from its take |
| `:n` | the largest number of tasks |
| `:now` | the time of a test's clock; otherwise NULL |
| `:context` | servers: the event context: event (such as ack), queue, actor, reason, and the time of a test's clock |
| `:chosen` | MariaDB: a condition that names the keys of the locked rows |

A text in angle brackets, such as ⟨now⟩, stands for a longer one, which the section of its database shows.

What all statements have in common:

- **The source state is in every WHERE.** A statement that lost a race moves no row. Then xq reads the row once, and
  raises NotFound, WrongState or NotOwner.
- **The fence.** ack, release and bury compare the owner with the token of the caller's take. If the task has expired
  and another worker has taken it, the owner differs, and the call moves no row.
- **A status is a literal.** A partial index serves a query only if the planner sees the status.
- **Triggers count.** None of these statements writes the counters: triggers do, for every program that writes tasks.

The tables beside `page`, which [databases.md](databases.md#tables-in-the-database) describes as well:

- xq_queue has the definition of each installed queue.
- xq_object has what install() has made, each index and trigger with its hash.
- xq_generation has the definitions of each queue, in the order of first installation, and digests of its schedules.
- xq_session has the open sessions, their processes, and the queues in which each may own tasks.
- xq_setting has the settings of `configure` and, for a minute, the tasks that were cancelled while they were taken.
- xq_pause has the pauses, and xq_schedule the schedules of `every`.
- xq_rate has the token buckets of the feature rate, and xq_slot the slots of `xq.Concurrency`.
- xq_lease has, on a server, the tokens whose ttr does not pass: a transaction has locked the row.
- xq_alive, on servers, has the session connections, and the processes that listen.
- page_xq_count has the counters, and page_xq_wait the callers of `wait()` and how their tasks ended.
"""

# The calls, in the order in which they are shown: title, event, options, and the rest of `sql`.
CALLS: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "put": ("put", (), {"update": ["url"]}),
    "take": ("take", (), {}),
    "ack": ("ack", (), {"update": ["title"]}),
    "release, with a delay": ("release", ("delay",), {}),
    "bury": ("bury", (), {}),
    "put_many, of two tasks": ("put", (), {"update": ["url"], "n": 2}),
    "take_many": ("take", (), {"n": 10}),
}

# By database, what stands before each statement. A `quoted` text must stand in the SQL, else docs/generate.py fails:
# so a sentence cannot outlive the SQL that it explains.
NOTES: Mapping[str, Mapping[str, str]] = {
    "SQLite": {
        "": """
SQLite has one writer at a time. A statement locks the whole file before it chooses its rows, so no other connection
can choose the same row, and no row is locked. Readers continue meanwhile, because `install()` switches the file to
WAL.
""",
        "put": """
One INSERT puts the task as ready. `RETURNING` returns the row as SQLite stored it, with its new key, and needs no
second statement.
""",
        "take": """
One UPDATE chooses the oldest ready task, writes state, expiry and token, and returns the row. `INDEXED BY` keeps the
planner on the partial index of the ready tasks: with old statistics it may read the whole table.
""",
        "ack": """
One UPDATE finds the task by its key, checks state and token, and writes the caller's fields with the new state.
`"runat" = NULL` ends the timer. The event context is not in the SQL: xq keeps it with the connection, and
the triggers ask for it.
""",
        "release, with a delay": """
The task waits, and `"runat" = ⟨now⟩ + :delay` is when it becomes ready. A release without a delay writes R and NULL.
""",
        "bury": """
As ack, to the state B. The index page_xq_oldest_B finds the task again for dig and kick.
""",
        "put_many, of two tasks": """
As put, with several rows in one statement: all tasks or none.
""",
        "take_many": """
As take, with `IN` and `LIMIT :n`.
""",
        "Indexes": """
All indexes are partial: a task that is done is in none of them. So a take costs the same in a table of ten million
finished tasks. page_xq_runat finds the tasks that are due, and all taken tasks when a session ends.
""",
        "Triggers": """
Triggers fire for each row, and for every program. They add to the counters with an upsert, which delays no one
because there is one writer. page_xq_update is for a transition, and page_xq_update_task for a task that changes its
key or, if its tube is counted, its tube. Both also write how a task ended for the callers of `wait()`. They read the
event by `printf('write')`. On its own connections xq registers a printf of one argument, which returns the event of
the running call for this word. In any other program the event is a write.

With the feature history (and without limit) the triggers write the history instead of the counters, and three triggers
more add it up: page_xq_noted every 1,000 rows, page_xq_pruned before a row is deleted, page_xq_add_up for both.
""",
    },
    "PostgreSQL": {
        "": """
On PostgreSQL many connections write at once, so a take locks the row that it chooses. ⟨now⟩ is from
`statement_timestamp()`: unlike now() it moves within a transaction, and unlike clock_timestamp() it is stable, so an
index serves a comparison with it.
""",
        "put": """
One INSERT puts the task as ready. `RETURNING` returns the row as PostgreSQL stored it, with its new key.
""",
        "take": """
One UPDATE chooses the oldest ready task, writes state, expiry and token, and returns the row. `FOR NO KEY UPDATE` locks
the row until the commit. `SKIP LOCKED` skips the rows that other takes have locked, so takes do not wait for each
other.
""",
        "ack": """
One UPDATE finds the task by its key, checks state and token, and writes the caller's fields with the new state. If
another transaction has locked the row, PostgreSQL waits and then checks the WHERE again. The SET also passes the
event context to the triggers, without a statement of its own:
`set_config('xq.context', :context || ⟨time as text⟩, true)`. The time of the statement is part of it, so the triggers
of a later statement do not use it.
""",
        "release, with a delay": """
The task waits, and `"runat" = ⟨now⟩ + CAST(:delay AS float8)` is when it becomes ready. A release without a delay
writes R and NULL. It passes no event context: without the feature history, only the end of a task needs it.
""",
        "bury": """
As ack, to the state B. It passes the event context, because callers of `wait()` regard a buried task as ended.
""",
        "put_many, of two tasks": """
As put, with several rows in one statement: all tasks or none.
""",
        "take_many": """
As take, with a limit. `AS MATERIALIZED` makes PostgreSQL run the query with the locks once: a plan that ran it twice
would lock more rows than it moves.
""",
        "Tables": """
page_xq_count has no key: triggers only insert, so transactions do not wait for each other at a counter. The maintenance
thread of one process at a time adds the rows up. Its `autovacuum_vacuum_scale_factor` suits a table whose rows come and
go. The keys of page_xq_wait come from the table `WITH NO DATA`, so they have its types.
""",
        "Indexes": """
All indexes are partial: a task that is done is in none of them. So a take costs the same in a table of ten million
finished tasks. page_xq_runat finds the tasks that are due, and all taken tasks when a session ends.
""",
        "Triggers": """
A trigger of inserts, deletes or TRUNCATE fires once for each statement, and counts all rows together: `changed` is
the transition table, or before a TRUNCATE the table itself. The trigger of updates fires for each row, because only
there the old row and the new row are known to be the same task, even if the key changed. Its WHEN keeps PostgreSQL
from calling the function for updates that the queue does not need. ⟨event⟩ is the event if the context is of this
statement and of this queue; otherwise a program without xq wrote, and the event is a write. `pg_notify` notifies other
processes, but only if one of them waits or listens, because PostgreSQL serialises commits that notify. A timer would
pass before the next poll, once a second, if `"runat" < (⟨server time⟩ + 1.0)`. `install()` creates each function in a
DO block which puts the name of the current schema in front of the tables (here public), so the function needs no
search_path of its own: to set one costs a tenth of a put.
""",
    },
    "MariaDB": {
        "": """
An UPDATE on MariaDB 10 and 11 returns no rows, and cannot skip locked ones. So a take is three statements: one locks,
one writes, one reads. xq sends them together as one block (BEGIN NOT ATOMIC), which begins the transaction and
commits it: one round trip. In your own transaction it does neither. xq_k0 is a variable of the block that holds the
key. A worker's next take is in the block of its ack. A column may have a collation without case, so a status is
compared twice: the first comparison uses the index, and ⟨exact status⟩ decides.
""",
        "put": """
One INSERT puts the task as ready. `RETURNING` returns the row as MariaDB stored it, with its new key.
""",
        "take": """
The first statement locks the oldest ready task. `SKIP LOCKED` skips the rows that other takes have locked, so takes
do not wait for each other. InnoDB locks each row that it reads: with `FORCE INDEX` it reads the ready tasks in their
order, and stops at the limit. The second writes state, expiry and token. The third reads the row back. Both find it
by its primary key.
""",
        "ack": """
The first statement locks the task by its key and checks state and token. `FORCE INDEX (PRIMARY)` is there for the
locks: by the index of states InnoDB would also lock the rows of tasks that others have taken. The second writes the
caller's fields and the new state. Its SET also passes the event context to the triggers: `@xq_context` is a variable of
the connection, and setting it there costs no statement of its own. The time of the statement is part of it, so the
triggers of a later statement do not use it.
""",
        "release, with a delay": """
The task waits, and `⟨now⟩ + :delay` is when it becomes ready. A release without a delay writes R and NULL. It passes
no event context: without the feature history, only the end of a task needs it.
""",
        "bury": """
As ack, to the state B. It passes the event context, because callers of `wait()` regard a buried task as ended.
""",
        "put_many, of two tasks": """
As put, with several rows in one statement: all tasks or none.
""",
        "take_many": """
As take: `LIMIT :n` locks up to n tasks, and the other two statements name their keys. There is no variable for a
list, so the keys come to xq, which sends the other two as a block: four round trips with BEGIN and COMMIT.
""",
        "Tables": """
Triggers only insert into page_xq_count, so transactions do not wait for each other at a counter. The maintenance
thread adds the rows up. Texts of xq's own are `utf8mb4_nopad_bin`: compared byte by byte, with their trailing spaces.
""",
        "Indexes": """
MariaDB has no partial indexes, so each index begins with the status, and finished tasks are in the indexes as well.
""",
        "Triggers": """
Triggers fire for each row, and for every program; foreign keys that cascade, and TRUNCATE, fire none. ⟨event⟩ is the
event if the context is of this statement and of this queue; otherwise a program without xq wrote, and the event is a
write. A trigger cannot notify other processes here: [signals.md](signals.md) has how xq detects changes.
""",
    },
}

MEANINGS = {
    "⟨now⟩": "seconds since 1970",
    "⟨server time⟩": "seconds since 1970 when the statement began",
    "⟨time as text⟩": "the same, to compare it",
    "⟨letter of {x}⟩": "the state of a status; X if it is not one of the queue's",
    "⟨exact {x}⟩": "a text, compared byte by byte",
    "⟨event⟩": "the event, which is the first part of the event context if that is of this statement and of this queue",
    "⟨part {x}⟩": "a part of the event context; they are separated by ␟, which is character 31",
}
PLURALS = {"table": "Tables", "index": "Indexes", "trigger": "Triggers"}
METHODS = ("install()", "wait()")  # which notes may quote
SCHEMA = '"@here@"'  # in the functions of PostgreSQL, until they are installed


def page(db: pw.Database) -> Any:
    """The queue whose SQL is shown."""

    class Page(pw.Model):
        url = pw.TextField()
        title = pw.TextField(null=True)
        status = pw.CharField(max_length=1, default="R")
        runat = pw.DoubleField(null=True)
        owner = pw.CharField(max_length=64, null=True)

        class Meta:
            database = db

    return xq.upgrade(Page, {role: role for role in ("status", "runat", "owner")}, FEATURES)


# Databases to which no connection is made.
DATABASES: Mapping[str, Callable[[], pw.Database]] = {
    "SQLite": lambda: pw.SqliteDatabase(":memory:"),
    "PostgreSQL": lambda: pw.PostgresqlDatabase("app", prefer_psycopg3=True),
    "MariaDB": lambda: pw.MySQLDatabase("app", mariadb=True),
}
SERVERS = {"MariaDB": "mariadb"}  # where a connection would tell which database it is


def sql() -> str:
    """docs/sql.md"""
    features = ", ".join(f'"{name}": {value!r}' for name, value in FEATURES.items())
    sections = [INTRODUCTION.strip().format(features=f"features={{{features}}}")]
    for name, make in DATABASES.items():
        queue = page(make())
        if name in SERVERS:
            queue.parts.store.database.is_served_by(SERVERS[name])
        sections += _database(queue, NOTES[name], f"## {name}")
    return "\n\n".join(sections) + "\n"


def _database(queue: Any, notes: Mapping[str, str], title: str) -> Iterator[str]:
    queue.parts.executor.binding = binding = queue.parts.executor.open(installed=False)  # as if it were installed
    dialect = binding.dialect
    texts = {**_texts(dialect), "⟨now⟩": dialect.now, "⟨letter of {x}⟩": dialect.letter("{x}")}
    longest = dict(sorted(texts.items(), key=lambda item: len(item[1]), reverse=True))
    shorter = {
        name: _shortened(sql, {n: text for n, text in longest.items() if n != name}) for name, sql in texts.items()
    }
    meanings = [
        f"-- {name.format(x='x')}: {MEANINGS[name]}\n{laid_out(sql.format(x='x'))}" for name, sql in shorter.items()
    ]
    parts: dict[str, list[str]] = {"": meanings}
    for call in CALLS:
        parts[call] = [f"{why}{laid_out(_shortened(sql, longest))};" for why, sql in _statements(queue, call)]
    for item in dialect.installer.objects.all():
        found = [_installed(sql) for sql in item.create if not sql.startswith("DROP")]
        parts.setdefault(PLURALS[item.kind], []).extend(f"{laid_out(_shortened(sql, longest))};" for sql in found)
    yield title
    for heading, shown in parts.items():
        if heading:
            yield f"### {heading}"
        if heading in notes:
            yield _checked(notes[heading], f"{title}, {heading}", shown)
        yield "```sql\n{}\n```".format("\n\n".join(shown))


def _texts(dialect: Any) -> dict[str, str]:
    """What long texts of one database are shown as; `{x}` is a column."""
    objects: Any = dialect.installer.objects
    if isinstance(dialect, Postgres):
        return {
            "⟨server time⟩": postgres_objects.SERVER_TIME,
            "⟨time as text⟩": postgres_objects.TEXT_OF_TIME,
            "⟨event⟩": postgres_objects.Triggers(objects).known["event"],
            "⟨part {x}⟩": postgres_objects.part("{x}"),
        }
    if isinstance(dialect, Mariadb):
        return {
            "⟨exact {x}⟩": dialect.exact("{x}"),
            "⟨event⟩": objects.in_triggers()["event"],
            "⟨part {x}⟩": innodb_objects.part("{x}"),
        }
    return {}


def _named(name: str, found: re.Match[str]) -> str:
    return name.format(x="".join(found.groups()))


def _shortened(sql: str, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():
        pattern = re.escape(text).replace(re.escape("{x}"), r"([\w.`\"{}]+)")
        sql = re.sub(pattern, partial(_named, name), sql)
    return sql.replace(PART, "␟")


def _statements(queue: Any, call: str) -> Iterator[tuple[str, str]]:
    """What a call runs, and before each of several statements a comment on it."""
    event, options, more = CALLS[call]
    fields = queue.parts.executor.binding.dialect.source.fields
    for line in queue.sql(event, *options, **more).splitlines():
        sql, _, why = line.partition(";  -- ")
        named = re.sub(r":f(\d+)", lambda found: f":{fields[int(found[1])].name}", sql.removesuffix(";"))
        yield (f"-- {why}\n" if why else ""), named


def _installed(sql: str) -> str:
    """The SQL of an object; of a function of PostgreSQL what the block that creates it runs, in the schema public."""
    found = re.findall(r"EXECUTE replace\('((?:[^']|'')*)', .*?\); (CREATE TRIGGER .*?);", sql)
    if not found:
        return sql
    function, trigger = found[-1]  # the first of two is for a table with partitions
    return "{};\n{}".format(function.replace("''", "'").replace(SCHEMA, "public"), trigger)


def _checked(note: str, where: str, shown: list[str]) -> str:
    """The note, if the SQL has what it quotes."""
    there = "".join("".join(shown).split())
    for quoted in re.findall(r"`([^`]+)`", note):
        if quoted not in METHODS and "".join(quoted.split()) not in there:
            raise SystemExit(f"docs/sql.py: the note of {where} quotes {quoted!r}, and its SQL has no such text")
    return fill(" ".join(note.split()), 120, break_long_words=False, break_on_hyphens=False)
