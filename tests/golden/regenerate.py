"""The SQL that xq runs on each database for two queues, as text files that a reviewer reads in a diff.

SQLite's are beside this file, the others' in folders. `python tests/golden/regenerate.py` writes them anew, after a
change of the SQL that is meant. tests/unit/test_compile.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import peewee as pw

import xq
from xq.adapters.peewee.connections import database_of
from xq.core.compile import EVERYWHERE, Selector, Statement, change
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.sql.innodb.innodb_dialect import Innodb
from xq.testing import Clock

FOLDER = Path(__file__).resolve().parent
CLAUSES = re.compile(r" (?=(?:INSERT INTO|SET|WHERE|RETURNING|VALUES|ON CONFLICT|UNION|ORDER BY|GROUP BY|SELECT) )")

# The folder of each database's files, and a database of that kind, which nobody connects to.
DATABASES: dict[str, Callable[[], pw.Database]] = {
    "": lambda: pw.SqliteDatabase(":memory:"),
    "postgres": lambda: pw.PostgresqlDatabase("app", prefer_psycopg3=True),
    "mariadb": lambda: served_by("mariadb", pw.MySQLDatabase("app")),
    "mysql": lambda: served_by("mysql", pw.MySQLDatabase("app")),
}


def served_by(product: str, db: pw.Database) -> pw.Database:
    """A database whose server is known before there is a connection."""
    database_of(db).is_served_by(product)
    return db


@dataclass(frozen=True)
class Entry:
    """One statement: what it is for, in words, and its SQL. `status` stands in its WHERE and may vary with `source`."""

    title: str
    statement: Statement
    source: str = ""
    status: str = ""

    @property
    def text(self) -> str:
        """All that runs, in its order."""
        return "\n".join(f"{laid_out(sql)};{why}" for sql, why in self.statement.parts)

    @property
    def shape(self) -> tuple[str, str]:
        """What it has in common with the statements for other source states."""
        return self.title, self.text.replace(self.status, "<status>") if self.status else self.text


# the queues

ROLES = ("status", "runat", "deadline", "priority", "tube", "owner", "attempts", "ttl", "ttr")


def status() -> pw.Field[Any]:
    return pw.CharField(max_length=1, default="R")


def made(db: pw.Database, name: str, features: xq.Features, fields: Any, *, meta: Any = None, **more: Any) -> Any:
    """A queue of a model with these fields, of which those that have the name of a role are mapped to it."""
    model = type(name, (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": db, **(meta or {})})})
    mapped = {role: role for role in ROLES if role in fields} | more.pop("mapped", {})
    return xq.upgrade(model, mapped, features, clock=Clock(), **more)


def readme(db: pw.Database) -> Any:
    """The queue of docs/start/peewee.md: delayed, buried, keep, ttr. The column xq_owner has the tokens."""
    fields = {
        "url": pw.TextField(),
        "title": pw.TextField(null=True),
        "status": status(),
        "runat": pw.DoubleField(null=True),
    }
    return made(db, "Page", {"delayed": True, "buried": True, "keep": True, "ttr": 60}, fields)


def tubes(db: pw.Database) -> Any:
    """Every role of a queue with tubes that are counted: owner, attempts, priority, own ttl and ttr; history."""
    fields = {
        "id": pw.BigIntegerField(primary_key=True),
        "address": pw.TextField(),
        "status": status(),
        "runat": pw.DoubleField(null=True),
        "priority": pw.IntegerField(default=0),
        "tube": pw.TextField(null=True),
        "owner": pw.CharField(max_length=64, null=True),
        "attempts": pw.IntegerField(default=0),
        "ttl": pw.DoubleField(null=True),
        "ttr": pw.DoubleField(null=True),
    }
    features: xq.Features = {"delayed": True, "buried": True, "zombie": 3600, "ttl": 10, "ttr": 60, "history": 600}
    return made(db, "Mail", features, fields, tube_stats=["news", "it's"])


def moments(db: pw.Database) -> Any:
    """A key of two parts, and times that are date-times: delayed, buried, lifetime, ttr, history."""
    fields = {
        "host": pw.TextField(),
        "number": pw.IntegerField(),
        "note": pw.TextField(null=True),
        "status": status(),
        "runat": pw.DateTimeField(null=True),
        "deadline": pw.DateTimeField(null=True),
    }
    features: xq.Features = {"delayed": True, "buried": True, "lifetime": 300, "ttr": 60, "history": True}
    return made(db, "Visit", features, fields, meta={"primary_key": pw.CompositeKey("host", "number")})


def words(db: pw.Database) -> Any:
    """Words as statuses and as key in a table with odd names: unique, limit, not_check_session, buried by anyone."""
    fields = {
        "id": pw.TextField(primary_key=True),
        "number": pw.TextField(null=True),
        "note": pw.TextField(null=True, column_name='"x'),
        "status": pw.TextField(default="new", column_name="select"),
        "runat": pw.BigIntegerField(null=True),
    }
    features: xq.Features = {"buried": "any", "delayed": True, "keep": True, "ttr": True, "not_check_session": True}
    features |= {"unique": True, "limit": 100_000}
    statuses = {"R": "new", "T": "in hand", "W": "later", "B": "won't do", "D": "done"}
    mapped, meta = {"unique": "number"}, {"table_name": "order"}
    return made(db, "Order", features, fields, meta=meta, mapped=mapped, statuses=statuses)


def hosts(db: pw.Database) -> Any:
    """Utubes, of which two tasks are taken at a time; priority and ttr."""
    fields = {
        "url": pw.TextField(),
        "host": pw.CharField(null=True),
        "status": status(),
        "runat": pw.DoubleField(null=True),
        "priority": pw.IntegerField(default=0),
        "owner": pw.CharField(max_length=64, null=True),
    }
    return made(db, "Visit", {"utube": 2, "ttr": 60}, fields, mapped={"utube": "host"})


def integers(db: pw.Database) -> Any:
    """The least there is: the core, with integers as statuses."""
    fields = {"name": pw.TextField(null=True), "status": pw.IntegerField(default=0)}
    return made(db, "Job", {}, fields, statuses={"R": 0, "T": 1})


QUEUES: dict[str, Callable[[pw.Database], Any]] = {
    each.__name__: each for each in (readme, tubes, moments, words, hosts, integers)
}
GOLDEN = ("readme", "tubes")  # which have files; between them they show most shapes of statements


# their statements

MANY = ("ack", "release", "bury", "kill")  # the events of ack_many and so on

# The statements that a dialect has by name. One that a queue does not need is empty.
NAMED = (
    "queries.count_what_is_there",
    "records.installed",
    "installer.statuses_in_use",
    *(f"shared.{name}" for name in ("queues", "sessions", "session_listed", "session_is_there", "sessions_listed")),
    *(f"shared.{name}" for name in ("rejoin_session", "expire_session_later", "session_ends", "session_over")),
    *(f"shared.{name}" for name in ("deregister_session", "set_setting", "time_us", "forget_cancelled")),
    *(f"records.{name}" for name in ("pause", "resume", "pauses", "add_schedule", "schedule", "set_schedule")),
    *(f"records.{name}" for name in ("drop_schedule", "schedules", "next_firings", "due_schedule", "begin_wait")),
    *(f"records.{name}" for name in ("ends", "end_wait", "forget_waits", "waiting")),
    *(f"queries.{name}" for name in ("any_ready", "next_due")),
    "begin_writing",
    *(f"queries.{name}" for name in ("taken", "counters", "actual_counts", "audit", "add_counter")),
    "queries.expired_history",
)


def dialect(queue: Any) -> Any:
    """The SQL of a queue. It may stand in no database yet."""
    return queue.parts.executor.open(installed=False).dialect


def entries(queue: Any) -> Iterator[Entry]:
    """Every statement of a queue: installing, putting, moving, looking, counting."""
    of = dialect(queue)
    heads = {"built": of.heads.built, "wrong": [of.heads.wrong]} if of.heads else {}
    installs = {f"the {item.kind} {item.name}": item.create for item in of.installer.objects.all()}
    for title, texts in [*installs.items(), ("record", of.records.record("VERSION", "FINGERPRINT")), *heads.items()]:
        for sql in texts:
            yield Entry(f"install: {title}", Statement(sql))
    yield from puts(queue)
    for row in queue.machine.rows:
        if row.source != ABSENT:
            yield from moves(queue, row)
    first, *more = (row for row in queue.machine.rows if row.event == "kill")
    for rows in (Selector(way, first.source, more=tuple(row.source for row in more)) for way in ("all", "each")):
        killed = of.moves.move(rows, change(queue.machine, first, frozenset()))
        yield _entry(of, f"kill in {first.source}{''.join(rows.more)}: {rows.mode}", "", killed)
    yield from queries(queue)


def puts(queue: Any) -> Iterator[Entry]:
    of = dialect(queue)
    # What put_many brings: the fields that the application writes, a key that is made, and a first attempt.
    managed = [of.source.roles[role] for role in ("status", "runat", "deadline", "owner") if role in of.source.roles]
    auto = of.source.key if queue.machine.settings.id == "auto_increment" else ()
    names = tuple(field.name for field in of.source.fields if field not in (*managed, *auto))
    for row in queue.machine.rows:
        if row.source == ABSENT:
            for given, count in product(brought(queue, row), (1, 2)):
                title = f"X {row.event} {row.target}{_with(given)}: {count}"
                yield _entry(of, title, "", of.moves.insert(change(queue.machine, row, given), names, count))
    for guard in queue.machine.guards:
        if guard.name == "unique":
            yield Entry(f"put: the rows that hold two values of {guard.role}", Statement(of.moves.holders(guard, 2)))
            to = [row for row in queue.machine.rows if row.source == ABSENT]
            for row, state in product(to, [state for state in of.guarded_states(guard) if state != TAKEN]):
                given = frozenset(filter(None, [row.given]))
                statement = of.moves.move(Selector("key", state), change(queue.machine, row, given, names))
                yield _entry(of, f"put {row.target}{_with(given)}, on_conflict='replace'", state, statement)


def moves(queue: Any, row: Transition) -> Iterator[Entry]:
    of, machine = dialect(queue), queue.machine
    for given in brought(queue, row):
        for rows in ways(queue, row, given):
            title = f"{row.event} {row.target}{_with(given)}: {_chosen(rows)}"
            yield _entry(of, title, row.source, of.moves.move(rows, change(machine, row, given)))
    if row.event == "ack":
        own = next(field.name for field in of.source.fields if field not in (*of.source.roles.values(), *of.source.key))
        statement = of.moves.move(Selector("key", row.source, "session"), change(machine, row, frozenset(), (own,)))
        yield _entry(of, f"ack {row.target} with update={{{own!r}: ...}}", row.source, statement)


def brought(queue: Any, row: Transition) -> list[frozenset[str]]:
    """What a call may bring that takes this row: as little as it can, and all that it can."""
    accepted = queue.machine.accepts(row)
    least = accepted if row.prolongs else frozenset(filter(None, [row.given]))
    return [least] if row.due or least == accepted else [least, accepted]


def ways(queue: Any, row: Transition, given: frozenset[str]) -> Iterator[Selector]:
    """The ways in which a row of the table is chosen."""
    if row.due:
        yield Selector("due", row.source, column=row.due)
        return
    if row.picks:
        yield Selector("first", row.source)
        yield Selector("oldest", row.source)
        if "tube" in queue.machine.roles and row.event == "take":
            yield Selector("first", row.source, tube=True)
            yield Selector("oldest", row.source, tube=True)
            yield Selector("first", row.source, skips=(2, 0))
    if row.event != "take":
        for fence in ("session", "take") if row.fenced else ("",):
            yield Selector("key", row.source, fence)
            if row.event in MANY and not given:
                yield Selector("keys", row.source, fence)
        if row.event in MANY and not given and row.fenced:
            yield Selector("keys", row.source, "takes")
    if row.event == "release" and not given:
        yield from (Selector(way, row.source) for way in ("owned", "all", "each"))


def queries(queue: Any) -> Iterator[Entry]:
    of = dialect(queue)
    named = {name.rpartition(".")[2].replace("_", " "): attrgetter(name)(of) for name in NAMED}
    found = {name: sql() if callable(sql) else sql for name, sql in named.items()} | {
        "look": of.queries.look(),
        "look at all": of.queries.look(listed=True),
    }
    found |= {f"maintenance, for this queue and others: {what}": sql for what, sql in upkeep(of).items()}
    found |= {f"forget the queue in {table}": sql for table, sql in of.records.forget_all.items()}
    found["lock before a kill in several states"] = of.moves.lock_all(queue.machine.states)
    if of.has_history:
        found["history"] = of.queries.history([])
        found["history of a task, from one moment to another"] = of.queries.history(["key", "since", "until"])
    for title, sql in found.items():
        yield Entry(title, Statement(sql or ""))
    for state in queue.machine.states:
        yield _entry(of, "by_state", state, Statement(of.queries.by_state(state)))


def upkeep(of: Any) -> dict[str, str]:
    """What the maintenance thread asks of many queues at once; here of one."""
    watch = "is there something for who waits"
    return {
        **({watch: of.watch(of.queries.anything)} if isinstance(of, Innodb) else {}),
        "what other processes may have changed": of.shared.records_of([of]),
        "when is a task due, and is one ready": of.shared.upkeep_of([(of, True, True, EVERYWHERE)]),
        "who owns tasks and is not registered": of.shared.orphans_of([of]),
        "which have many counters": of.shared.many_counters_of([of], 100),
    }


def _entry(of: Any, title: str, source: str, statement: Statement) -> Entry:
    return Entry(title, statement, source, of.is_state(source) if source else "")


def _with(given: Iterable[str]) -> str:
    return f" with {', '.join(sorted(given))}" if given else ""


def _chosen(rows: Selector) -> str:
    fence = {"": "", "session": ", of this session", "take": ", of this very take", "takes": ", each of its take"}[
        rows.fence
    ]
    paused = f", while {sum(rows.skips)} tubes are paused" * bool(rows.skips)
    return f"{rows.mode}{' of a tube' * rows.tube}{f' by {rows.column}' * bool(rows.column)}{fence}{paused}"


# as text


def path(name: str, database: str) -> Path:
    """Where the SQL of a queue on a database stands."""
    return FOLDER / database / f"{name}.sql"


def render(name: str, database: str) -> str:
    """The file for one queue."""
    queue = QUEUES[name](DATABASES[database]())
    grouped: dict[Any, list[Entry]] = {}
    for entry in entries(queue):
        if entry.statement.sql:
            grouped.setdefault(entry.shape, []).append(entry)
    parts = [
        f"-- {QUEUES[name].__doc__}",
        "-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;",
        "-- the others differ in the status only.",
    ]
    for group in grouped.values():
        sources = [entry.source for entry in group if entry.source]
        parts += ["", f"-- {' '.join([*sources, group[0].title])}", group[0].text]
    return "\n".join(parts) + "\n"


def laid_out(sql: str) -> str:
    """The same SQL with a line for each clause, and for each statement of a trigger."""
    return re.sub("; (?=[A-Z])", ";\n", CLAUSES.sub("\n    ", sql))


def main() -> None:
    for database, name in product(DATABASES, GOLDEN):
        path(name, database).parent.mkdir(exist_ok=True)
        path(name, database).write_text(render(name, database), encoding="utf-8")


if __name__ == "__main__":
    main()
