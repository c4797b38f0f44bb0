"""The heads of utubes on a server, where many write at once.

Who looks in the midst of a transaction sees the past, and whoever puts must wait for nobody. So triggers leave news of
a utube, in a table that is only appended to, whenever another task may be its first, and takes and sweeps hear them:
they lock the head, look, and delete what they heard. A head is right as long as there are no news of its utube.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from xq.adapters.databases.groups import Groups, Turn
from xq.core.compile import Statement
from xq.core.machine import READY, Guard
from xq.core.ports import ErrorKind, Store

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

R = TypeVar("R")

NEWS = "utube_news"
MANY = 1_000  # news to hear at once
PILE = 50  # news of one utube that nobody could hear, to make one of
FEW = 20  # of others, within the application's transaction, which keeps their heads locked


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


class ServerGroups(Groups):
    """No step of a take waits for another's transaction: heads that others have locked are passed by."""

    me: ClassVar[str]  # who leaves news: a transaction, or a connection; as SQL

    def __init__(self, of: Dialect, guard: Guard) -> None:
        super().__init__(of, guard)
        self.news = of.side(NEWS)

    @abstractmethod
    def among(self, utubes: Collection[Any]) -> str:
        """What follows `utube` to mean one of these, whose values stand beside as :utubes."""

    @abstractmethod
    def place(self, store: Store[Any], utubes: Collection[Any]) -> None:
        """Have heads of these utubes. Raises an error of the kind LOCKED where that would be to wait."""

    @abstractmethod
    def look_at(self, store: Store[Any], utubes: Collection[Any]) -> None:
        """Look which tasks are the first of these, whose heads are locked."""

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
        heard = self._hear(store, self.learning(news, again, whole), self.learn, news)
        for of_one in _apart(news):
            if len(of_one) >= PILE and of_one[0].head != FULL:
                whole(partial(self._gather, store, of_one))
        return heard

    def learning(self, news: Sequence[News], again: Again, whole: Again) -> Again:
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
            if store.classify(error) is not ErrorKind.LOCKED:
                raise
        each = _apart(news)
        return sum(self._hear(store, whole, hear, of_one) for of_one in each) if len(each) > 1 else 0

    def locked(self, store: Store[Any], news: Sequence[News], and_so: str = "") -> list[Any]:
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

    def there(self, store: Store[Any], news: Sequence[News]) -> set[int]:
        """The ids of those of these news that nobody has heard so far, or hears now. They are locked."""
        ids = ", ".join(str(one.id) for one in news)
        these = f"SELECT id FROM {self.news}{self.by_key} WHERE id IN ({ids}) ORDER BY id{self.of.lock} SKIP LOCKED"
        return {id for (id,) in store.execute(these)} if news else set()

    def _guess(self, store: Store[Any], news: Sequence[News], own: bool = False) -> int:
        """Look from here which tasks are the first of those utubes of which none is known, or of all for `own` news.

        Where it may have written less than others knew it leaves news of its own: those of the past somebody may have
        heard since, who has seen more.
        """
        locked, known = self.locked(store, news, " AND k0 IS NULL"), []
        if own:
            known = self.locked(store, news, " AND k0 IS NOT NULL")
            # Those of an earlier transaction of the connection somebody may have heard: what is known is right then.
            there = self.there(store, [one for one in news if one.utube in known])
            known = [utube for utube in known if any(one.id in there for one in news if one.utube == utube)]
            locked += known
        if not locked:
            return 0
        self.look_at(store, locked)
        ready = f"SELECT utube FROM {self.heads}{self.by_key} WHERE utube {self.among(locked)} AND k0 IS NOT NULL"
        found = [utube for (utube,) in self.of.execute(store, ready, {"utubes": locked})]
        if changed := list(dict.fromkeys([*known, *found])):
            self.of.change(store, Statement(self.left_again(changed)), {"utubes": changed})
        if own:
            store.change(self.guessed([one.id for one in news if one.utube in locked]))
        return len(found)

    @abstractmethod
    def learn(self, store: Store[Any], news: Sequence[News]) -> int:
        """Look which tasks are the first of those utubes that are open, and delete their news. Returns how many.

        No head is left there that is empty: of which no task is known, and without any.
        """

    def _gather(self, store: Store[Any], news: Sequence[News]) -> None:
        """Leave one in place of many of a utube. It is newer than they are: who sees it sees what they told of."""
        there = self.there(store, news)
        if len(there) >= PILE:
            store.change(self.gone(sorted(there)))
            self.of.change(store, Statement(self.left(":utube")), {"utube": news[0].utube})


def _apart(news: Iterable[News]) -> list[list[News]]:
    """News by their utubes."""
    found: dict[Any, list[News]] = {}
    for one in news:
        found.setdefault(one.utube, []).append(one)
    return list(found.values())
