"""The heads of utubes: of each, how many tasks are taken, and which one comes next.

A take looks at the heads that are open, in their order, and so finds the next task behind any number of others that
must wait. Triggers count what is taken, whoever writes, and a condition of the table refuses one too many.

SQLite has one writer at a time: its triggers look as well which task is the first now. On a server who looks in the
midst of a transaction sees the past, and whoever puts must wait for nobody. So triggers there leave news of a utube,
in a table that is only appended to, whenever another task may be its first, and takes and sweeps hear them: they lock
the head, look, and delete what they heard. A head is right as long as there are no news of its utube.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from xq.compile import Rows, Statement
from xq.machine import READY, TAKEN, Guard
from xq.store import Store

if TYPE_CHECKING:
    from xq.adapters.databases.sql import Dialect

R = TypeVar("R")

NEWS = "utube_news"
MANY = 1_000  # news to hear at once
PILE = 50  # news of one utube that nobody could hear, to make one of
FEW = 20  # of others, within the application's transaction, which keeps their heads locked
FIRST = "xq_first."  # the table where it is asked for the first: it may be called old or new, as a version of a row
COUNTED = (READY, TAKEN)  # the states of which a head tells


class Turn(NamedTuple):
    """What a change of a row does to a utube, as SQL: so many more are taken; `when` says for which rows."""

    utube: str
    taken: str
    when: str
    ready: bool = False  # whether all it does is that a task has become ready


class Utubes:
    """The SQL of the heads of one queue."""

    join = "JOIN"  # of the heads to their tasks

    def __init__(self, of: Dialect, guard: Guard) -> None:
        self.of = of
        self.most = int(guard.value)
        self.role = of.roles[guard.role]
        self.may_be_none = of.source.roles[guard.role].null
        self.suffix = f"utube_{self.most}"  # the table keeps to the number, and is another one for another number
        self.heads = of.side(self.suffix)
        self.parts = [f"k{i}" for i in range(len(of.keys))]
        priority = of.roles.get("priority")
        # The first task of a utube: the columns of its head, and those of the table that are the same.
        self.columns = [*(["priority"] if priority else []), *self.parts]
        self.ordered = [*([priority] if priority else []), *of.keys]
        self.mine = [f"{of.table}.{column}" for column in self.ordered]
        self.wanted = ", ".join(FIRST + column for column in self.ordered)

    # what differs between databases

    def head(self, version: str) -> str:
        """What the head of a version of a row is called."""
        return f"{version}.{self.role}"

    def of_utube(self, utube: str, of: str) -> str:
        """That a row of the table, or `of` an alias, is of the utube whose head is called so; an index answers."""
        return f"{of}{self.role} = {utube}"

    @property
    def of_none(self) -> str:
        """That a row of the table has no utube."""
        return f"{self.of.table}.{self.role} IS NULL"

    def is_open(self, of: str = "") -> str:
        """That the first task of a head may be taken; an index of such heads answers."""
        return f"{of}taken < {self.most} AND {of}k0 IS NOT NULL"

    def for_others(self, condition: str) -> str:
        """A condition, of tasks without a utube alone, where an index can be of those."""
        return f"{condition} AND {self.role} IS NULL"

    @property
    def index(self) -> tuple[str, str, bool]:
        """The index that finds the first task of a utube: columns, condition, whether it is unique."""
        ready = f"{self.of.is_state(READY)} AND {self.role} IS NOT NULL"
        return ", ".join([self.role, self.order(self.ordered, "")]), ready, False

    by_key = ""  # what has their tasks be read by their keys
    by_open = ""  # what has the heads be read by the index of those that are open

    def index_of_none(self, suffix: str) -> str:
        """The index that finds the tasks without a utube."""
        return suffix

    def order(self, columns: Iterable[str], of: str) -> str:
        """The order of a take, by columns of a table or alias."""
        return ", ".join(of + column for column in columns)

    def set_first(self, utube: str) -> str:
        """What follows SET: the first task of a utube."""
        return f"({', '.join(self.columns)}) = ({self.first(self.wanted, utube)})"

    alone = ""  # SQL that keeps others from the heads until the transaction ends
    has_news = ""  # a query that finds a row where there are news

    def but_for_news(self, utube: str) -> str:
        """What follows a condition of a utube, of which there are no news."""
        return ""

    # which task is the next

    def picks(self, columns: Sequence[str], rows: Rows) -> list[str]:
        """Queries of the first tasks that may be taken: of the open heads, and of the tasks that have no utube."""
        return [self.of_heads(columns, rows), *([self.of_others(columns, rows)] if self.may_be_none else [])]

    def of_heads(self, columns: Sequence[str], rows: Rows) -> str:
        of = self.of
        return (
            f"SELECT {', '.join(columns)} FROM {self.heads} AS xq_h{self.by_open} {self.join} "
            f"{of.table_in_schema}{self.by_key} ON {of.same_wait('xq_h', of.table)} "
            f"WHERE {self.is_open('xq_h.')} AND {self.takeable(rows)} "
            f"ORDER BY {self.order(self.columns, 'xq_h.')} LIMIT {self.limit(rows)}"
        )

    def of_others(self, columns: Sequence[str], rows: Rows) -> str:
        of, table = self.of, f"{self.of.table}."
        index = of.name(self.index_of_none(f"oldest_{READY}{'_of_tube' * rows.tube}"))
        return (
            f"SELECT {', '.join(columns)} FROM {of.table_in_schema}{of.by_index(index)} "
            f"WHERE {self.of_none} AND {of.keys_there(table)}{self.takeable(rows)} "
            f"ORDER BY {self.order(self.ordered, table)} LIMIT {self.limit(rows)}"
        )

    def takeable(self, rows: Rows) -> str:
        """That a row of the table is ready, and of the tube that is meant."""
        of, table = self.of, f"{self.of.table}."
        tube = f" AND {of.holds(table + of.roles['tube'], '= :tube')}" if rows.tube else ""
        return f"{self._ready(table)}{of.not_due(READY, table)}{tube}"

    @staticmethod
    def limit(rows: Rows) -> str:
        return "1" if rows.way == "first" else ":n"

    def first(self, wanted: str, utube: str) -> str:
        """A query of the first task of a utube."""
        of = self.of
        return (
            f"SELECT {wanted} FROM {of.table_in_schema} AS {FIRST[:-1]}{of.by_index(of.name('utube'))} "
            f"WHERE {self.of_utube(utube, FIRST)} AND {of.keys_there(FIRST)}{self._ready(FIRST)} "
            f"ORDER BY {self.order(self.ordered, FIRST)} LIMIT 1"
        )

    def _ready(self, of: str) -> str:
        return self.of.is_state(READY, of + self.of.roles["status"])

    # what a change of a row does: OLD is what it was, NEW what it is

    def turns_of(self, version: str, came: bool) -> list[Turn]:
        """What a row does that has come, or gone."""
        head = self.head(version)
        if not came:
            return [Turn(head, f"-{self._taken(version)}", self._is(version, COUNTED))]
        return [Turn(head, "1", self._is(version, [TAKEN])), Turn(head, "0", self._is(version, [READY]), ready=True)]

    def turns_of_change(self) -> list[Turn]:
        """What a row does that was OLD and is NEW."""
        of = self.of
        moved = of.differ(f"OLD.{self.role}", f"NEW.{self.role}")
        changed = " OR ".join(of.differ(f"OLD.{column}", f"NEW.{column}") for column in self.watched)
        was, taken, ready = self._is("OLD", COUNTED), self._is("NEW", [TAKEN]), self._is("NEW", [READY])
        stayed = f"NOT ({moved}) AND ({changed})"
        old, new = self.head("OLD"), self.head("NEW")
        return [
            Turn(new, f"{self._taken('NEW')} - {self._taken('OLD')}", f"{stayed} AND ({was} OR {taken})"),
            Turn(old, f"-{self._taken('OLD')}", f"({moved}) AND {was}"),
            Turn(new, "1", f"({moved}) AND {taken}"),
            Turn(new, "0", f"(({moved}) OR ({changed}) AND NOT {was}) AND {ready}", ready=True),
        ]

    @property
    def watched(self) -> list[str]:
        """The columns whose change triggers must see, beside the utube."""
        return [self.of.roles["status"], *self.ordered]

    def _status(self, version: str) -> str:
        return f"{version}.{self.of.roles['status']}"

    def _is(self, version: str, states: Iterable[str]) -> str:
        """That a version of a row has a utube, and is in one of these states."""
        in_states = self.of.in_states(states, self._status(version))
        return f"({version}.{self.role} IS NOT NULL AND COALESCE({in_states}, FALSE))"

    def _taken(self, version: str) -> str:
        taken = self.of.is_state(TAKEN, self._status(version))
        return f"(CASE WHEN {taken} THEN 1 ELSE 0 END)"

    # what is done

    @property
    def name(self) -> str:
        """The table of heads, within a statement that has named it."""
        return self.of.quote(self.of.name(self.suffix))

    @property
    def adding(self) -> str:
        """What follows an INSERT of heads of which some are there: they count, too."""
        return self.of.on_conflict("utube", f"taken = {self.name}.taken + excluded.taken")

    def count(self, utube: str, taken: str, rows: str = "") -> str:
        """For one row, or for all `rows`, in the order of their utubes, so that no two wait for each other."""
        found = f"SELECT {utube}, SUM({taken}) {rows} GROUP BY 1 ORDER BY 1" if rows else f"VALUES ({utube}, {taken})"
        return f"INSERT INTO {self.heads} (utube, taken) {found}{self.adding}"

    def look(self, utube: str = "") -> str:
        """Which task is the first of a utube, or of all."""
        which = f" WHERE utube = {utube}" if utube else ""
        return f"UPDATE {self.heads} SET {self.set_first(utube or f'{self.name}.utube')}{which}"

    # all of them

    @property
    def built(self) -> list[str]:
        """SQL that makes the heads anew, of the table as it is."""
        table = self.of.table
        return [
            f"DELETE FROM {self.heads}",
            self.count(
                self.head(table), self._taken(table), f"FROM {self.of.table_in_schema} WHERE {self._is(table, COUNTED)}"
            ),
            self.first_known,
        ]

    @property
    def first_known(self) -> str:
        """SQL that has takes find the first task of each utube."""
        return self.look()

    @property
    def wrong(self) -> str:
        """How many heads are not as the table has it: reads all that is ready or taken."""
        of, table = self.of, self.of.table
        utube, rows = self.head(table), f"FROM {of.table_in_schema} WHERE {self._is(table, COUNTED)}"
        differ = " OR ".join(
            of.differ(f"xq_h.{column}", f"({self.first(FIRST + mine, 'xq_t.utube')})")
            for column, mine in zip(self.columns, self.ordered, strict=True)
        )
        first = f"(xq_t.taken < {self.most} AND (xq_h.utube IS NULL OR {differ}){self.but_for_news('xq_t.utube')})"
        each = f"SELECT {utube} AS utube, SUM({self._taken(table)}) AS taken {rows} GROUP BY 1"
        return (
            f"SELECT (SELECT COUNT(*) FROM ({each}) AS xq_t LEFT JOIN {self.heads} AS xq_h "
            f"ON xq_h.utube = xq_t.utube WHERE COALESCE(xq_h.taken, 0) <> xq_t.taken OR {first}) + "
            f"(SELECT COUNT(*) FROM {self.heads} AS xq_h "
            f"WHERE utube NOT IN (SELECT {utube} {rows}){self.but_for_news('xq_h.utube')})"
        )


class Again(Protocol):
    """Does work again that the database undid for another's sake."""

    def __call__(self, work: Callable[[], R]) -> R: ...


