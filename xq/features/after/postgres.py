"""On PostgreSQL the triggers settle the dependants of tasks that end, in the statement of the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xq.core.acting import PART
from xq.core.compile import Selector
from xq.core.compile import change as compiled
from xq.core.machine import ABSENT, ELSEWHERE
from xq.sql.effects import fill
from xq.sql.installer.objects import Object
from xq.sql.named import filled
from xq.sql.postgres.postgres_moves import PostgresMoves
from xq.sql.postgres.postgres_objects import Program, part


class AfterProgram(Program):
    """Has triggers of its own, after updates and deletes.

    PostgreSQL fires triggers in the order of their names: these come after `update` and `delete`, which write the
    parent's end into the history.
    """

    @property
    def words(self) -> Collection[str]:  # type: ignore[override]
        return ("delayed",) if self.terms.machine.choose("W", "after", ["delay"]) else ()

    def within(self, change: str, known: Mapping[str, str]) -> str:
        return self.objects.filled_in(self.file, change, known) if change == "truncate" else ""

    def triggers(self, change: Mapping[str, str]) -> list[Object]:
        objects, terms, machine = self.objects, self.terms, self.terms.machine
        links, moves, waiting = self.slice, PostgresMoves(terms), Selector("key", "W", column="after")
        named = {f"k{i}": f"xq_child.{part}" for i, part in enumerate(terms.parts)}
        named |= {"now": "xq_now", "delay": "CAST(split_part(xq_how, ' ', 2) AS float8)"}

        def moved(event: str, *given: str) -> str:
            row = machine.choose("W", event, given)
            assert row
            changed = compiled(machine, row, frozenset(given))
            if row.target == ABSENT:
                sql = f"DELETE FROM {known['table']} WHERE {terms.sets_context} AND {moves.where(waiting)}"
            else:
                sql = f"UPDATE {known['table']} SET {moves.sets(waiting, changed)} WHERE {moves.where(waiting)}"
            return filled(sql, **named, context=f"'{event}' || xq_context")

        known = objects.known | {name: fill(text, change) for name, text in links.conditions.items()}
        keys = {of: ", ".join(f"{of}.{key} AS p{i}" for i, key in enumerate(terms.keys)) for of in ("OLD", "changed")}
        ours, gone = objects.ours, objects.of_rows("changed", "old", "was")
        how = f"CASE WHEN {gone['was_taken']} AND {known['event']} = 'ack' THEN 'D' ELSE 'X' END"
        leaves = f"changed.{links.role} IS NOT NULL"
        update = f"SELECT {keys['OLD']}, {known['ended']} AS ended, {known['leaves']} AS leaves"
        delete = f"SELECT {keys['changed']}, {how} AS ended, {leaves} AS leaves FROM changed WHERE {gone['was']}"
        known |= {
            "context": f"'{PART}' || {terms.literal(terms.source_name)} || '{PART * 3}' || "
            f"CASE WHEN {ours} THEN {part(5)} ELSE '' END || '{PART}'",
            "time": f"CASE WHEN {ours} AND {part(5)} <> '' THEN CAST({part(5)} AS float8) END",
            "is_parent": links.same(links.parents, links.parents, "xq_l.", "xq_e."),
            "is_child": links.same(links.children, links.parents, "xq_l.", "xq_e."),
            "its_link": links.same(links.children, links.children, other="xq_child."),
            "from_far": ", ".join(f"{each} DESC" for each in links.parents),
            "parts": ", ".join(links.children),
            "role": links.role,
            "waits": filled(moves.where(waiting), **named),
            "lock": terms.lock,
            "elsewhere": ELSEWHERE,
            "kill": moved("kill"),
            "release": moved("after"),
        }
        if self.words:
            known["release_late"] = moved("after", "delay")
        return [
            objects.created("update_after", known | {"ends": update}, body="after_body", file=self.file),
            objects.created("delete_after", known | {"ends": delete}, body="after_body", file=self.file),
        ]
