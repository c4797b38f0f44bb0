"""The SQL of the feature utube: takes find the tasks of a utube by its head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from xq.core.errors import shown
from xq.core.machine import READY, TAKEN
from xq.features.utube.heads import UtubeHeads
from xq.features.utube.innodb import InnodbHeads
from xq.features.utube.postgres import PostgresHeads
from xq.features.utube.sqlite import SqliteHeads
from xq.sql.heads import Index
from xq.sql.rows import Rows
from xq.sql.slice import Hidden, Slice

KINDS: Mapping[str, type[UtubeHeads]] = {"sqlite": SqliteHeads, "postgres": PostgresHeads, "innodb": InnodbHeads}
LISTED = 5  # keys that a message names


class UtubeSlice(Slice):
    """One queue's utubes."""

    terms: Rows

    @cached_property
    def heads(self) -> UtubeHeads:  # type: ignore[override]
        return KINDS[self.terms.family](self.terms)

    @property
    def watched(self) -> Sequence[str]:  # type: ignore[override]
        return self.heads.watched

    @property
    def indexes(self) -> Mapping[str, Index]:  # type: ignore[override]
        return {self.heads.name: self.heads.index}

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        return self.heads.holes(version, old, was)

    def why(self, task: Hidden) -> Iterator[str]:
        utube = task.role("utube")
        if utube is not None:
            takers = task.run(self._takers, **task.key)
            ((most,),) = task.run(self._limit, **task.key)
            if len(takers) >= most:
                keys = ", ".join(map(task.named, takers[:LISTED]))
                yield f"its utube {shown(utube)} is busy with task{'s' * (len(takers) > 1)} {keys}"
        for *first, tube, own in task.run(self._first, **task.key):
            if (before := task.named(first)) != task.named([*task.key.values()]):
                # A take sees a utube's first task only, also one with a tube.
                where = "" if tube == own else f", in {'no tube' if tube is None else f'the tube {shown(tube)}'}"
                yield f"task {before} of its utube comes first{where}"

    def _its(self, column: str) -> str:
        terms = self.terms
        return f"SELECT {column} FROM {terms.table_in_schema} AS xq_its WHERE {terms.by_key('xq_its.')}"

    @property
    def _takers(self) -> str:
        """A query for the keys of taken tasks in the same utube as the task with a key."""
        terms, role = self.terms, self.terms.roles["utube"]
        same = f"{terms.as_text(role)} = ({self._its(terms.as_text(f'xq_its.{role}'))})"
        return f"SELECT {', '.join(terms.keys)} FROM {terms.table_in_schema} WHERE {terms.is_state(TAKEN)} AND {same}"

    @property
    def _limit(self) -> str:
        """A query for how many tasks of a task's utube may be taken."""
        its = self._its(f"{self.heads.head('xq_its')} AS utube")
        return f"SELECT {self.heads.limit('xq_of.utube')} FROM ({its}) AS xq_of"

    @property
    def _first(self) -> str:
        """A query for the first ready task in a task's utube: its key, its tube and that of the task, or NULL twice."""
        terms, its, tubes = self.terms, self._its(self.heads.head("xq_its")), ["NULL", "NULL"]
        ready = f"{terms.is_state(READY)} AND {self.heads.of_utube(f'({its})', '')}"
        if role := terms.roles.get("tube"):
            tubes = [terms.value_of("tube", role), f"({self._its(terms.value_of('tube', f'xq_its.{role}'))})"]
        columns = ", ".join([*terms.keys, *tubes])
        return f"SELECT {columns} FROM {terms.table_in_schema} WHERE {ready} ORDER BY {terms.order} LIMIT 1"