class News(NamedTuple):
    """That a task may have become the first of its utube."""

    id: int
    utube: Any
    head: int  # as in HEADS


HEADS = range(3)
MISSING, OPEN, FULL = HEADS  # no head; one from which may be taken; one from which nothing may


class ServerUtubes(Utubes):
    """Heads on a server, where many write at once.

    No step of a take waits for another's transaction: heads that others have locked are passed by, and their news stay.
    """

    me: ClassVar[str]  # who leaves news: a transaction, or a connection; as SQL

    def __init__(self, of: Dialect, guard: Guard) -> None:
        super().__init__(of, guard)
        self.news = of.side(NEWS)

    @abstractmethod
    def among(self, utubes: Collection[Any]) -> str:
        """What follows `utube` to mean one of these, whose values stand beside as :utubes."""

    @abstractmethod
    def place(self, store: Store[Any], utubes: Collection[Any]) -> None:
        """Have heads of these utubes. Raises an error that is_locked knows where that would be to wait."""

    @abstractmethod
    def look_at(self, store: Store[Any], utubes: Collection[Any]) -> None:
        """Look which tasks are the first of these, whose heads are locked."""

    @abstractmethod
    def leave(self, store: Store[Any], utubes: Collection[Any]) -> None:
        """Leave no head of these that is empty: of which no task is known, without any, or with news yet to hear."""

    @abstractmethod
    def left_again(self, utubes: Collection[Any]) -> str:
        """SQL that leaves news of these, of nobody's transaction."""

    def gone(self, ids: Sequence[int]) -> str:
        """SQL that deletes news."""
        return f"DELETE FROM {self.news} WHERE id IN ({', '.join(map(str, ids))})"

    def guessed(self, ids: Sequence[int]) -> str:
        """SQL that has news be those of nobody, who need not guess again."""
        return f"UPDATE {self.news} SET teller = NULL WHERE id IN ({', '.join(map(str, ids))}) AND teller = {self.me}"

    @property
    def has_news(self) -> str:  # type: ignore[override]
        return f"SELECT 0 FROM {self.news} LIMIT 1"

    def but_for_news(self, utube: str) -> str:
        return f" AND {utube} NOT IN (SELECT utube FROM {self.news})"

    @property
    def nobody(self) -> str:
        """What follows SET: no task is known to be the first."""
        return ", ".join(f"{column} = NULL" for column in self.columns)

    @property
    def first_known(self) -> str:
        table = self.of.table
        rows = f"FROM {self.of.table_in_schema} WHERE {self._is(table, [READY])}"
        return self.left(self.head(table), rows)

    # what triggers do

    def left(self, utube: str, rows: str = "") -> str:
        """News of a utube, or of those of all `rows`."""
        found = f"SELECT DISTINCT {utube}, {self.me} {rows}" if rows else f"VALUES ({utube}, {self.me})"
        return f"INSERT INTO {self.news} (utube, teller) {found}"

    def turned(self, turn: Turn, table: str = "") -> list[tuple[str, str]]:
        """What a trigger does for a row, or for those of a table, and the condition of such rows."""

        def rows(when: str) -> str:
            return f"FROM {table} WHERE {when}" if table else ""

        counts = f"({turn.when}) AND {turn.taken} <> 0"
        # A utube of which one task is taken is full: no other can be the first then.
        tells = f"({turn.when}) AND {turn.taken} <= 0" if self.most == 1 else turn.when
        found = [] if turn.ready else [(counts, self.count(turn.utube, turn.taken, rows(counts)))]
        return [*found, (tells, self.left(turn.utube, rows(tells)))]

    # who hears

    def hear(self, store: Store[Any], again: Again, whole: Again, mine: bool = False) -> int:
        """Hear the news, of `mine` those of the open transaction alone. Returns how many could be heard.

        Within the application's transaction, which may see the past and lasts as long as it likes, what is heard is
        only a first guess: others hear it again. It locks few heads there. `again` and `whole` are the Database's.
        """
        unheard = partial(self._unheard, store, again)
        if not store.in_transaction():
            return sum(self._heard(store, again, whole, news) for news in unheard("TRUE", MANY))
        own = partial(self._hear, store, whole, partial(self._guess, own=True))
        heard = sum(map(own, unheard(f"teller = {self.me}", MANY)))
        if not heard and not mine:
            others = partial(self._hear, store, whole, self._guess)
            unknown = self._of_head(f"k0 IS NULL AND taken < {self.most}", "TRUE")
            heard = next(filter(None, map(others, unheard(unknown, FEW))), 0)
        return heard

    def _unheard(self, store: Store[Any], again: Again, which: str, n: int) -> Iterator[list[News]]:
        """The news in the order in which they were left, so many at a time."""
        head = self._of_head(f"CASE WHEN taken < {self.most} THEN {OPEN} ELSE {FULL} END", f"{MISSING}")
        after: int | None = -1
        while after is not None:
            query = f"SELECT id, utube, {head} FROM {self.news} AS xq_n WHERE id > {after} AND {which}"
            found = again(partial(store.execute, f"{query} ORDER BY id LIMIT {n}"))
            if found:
                yield [News(*row) for row in found]
            after = found[-1][0] if len(found) == n else None

    def _of_head(self, found: str, missing: str) -> str:
        """What is asked of the head of news `xq_n`; a join would be free to read all heads."""
        return f"COALESCE((SELECT {found} FROM {self.heads} AS xq_h WHERE xq_h.utube = xq_n.utube), {missing})"

    def _heard(self, store: Store[Any], again: Again, whole: Again, news: list[News]) -> int:
        heard = self._hear(store, self._learning(news, again, whole), self._learn, news)
        for of_one in _apart(news):
            if len(of_one) >= PILE and of_one[0].head != FULL:
                whole(partial(self._gather, store, of_one))
        return heard

    def _learning(self, news: Sequence[News], again: Again, whole: Again) -> Again:
        """By which of these to learn from news."""
        return whole

    def _hear(
        self,
        store: Store[Any],
        whole: Again,
        hear: Callable[[Store[Any], Sequence[News]], int],
        news: Sequence[News],
    ) -> int:
        """Hear these, or if the head of one cannot be made now, each utube's on their own."""
        try:
            return whole(lambda: hear(store, news))
        except Exception as error:
            if not store.is_locked(error):
                raise
        each = _apart(news)
        return sum(self._hear(store, whole, hear, of_one) for of_one in each) if len(each) > 1 else 0

    def _locked(self, store: Store[Any], news: Sequence[News], and_so: str = "") -> list[Any]:
        """Those utubes of these news whose heads are open, `and_so`, and locked now."""
        absent = dict.fromkeys(one.utube for one in news if one.head == MISSING)
        wanted = dict.fromkeys(one.utube for one in news if one.head != FULL)
        if absent:
            self.place(store, absent)
        if not wanted:
            return []
        heads = f"SELECT utube FROM {self.heads}{self.by_key} WHERE utube {self.among(wanted)}"
        which = f"AND taken < {self.most}{and_so}{self.of.lock} SKIP LOCKED"
        found = self.of.execute(store, f"{heads} {which}", {"utubes": list(wanted)})
        return [utube for (utube,) in found]

    def _there(self, store: Store[Any], news: Sequence[News]) -> set[int]:
        """The ids of those of these news that nobody has heard so far, or hears now. They are locked."""
        ids = ", ".join(str(one.id) for one in news)
        these = f"SELECT id FROM {self.news}{self.by_key} WHERE id IN ({ids}) ORDER BY id{self.of.lock} SKIP LOCKED"
        return {id for (id,) in store.execute(these)} if news else set()

    def _guess(self, store: Store[Any], news: Sequence[News], own: bool = False) -> int:
        """Look from here which tasks are the first of those utubes of which none is known, or of all for `own` news.

        It leaves news of its own: those of the past somebody may have heard since, who has seen more.
        """
        locked = self._locked(store, news, " AND k0 IS NULL")
        if own:
            known = self._locked(store, news, " AND k0 IS NOT NULL")
            # Those of an earlier transaction of the connection somebody may have heard: what is known is right then.
            there = self._there(store, [one for one in news if one.utube in known])
            locked += [utube for utube in known if any(one.id in there for one in news if one.utube == utube)]
        if not locked:
            return 0
        self.look_at(store, locked)
        self.of.change(store, Statement(self.left_again(locked)), {"utubes": locked})
        if own:
            store.change(self.guessed([one.id for one in news if one.utube in locked]))
        ready = f"SELECT COUNT(*) FROM {self.heads}{self.by_key} WHERE utube {self.among(locked)} AND k0 IS NOT NULL"
        ((found,),) = self.of.execute(store, ready, {"utubes": locked})
        return int(found)

    def _learn(self, store: Store[Any], news: Sequence[News]) -> int:
        locked, there = self._locked(store, news), self._there(store, news)
        # Where some were heard meanwhile, somebody has looked, and may have seen more than this transaction does.
        lost = {one.utube for one in news if one.id not in there}
        sure = [utube for utube in locked if utube not in lost]
        if sure:
            self.look_at(store, sure)
        # Also what was placed for news that others have heard: without a known task it is empty, or there are news.
        placed = {one.utube for one in news if one.head == MISSING}
        if emptied := [utube for utube in locked if utube in sure or utube in placed]:
            self.leave(store, emptied)
        # Whoever makes room in a full utube leaves news.
        heard = [one.id for one in news if one.id in there and (one.head == FULL or one.utube in sure)]
        if heard:
            store.change(self.gone(heard))
        return len(heard)

    def _gather(self, store: Store[Any], news: Sequence[News]) -> None:
        """Leave one in place of many of a utube. It is newer than they are: who sees it sees what they told of."""
        there = self._there(store, news)
        if len(there) >= PILE:
            store.change(self.gone(sorted(there)))
            self.of.change(store, Statement(self.left(":utube")), {"utube": news[0].utube})


def _apart(news: Iterable[News]) -> list[list[News]]:
    """News by their utubes."""
    found: dict[Any, list[News]] = {}
    for one in news:
        found.setdefault(one.utube, []).append(one)
    return list(found.values())
