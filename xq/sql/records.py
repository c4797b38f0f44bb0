"""SQL for what a queue has in xq's own tables: its definitions, pauses, schedules and waits."""

from __future__ import annotations

from pathlib import Path

from xq.core.machine import TAKEN
from xq.sql.rows import Rows
from xq.sql.shared import GENERATIONS, OBJECTS, PAUSES, QUEUES, RATES, SCHEDULES, Sql
from xq.sql.sql_file import Holes, filled_in, texts

TEXTS = Path(__file__).parent / "records.sql"


class Records:
    """The texts of records.sql by their names; the dialect of a queue fills them in."""

    installed = Sql()
    generations = Sql()
    objects = Sql()
    note_installed = Sql()
    note_replaced = Sql()
    note_durations = Sql()
    note_schedules = Sql()
    forget_schedules = Sql()
    forget = Sql()

    pauses = Sql()
    pause = Sql()
    resume = Sql()

    schedules = Sql()
    declared_schedules = Sql()
    next_firings = Sql()
    add_schedule = Sql()
    schedule = Sql()
    due_schedule = Sql()
    set_schedule = Sql()
    fired_schedule = Sql()
    pause_schedule = Sql()
    resume_schedule = Sql()
    drop_schedule = Sql()

    limits = Sql()
    set_limit = Sql()
    unset_limit = Sql()

    begin_wait = Sql()
    end_wait = Sql()
    ends = Sql()
    waiting = Sql()
    taken_and_awaited = Sql()
    forget_waits = Sql()

    def __init__(self, terms: Rows) -> None:
        self.terms = terms

    def text(self, name: str, **more: str) -> str:
        """Return a text with its holes filled in."""
        terms, parts = self.terms, self.terms.parts
        holes: Holes = {
            **terms.shared.holes,
            "queue": terms.literal(terms.source_name),
            "waits": terms.waits,
            "exact_definition": terms.exact_text("definition"),
            "limits": terms.side("limit"),
            "set_anew": terms.on_conflict(
                "feature, value, is_set",
                f"n = :n, slack = :slack, given = :given, since_us = {terms.now_us}, actor = :actor, reason = :reason",
            ),
            "parts": ", ".join(parts),
            "event_and_target": terms.returning("event", "target"),
            "values": ", ".join(f":{part}" for part in parts),
            "this_key": " AND ".join(f"{part} = :{part}" for part in parts),
            "tasks": terms.table_in_schema,
            "columns_of_t": ", ".join(f"t.{terms.quote(field.column)}" for field in terms.source.fields),
            "t_is_awaited": terms.same_wait("w", "t"),
            "t_is_taken": terms.is_state(TAKEN, f"t.{terms.roles['status']}"),
            **more,
        }
        return filled_in(texts(TEXTS)[name], (), holes)

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        """Return SQL that records this queue as installed, in place of an earlier record; a new one as the newest."""
        values = {"version": self.terms.literal(version), "fingerprint": self.terms.in_any_mode(fingerprint)}
        earlier = self.note_installed, self.note_replaced  # it may not be noted yet
        return *earlier, self.forget, self.text("recorded", **values), self.note_installed

    @property
    def forget_all(self) -> dict[str, str]:
        """The SQL, by shared table, that deletes this queue's rows."""
        beside = {
            table: self.text("forget_in", table=table) for table in (PAUSES, SCHEDULES, RATES, GENERATIONS, OBJECTS)
        }
        return beside | {QUEUES: self.forget}
