"""The SQL that xq runs on each database for two queues, as text files that a reviewer reads in a diff.

SQLite's are beside this file, the others' in folders. `python tests/golden/regenerate.py` writes them anew, after a
change of the SQL that is meant. tests/unit/test_compile.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import indent
from typing import Any

import peewee as pw

import xq
from xq.core.compile import Selector, Statement, change
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.testing import Clock

FOLDER = Path(__file__).resolve().parent

# The folder of each database's files, and a database of that kind, which nobody connects to.
DATABASES: dict[str, Callable[[], pw.Database]] = {
    "": lambda: pw.SqliteDatabase(":memory:"),
    "postgres": lambda: pw.PostgresqlDatabase("app", prefer_psycopg3=True),
    "mariadb": lambda: pw.MySQLDatabase("app"),
}


@dataclass(frozen=True)
class Entry:
    """One statement: what it is for, in words, and its SQL. `status` stands in its WHERE and may vary with `source`."""

    title: str
    sql: str
    source: str = ""
    status: str = ""
    first: str = ""  # must return rows before
    others: str = ""
    among: str = ""
    before: str = ""
    again: str = ""
    after: str = ""
    after_all: str = ""
    back: str = ""  # returns the rows after it

    @property
    def texts(self) -> list[str]:
        """All that runs, in its order."""
        return [
            text
            for text in (
                self.first,
                self.others,
                self.among,
                self.before,
                self.sql,
                self.again,
                self.after,
                self.after_all,
                self.back,
            )
            if text
        ]

    @property
    def shape(self) -> tuple[str, ...]:
        """What it has in common with the statements for other source states."""
        changing = map(self._any_status, (self.sql, self.first, self.others, self.among))
        return (self.title, *changing, self.before, self.again, self.after, self.after_all)

    def _any_status(self, sql: str) -> str:
        before, where, after = sql.partition(" WHERE ")
        return before + where + (after.replace(self.status, "<status>") if self.status else after)


# the queues


def readme(db: pw.Database) -> Any:
    """The queue of the README: delayed, buried, keep, ttr. Who took what is in a side table."""

    class Page(pw.Model):
        url = pw.TextField()
        title = pw.TextField(null=True)
        status = pw.CharField(max_length=1, default="R")
        runat = pw.DoubleField(null=True)

        class Meta:
            database = db

    roles = {"status": "status", "runat": "runat"}
    return xq.upgrade(Page, roles, {"delayed": True, "buried": True, "keep": True, "ttr": 60}, clock=Clock())


def tubes(db: pw.Database) -> Any:
    """Every role of a queue with tubes that are counted: owner, attempts, priority, own ttl and ttr; history."""

    class Mail(pw.Model):
        id = pw.BigIntegerField(primary_key=True)
        address = pw.TextField()
        status = pw.CharField(max_length=1, default="R")
        runat = pw.DoubleField(null=True)
        priority = pw.IntegerField(default=0)
        tube = pw.TextField(null=True)
        owner = pw.CharField(max_length=64, null=True)
        attempts = pw.IntegerField(default=0)
        ttl = pw.DoubleField(null=True)
        ttr = pw.DoubleField(null=True)

        class Meta:
            database = db

    roles = {role: role for role in ("status", "runat", "priority", "tube", "owner", "attempts", "ttl", "ttr")}
    features: xq.Features = {"delayed": True, "buried": True, "zombie": 3600, "ttl": 10, "ttr": 60, "history": 600}
    return xq.upgrade(Mail, roles, features, tube_stats=["news", "it's"], clock=Clock())


def moments(db: pw.Database) -> Any:
    """A key of two parts, and times that are date-times: delayed, buried, lifetime, ttr, history."""

    class Visit(pw.Model):
        host = pw.TextField()
        number = pw.IntegerField()
        note = pw.TextField(null=True)
        status = pw.CharField(max_length=1, default="R")
        runat = pw.DateTimeField(null=True)
        deadline = pw.DateTimeField(null=True)

        class Meta:
            database = db
            primary_key = pw.CompositeKey("host", "number")

    roles = {role: role for role in ("status", "runat", "deadline")}
    features: xq.Features = {"delayed": True, "buried": True, "lifetime": 300, "ttr": 60, "history": True}
    return xq.upgrade(Visit, roles, features, clock=Clock())


def words(db: pw.Database) -> Any:
    """Words as statuses and as key in a table with odd names: unique, limit, not_check_session, buried by anyone."""

    class Order(pw.Model):
        id = pw.TextField(primary_key=True)
        number = pw.TextField(null=True)
        note = pw.TextField(null=True, column_name='"x')
        status = pw.TextField(default="new", column_name="select")
        runat = pw.BigIntegerField(null=True)

        class Meta:
            database = db
            table_name = "order"

    roles = {"status": "status", "runat": "runat", "unique": "number"}
    features: xq.Features = {
        "buried": "any",
        "delayed": True,
        "keep": True,
        "ttr": True,
        "not_check_session": True,
        "unique": True,
        "limit": 100_000,
    }
    statuses = {"R": "new", "T": "in hand", "W": "later", "B": "won't do", "D": "done"}
    return xq.upgrade(Order, roles, features, statuses=statuses, clock=Clock())


def hosts(db: pw.Database) -> Any:
    """Utubes, of which two tasks are taken at a time; priority and ttr."""

    class Visit(pw.Model):
        url = pw.TextField()
        host = pw.CharField(null=True)
        status = pw.CharField(max_length=1, default="R")
        runat = pw.DoubleField(null=True)
        priority = pw.IntegerField(default=0)
        owner = pw.CharField(max_length=64, null=True)

        class Meta:
            database = db

    roles = {"utube": "host", **{role: role for role in ("status", "runat", "priority", "owner")}}
    return xq.upgrade(Visit, roles, {"utube": 2, "ttr": 60}, clock=Clock())


def integers(db: pw.Database) -> Any:
    """The least there is: the core, with integers as statuses."""

    class Job(pw.Model):
        name = pw.TextField(null=True)
        status = pw.IntegerField(default=0)

        class Meta:
            database = db

    return xq.upgrade(Job, {"status": "status"}, statuses={"R": 0, "T": 1}, clock=Clock())


QUEUES: dict[str, Callable[[pw.Database], Any]] = {
    made.__name__: made for made in (readme, tubes, moments, words, hosts, integers)
}
GOLDEN = ("readme", "tubes")  # which have files; between them they show most shapes of statements


# their statements

MANY = ("ack", "release", "bury", "kill")  # the events of ack_many and so on


def dialect(queue: Any) -> Any:
    """The SQL of a queue. It may stand in no database yet."""
    return queue._database.bind().dialect


def entries(queue: Any) -> Iterator[Entry]:
    """Every statement of a queue: installing, putting, moving, looking, counting."""
    of = dialect(queue)
    for item in [*of.shared(), *of.objects()]:
        for sql in item.create:
            yield Entry(f"install: the {item.kind} {item.name}", sql)
    yield Entry("install: count what is there", of.count_what_is_there)
    for sql in of.groups.built if of.groups else ():
        yield Entry("install, recount: the heads of utubes", sql)
    for sql in of.record("VERSION", "FINGERPRINT"):
        yield Entry("install: record what is installed", sql)
    yield from puts(queue)
    for row in queue.machine.rows:
        if row.source != ABSENT:
            yield from moves(queue, row)
    first, *more = (row for row in queue.machine.rows if row.event == "kill")
    for rows in (Selector(way, first.source, more=tuple(row.source for row in more)) for way in ("all", "each")):
        killed = of.move(rows, change(queue.machine, first, frozenset()))
        yield _entry(of, f"kill in {first.source}{''.join(rows.more)}: {_chosen(rows)}", "", killed)
    yield Entry(
        "before a kill in each of several states, of which events are counted", of.lock_all(queue.machine.states)
    )
    yield from looks(queue)


def puts(queue: Any) -> Iterator[Entry]:
    of = dialect(queue)
    # What put_many brings: the fields that the application writes, a key that is made, and a first attempt.
    managed = [of.source.roles[role] for role in ("status", "runat", "deadline", "owner") if role in of.source.roles]
    auto = of.source.key if queue.machine.settings.id == "auto_increment" else ()
    names = tuple(field.name for field in of.source.fields if field not in (*managed, *auto))
    for row in queue.machine.rows:
        if row.source == ABSENT:
            for given in brought(queue, row):
                for count in (1, 2):
                    title = f"X {row.event} {row.target}{_with(given)}: {count}"
                    yield _entry(of, title, "", of.insert(change(queue.machine, row, given), names, count))
    for guard in queue.machine.guards:
        if guard.name == "unique":
            yield Entry(f"put: the row that holds a value of {guard.role}", of.holder(guard))
            for row in queue.machine.rows:
                if row.source == ABSENT:
                    for state in of.guarded_states(guard):
                        if state != TAKEN:
                            given = frozenset(filter(None, [row.given]))
                            statement = of.move(Selector("key", state), change(queue.machine, row, given, names))
                            yield _entry(of, f"put {row.target}{_with(given)}, on_conflict='replace'", state, statement)


def moves(queue: Any, row: Transition) -> Iterator[Entry]:
    of, machine = dialect(queue), queue.machine
    for given in brought(queue, row):
        for rows in ways(queue, row, given):
            title = f"{row.event} {row.target}{_with(given)}: {_chosen(rows)}"
            yield _entry(of, title, row.source, of.move(rows, change(machine, row, given)))
    if row.event == "ack":
        own = next(field.name for field in of.source.fields if field not in (*of.source.roles.values(), *of.source.key))
        fence = _fences(queue, row)[0]
        statement = of.move(Selector("key", row.source, fence), change(machine, row, frozenset(), (own,)))
        yield _entry(of, f"ack {row.target} with update={{{own!r}: ...}}: one", row.source, statement)


def brought(queue: Any, row: Transition) -> list[frozenset[str]]:
    """What a call may bring that takes this row: as little as it can, and all that it can."""
    accepted = queue.machine.accepts(row)
    least = accepted if not row.enters else frozenset(filter(None, [row.given]))
    return [least] if row.due or least == accepted else [least, accepted]


def ways(queue: Any, row: Transition, given: frozenset[str]) -> Iterator[Selector]:
    """The ways in which a row of the table is chosen."""
    if row.due:
        yield Selector("due", row.source, column=row.due)
        return
    if row.picks:
        tubes = (False, True) if "tube" in queue.machine.roles and row.event == "take" else (False,)
        for tube in tubes:
            yield Selector("first", row.source, tube=tube)
            yield Selector("oldest", row.source, tube=tube)
            if tube:
                yield Selector("first", row.source, skips=2)
    if row.event != "take":
        for fence in _fences(queue, row):
            yield Selector("key", row.source, fence)
            if row.event in MANY and not given and len(dialect(queue).keys) == 1:
                yield Selector("keys", row.source, fence)
    if row.event == "release" and not given:
        yield Selector("owned", row.source)
    if row.event == "release" and not given:
        yield Selector("all", row.source)
        yield Selector("each", row.source)


def looks(queue: Any) -> Iterator[Entry]:
    of = dialect(queue)
    yield Entry("look at one task, and at who holds it", of.look())
    for state in queue.machine.states:
        yield _entry(of, "by_state", state, Statement(of.by_state(state)))
    yield Entry("taken", of.taken)
    yield Entry("stats", of.counters)
    yield Entry("check, recount: what the table holds", of.actual_counts)
    if of.groups:
        yield Entry("check: heads of utubes that are wrong", of.groups.wrong)
    yield Entry("check, recount: the counters beside it, at one moment", of.audit)
    yield Entry("recount, reset: add to a counter", of.add_counter)
    if of.has_history:
        yield Entry("history", of.history([]))
        yield Entry("history of a task, from one moment to another", of.history(["key", "since", "until"]))
        if of.forget_history:
            yield Entry("sweep: forget what is history", of.forget_history)
        yield Entry("install(move=): tell the history of tasks in R that move to B", of.note_move("R", "B"))
    for sql in filter(None, (of.savepoints, of.savepoint_noted, of.savepoint_kept)):
        yield Entry("on_change: whether a change was committed", sql)
    yield Entry("what is installed", of.installed)
    for table, sql in of.forget_all.items():
        yield Entry(f"uninstall: forget this queue in {table}", sql)
    yield Entry("uninstall: the other queues", of.queues)
    yield Entry("act: forget the operations that ended long ago", of.forget_operations)
    yield Entry("sessions", of.sessions)
    yield Entry("sessions: which process each is of", of.processes)
    yield Entry("session: which process it is of", of.process)
    yield Entry("session: that it is there, and may hold tasks of this queue", of.session_listed)
    yield Entry("session: go on, for good or for a while", of.rejoin_session)
    yield Entry("session: join", of.session_is_there)
    yield Entry("session: end later, with session_ttr", of.expire_session_later)
    yield Entry("session: whether it is to end", of.session_ends)
    yield Entry("session: whether it is over", of.session_over)
    yield Entry("session: end", of.deregister_session)
    yield Entry("sessions: who lives, where, and for how long", of.sessions_listed)
    yield Entry("configure", of.set_setting)
    yield Entry("pause", of.pause)
    yield Entry("resume", of.resume)
    yield Entry("paused", of.pauses)
    yield Entry("every: the time", of.time_us)
    yield Entry("every: a new schedule", of.add_schedule)
    yield Entry("every, unschedule: the schedule of this name", of.schedule)
    yield Entry("every: another schedule; and the next firing of one that fires", of.set_schedule)
    yield Entry("unschedule", of.drop_schedule)
    yield Entry("schedules", of.schedules)
    yield Entry("when schedules fire", of.next_firings)
    yield Entry("a schedule that fires", of.due_schedule)
    yield Entry("wait: begin", of.begin_wait)
    yield Entry("wait: how tasks ended", of.ends)
    yield Entry("wait: end", of.end_wait)
    yield Entry("wait: forget those of a process that is gone", of.forget_waits)
    yield Entry("waiting", of.waiting)
    yield Entry("a take that waits: is there anything", of.any_ready)
    if of.next_due:
        yield Entry("when something falls due", of.next_due)
    yield Entry("before anything is read within the application's transaction", of.begin_writing)
    yield Entry("what tasks there are, before another definition is installed", of.statuses_in_use)


def _entry(of: Any, title: str, source: str, statement: Statement) -> Entry:
    status = of.is_state(source) if source else ""
    names = ("others", "among", "before", "again", "after", "after_all", "back")
    parts = {name: getattr(statement, name) for name in names}
    return Entry(title, statement.sql, source, status, statement.lock or statement.admitted, **parts)


def _fences(queue: Any, row: Transition) -> list[Any]:
    return ["session", "take"] if row.fenced else [""]


def _with(given: Iterable[str]) -> str:
    return f" with {', '.join(sorted(given))}" if given else ""


def _chosen(rows: Selector) -> str:
    fence = {"": "", "session": ", of this session", "take": ", of this very take"}[rows.fence]
    way = {
        "key": "one",
        "keys": "many",
        "first": "the oldest of a tube" if rows.tube else "the oldest",
        "oldest": "the n oldest of a tube" if rows.tube else "the n oldest",
        "due": f"n that are due by {rows.column}",
        "owned": "n of a session",
        "all": "n, whosesoever",
        "each": "n, whosesoever, returned",
    }[rows.way]
    return f"{way}{fence}{f', while {rows.skips} tubes are paused' * bool(rows.skips)}"


# as text


def path(name: str, database: str) -> Path:
    """Where the SQL of a queue on a database stands."""
    return FOLDER / database / f"{name}.sql"


def render(name: str, database: str) -> str:
    """The file for one queue."""
    queue = QUEUES[name](DATABASES[database]())
    grouped: dict[Any, list[Entry]] = {}
    for entry in entries(queue):
        if entry.sql:
            grouped.setdefault(entry.shape, []).append(entry)
    parts = [
        f"-- {QUEUES[name].__doc__}",
        "-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;",
        "-- the others differ in the status after WHERE only.",
    ]
    for group in grouped.values():
        first = group[0]
        sources = " ".join(entry.source for entry in group if entry.source)
        parts += ["", f"-- {sources + ' ' if sources else ''}{first.title}"]
        if first.first:
            parts += [laid_out(first.first) + ";", "-- and where that returns rows"]
        if first.before:
            parts += [laid_out(first.before) + ";", "-- and then"]
        parts += [laid_out(first.sql) + ";"]
        if first.again:
            parts += ["-- and if that returns no row", laid_out(first.again) + ";"]
        if first.after:
            parts += ["-- and for each row of these", laid_out(first.after) + ";"]
        if first.after_all:
            parts += ["-- or for all of them, by a list of their keys", laid_out(first.after_all) + ";"]
        if first.back:
            parts += ["-- and returned are", laid_out(first.back) + ";"]
    return "\n".join(parts) + "\n"


TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\s+|[(),;]|[^\s'"`(),;]+""")
CLAUSES = ("SET", "WHERE", "RETURNING", "VALUES", "ON", "UNION", "ORDER", "SELECT", "GROUP")


def laid_out(sql: str) -> str:
    """The same SQL with a line for each clause, each assignment and each statement of a trigger."""
    head, begin, body = sql.partition(" BEGIN ")
    if not begin:
        return _clauses(sql)
    *statements, end = _statements(body)
    lines = [indent(f"{_clauses(statement)};", "    ") for statement in statements]
    return "\n".join([f"{_clauses(head)} BEGIN", *lines, end])


def _statements(body: str) -> list[str]:
    parts = [""]
    for token in TOKEN.findall(body):
        if token == ";":
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts]


def _clauses(sql: str) -> str:
    lines, depth, setting = [""], 0, False
    for token in TOKEN.findall(sql):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0 and token in CLAUSES and lines[-1]:
            lines.append("    ")
            setting = token == "SET"
        if lines[-1].strip() or not token.isspace():
            lines[-1] += token
        if depth == 0 and setting and token == ",":
            lines.append("        ")
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    for database, name in product(DATABASES, GOLDEN):
        path(name, database).parent.mkdir(exist_ok=True)
        path(name, database).write_text(render(name, database), encoding="utf-8")


if __name__ == "__main__":
    main()
