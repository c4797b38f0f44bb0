"""The objects that installing a queue creates: tables, indexes and triggers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from xq.core.machine import GUARDED, LEFT, ONWARD, READY, TAKEN
from xq.sql.effects import STALE, TRANSITIONS, TRANSITIONS_OF_TUBES, WAITS, Effect
from xq.sql.heads import Index
from xq.sql.installer.views import views
from xq.sql.rows import Rows
from xq.sql.shared import TUBES
from xq.sql.sql_file import Holes, filled_in, statements, texts
from xq.sql.terms import UNIQUE


@dataclass(frozen=True, slots=True)
class Object:
    """A queue's database object. Running `create` twice is harmless."""

    kind: str  # table, index, trigger or view
    name: str
    create: tuple[str, ...]
    drop: str
    body: tuple[str, ...] = ()  # how its text ends in the database; where a part ends, the first schema's name stands


class Objects(ABC):
    """The objects that belong to a queue, besides the application's table."""

    def __init__(self, terms: Rows) -> None:
        self.terms = terms
        self._mine: tuple[object, list[Object]] | None = None

    columns: object = None  # what it knows of the table, besides the definition

    def all(self) -> list[Object]:
        """Return the objects that installing creates, in order."""
        return [*self.shared(), *self.mine()]

    def mine(self) -> list[Object]:
        """Return this queue's own objects, in order."""
        known = self.columns, self.wanted_views
        if self._mine is None or self._mine[0] != known:
            wanted = [view for view in self.views() if view.name in self.wanted_views]
            self._mine = known, [*self.side_tables(), *self.indexes(), *self.triggers(), *wanted]
        return self._mine[1]

    wanted_views: frozenset[str] = frozenset()  # the names of those that are there, or that install() shall make

    def views(self) -> list[Object]:
        """Return the views on the history; none without one."""
        found = views(self.terms).items() if self.terms.has_history else ()
        made = []
        for suffix, sql in found:
            drop = self.drop("view", self.terms.name(suffix))
            made.append(self.made("view", suffix, drop, f"CREATE VIEW {self.terms.side(suffix)} AS {sql}"))
        return made

    tables_file: ClassVar[Path]  # the side tables' texts

    @property
    def written(self) -> dict[str, Path]:
        """The side tables that effects may write, by suffix, and where their texts stand."""
        found = dict.fromkeys(("count", "wait"), self.tables_file)
        for slice in self.terms.slices:
            found |= dict.fromkeys(slice.tables, slice.file or self.tables_file)
        return found

    def side_tables(self) -> list[Object]:
        """Return the tables that belong to this queue alone."""
        more = ["back"] * bool(self.terms.floors) + ["limit"] * bool(self.terms.limits)
        files = self.written | dict.fromkeys(more, self.tables_file)
        rows = {"limit": [*limits.defaults]} if (limits := self.terms.limits) else {}
        made = {name: self._side_table(name, texts(file)[name]) for name, file in files.items()}
        if heads := self.terms.heads:
            known = heads.of_tables(self.stored)
            made |= {name: self._side_table(name, texts(heads.file)[of], known) for name, of in heads.tables.items()}
        return [self.made("table", suffix, *create, *rows.get(suffix, ())) for suffix, create in made.items()]

    def _side_table(self, suffix: str, text: str, more: Mapping[str, str] = MappingProxyType({})) -> tuple[str, ...]:
        keys, parts = self.terms.keys, self.terms.parts
        known = {
            "engine": self.terms.engine,
            "table": self.terms.table_in_schema,
            "parts": ", ".join(parts),
            "keys_as_parts": ", ".join(f"{k} AS {part}" for k, part in zip(keys, parts, strict=True)),
            "parents": ", ".join(f"p{i}" for i in range(len(keys))),
            "keys_as_parents": ", ".join(f"{k} AS p{i}" for i, k in enumerate(keys)),
            "name": self.terms.side(suffix),
            **self.names_beside(suffix),
        }
        return statements(text, self.words(), {**known, **more})

    def stored(self, table: str, column: str, kind: str, made: str, index: str, listed: str, unique: str = "") -> str:
        """Return SQL that adds a stored computed column and an index on `listed`, for a database that needs it."""
        raise NotImplementedError

    @abstractmethod
    def names_beside(self, suffix: str) -> dict[str, str]:
        """Return the types, or the names for indexes and constraints, that a side table's text has."""

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        """Return an index on the rows that meet a condition."""
        create = f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.index_on(suffix)}"
        return self.made("index", suffix, f"{create} ({columns}) WHERE {condition}")

    def index_on(self, suffix: str) -> str:
        """Return an index's name, ON, and its table. The schema stands before one of them."""
        return f"{self.terms.quote(self.terms.name(suffix))} ON {self.terms.table_in_schema}"

    @abstractmethod
    def triggers(self) -> list[Object]:
        """Return the triggers, which see every program's changes to the table."""

    @cached_property
    def effects(self) -> list[Effect]:
        """What changes of rows write beside them."""
        brought = [effect for slice in self.terms.slices for effect in slice.effects]
        stale = [] if any(effect.refuses for effect in brought) else [STALE]
        return [*stale, *TRANSITIONS, *(TRANSITIONS_OF_TUBES if self.terms.tube_stats else ()), WAITS, *brought]

    def indexes(self) -> list[Object]:
        """Return the selectors' indexes. With partial indexes, rows at rest are in none."""
        return [self.index(suffix, *found) for suffix, found in self.wanted_indexes().items()]

    def wanted_indexes(self) -> dict[str, Index]:
        """Return the indexes by suffix."""
        found: dict[str, Index] = {}
        for state in self.terms.machine.picked():
            mine = self.terms.is_state(state)
            if self.terms.heads and state == READY:
                mine = self.terms.heads.for_others(mine)
            found[f"oldest_{state}"] = (self.terms.order, mine, False)
            if "tube" in self.terms.roles and state == READY:
                found[f"oldest_{state}_of_tube"] = (f"{self.terms.roles['tube']}, {self.terms.order}", mine, False)
        for slice in self.terms.slices:
            found |= slice.indexes
        for column in self.terms.timed_columns:
            role = self.terms.roles[column]
            found[column] = (f"{self.terms.roles['status']}, {role}", f"{role} IS NOT NULL", False)
        if "awaits" in self.terms.roles:  # a task may wait without a time
            columns, condition, unique = found["runat"]
            found["runat"] = (columns, f"{self.terms.is_state('W')} OR {condition}", unique)
        # A session's taken tasks must be found among ten million others.
        taken = self.terms.is_state(TAKEN)
        if self.terms.index_of_taken in found:
            columns, condition, unique = found["runat"]
            found["runat"] = (columns, f"{taken} OR {condition}", unique)
        else:
            found[self.terms.index_of_taken] = (self.terms.owner_for_range, taken, False)
        if single := self.terms.machine.single:
            held = self.terms.in_states(self.terms.guarded_states(single))
            found[UNIQUE] = (self.terms.roles[single.role], held, True)
        return found

    def made(self, kind: str, suffix: str, *create: str) -> Object:
        """Return this queue's object, with the SQL that creates it."""
        name = self.terms.name(suffix)
        return Object(kind, name, create, self.drop(kind, name), (self.body(kind, name, *create[-1:]),))

    def body(self, kind: str, name: str, create: str = "") -> str:
        """Return the end of an object's SQL that the database keeps letter by letter; "" if there is none."""
        return ""

    @property
    def jobs(self) -> Object:
        """The table that bulk puts create, with their own SQL."""
        return self.made("table", "put")

    def drop(self, kind: str, name: str) -> str:
        """Return SQL that drops this queue's object if it exists."""
        return f"DROP {kind.upper()} IF EXISTS {self.terms.object(name)}"

    # the tables that all queues share

    def shared(self) -> list[Object]:
        """Return the tables that all queues in a database share."""
        return [
            Object("table", table, (create,), f"DROP TABLE IF EXISTS {table}")
            for table, create in self.terms.shared.tables.items()
        ]

    @property
    def shared_names(self) -> list[str]:
        """The names of these tables, and of that of tubes, which needs them as a queue does."""
        return [*self.terms.shared.tables, TUBES]

    # the SQL files

    def filled_in(self, file: Path, text: str, values: Holes) -> str:
        """Return a text's SQL for this queue, with the values filled in."""
        return filled_in(texts(file)[text], self.words(), values)

    def words(self) -> set[str]:
        words = {"tubes": self.terms.tube_stats, "history": self.terms.has_history}
        words |= {"floors": self.terms.floors, "emptied": LEFT.keys() & self.terms.roles}
        brought = self.terms.heads.words if self.terms.heads else ()
        return {*brought, *(word for word, there in words.items() if there)}

    def in_heads(self, known: Mapping[str, str], change: str) -> str:
        """Return what a trigger does with heads after a change; "" without heads."""
        return self.terms.heads.in_trigger(change, self.words(), known) if self.terms.heads else ""

    def watched(self) -> list[str]:
        """Return the columns whose changes triggers must see."""
        tube = [self.terms.roles["tube"]] if self.terms.tube_stats else []
        brought = (column for slice in self.terms.slices for column in slice.watched)
        return list(dict.fromkeys([self.terms.roles["status"], *self.terms.keys, *tube, *brought]))

    def of_version(self, version: str, old: str, was: str) -> dict[str, str]:
        """Return the values that triggers' texts have for a row's version, as `old`, and its conditions, as `was`."""
        terms, machine, status = self.terms, self.terms.machine, f"{version}.{self.terms.roles['status']}"
        found = {f"{old}_{role}": f"{version}.{column}" for role, column in terms.roles.items()}
        tube = terms.value_of("tube", found[f"{old}_tube"]) if "tube" in terms.roles else "NULL"
        found |= {
            old: terms.letter(status),
            f"{old}_tube": tube,
            was: terms.in_states(machine.states, status),
            f"surely_{was}": f"COALESCE({terms.in_states(machine.states, status)}, FALSE)",
            f"{was}_pending": terms.in_states(machine.pending, status),
            f"{was}_taken": terms.is_state(TAKEN, status),
            f"{was}_guarded": terms.in_states([state for state in machine.states if state in GUARDED], status),
        }
        if terms.tube_stats:
            found[f"{was}_counted"] = terms.counted(f"{version}.{terms.roles['tube']}")
        for slice in terms.slices:
            found |= slice.holes(version, old, was)
        return found

    def of_change(self) -> dict[str, str]:
        """Return the values for OLD and NEW in triggers' texts, and the conditions on a change."""
        known = {
            **self.of_version("OLD", "old", "was"),
            **self.of_version("NEW", "new", "is"),
            **{f"other_{role}": self.differ(column) for role, column in self.terms.roles.items()},
            "other_key": f"({' OR '.join(map(self.differ, self.terms.keys))})",
            "its_wait": f"{self.terms.same_wait('', 'OLD')} AND event IS NULL",
            "its_row": " AND ".join(f"{key} = NEW.{key}" for key in self.terms.keys),
            "emptied": self.emptied("{} = {}"),
        }
        # SQL that ends a task by its token records this: see docs/howto/plain-sql.md.
        by_token = f"{known['was_taken']} AND {known['new_owner']} = {self.terms.ended(known['old_owner'])}"
        stays = f"({known['was_taken']} OR ({known['was_guarded']} AND {known['is']}))"
        known["is_stale"] = f"{stays} AND {known['other_status']} AND ({by_token}) IS NOT TRUE"
        # A finished row has nothing to empty: many that are archived at once are written once.
        full = self.terms.differ("NEW.{}", "{}")
        left = f"NOT {known['surely_is']} AND {known['surely_was']} AND ({self.emptied(full, ' OR ')})"
        onward = f"{known['new_owner']} IN {ONWARD} AND {known['other_owner']}"
        return known | {"has_left": f"{left} AND ({onward}) IS NOT TRUE"}

    def emptied(self, text: str, between: str = ", ") -> str:
        """Return a text with each column that is emptied in a row which leaves the queue, and with its new value."""
        mine = [(self.terms.roles[role], value) for role, value in LEFT.items() if role in self.terms.roles]
        return between.join(text.format(column, self.terms.literal(value)) for column, value in mine)

    def differ(self, column: str) -> str:
        """Return the condition that an update changes a column."""
        return self.terms.differ(f"OLD.{column}", f"NEW.{column}")
