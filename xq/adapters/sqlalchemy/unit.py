"""A session's unit of work: what it inserts is put with all features, and it moves no task by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.orm import attributes

from xq.core.errors import BadType, BadValue, Duplicate, NotFound, shown
from xq.core.kinds import Field
from xq.core.machine import LEFT, MANAGED, READY, TAKEN
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.core.words import alike

INSTEAD: Final = ("ack", "release", "bury", "dig", "restart")  # the calls that move a task as an application would


class InstanceRules:
    """What a queue does when sessions insert, change or merge instances of its class."""

    def __init__(self, store: Any) -> None:
        self.store, self.parts = store, store.model.xq.parts
        self.tasks, self.machine, self.executor = self.parts.tasks, self.parts.definition.machine, self.parts.executor
        self.roles: Mapping[str, Field] = self.tasks.table.roles
        self.letters = {word: letter for letter, word in self.parts.definition.words.items()}
        self.alike = alike(self.letters)
        self.unique = self.machine.single
        self.own = [field.name for field in self.tasks.table.own.values()]
        # By `Unit.put`: the call, its trace, and the connection that it has joined.
        self.asked: WeakKeyDictionary[Any, tuple[Any, str | None, Any]] = WeakKeyDictionary()
        # What puts wrote for their options: it is not the application's own where they were rolled back.
        self.by_option: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._entered: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # the states of the tasks of a flush
        for role in MANAGED & self.roles.keys():
            name = self.roles[role].name
            for event in ("set", "remove"):
                sa.event.listen(getattr(store.model, name), event, self._refusing(role), propagate=True)
            prop: Any = store.mapper.attrs[name]
            merging = {"__slots__": (), "inherit_cache": True, "merge": self._merging(type(prop).merge)}
            prop.__class__ = type(type(prop).__name__, (type(prop),), merging)
        if self.machine.settings.retval == "model":
            self.tasks.read, self.tasks.read_all = self._reading(self.tasks.read, self.tasks.read_all)
        sa.event.listen(store.mapper, "before_insert", self._put, propagate=True)
        sa.event.listen(store.mapper, "before_update", self._updating, propagate=True)
        for event in ("after_insert", "after_update"):
            sa.event.listen(store.mapper, event, self._after, propagate=True)

    def _reading(self, read: Callable[..., Any], read_all: Callable[..., list[Any]]) -> Any:
        """Return functions that read tasks as these do, and return the instances of the session that a call joins."""

        def given(made: Any) -> Any:
            if (unit := self.store.unit) is None:
                return made
            return list(map(unit.present, made)) if type(made) is list else unit.present(made)

        return [lambda rows, token=None, read=each: given(read(rows, token)) for each in (read, read_all)]

    def _letter(self, word: Any) -> str | None:
        """Return the state that a status means; None if it is not one of the queue's."""
        try:
            return self.letters.get(self.roles["status"].to_database(word))
        except Exception:  # an Enum has no such member
            return None

    def _is_foreign(self, word: Any) -> bool:
        """Return whether a status is the application's word: that of no state, nor spelt like one."""
        try:
            word = self.roles["status"].to_database(word)
        except Exception:  # the column's type does not take it, so the word is refused
            return False
        return word is None or str(word).strip().casefold() not in self.alike

    def state_of(self, task: Any) -> str | None:
        """Return the state that an instance was read in; None if its row is no task."""
        name = self.roles["status"].name
        word = getattr(task, name)
        return self._letter(sa.inspect(task).committed_state.get(name, word))

    def word(self, letter: str) -> Any:
        """Return the attribute's value for a state."""
        word, read = self.parts.definition.words[letter], self.roles["status"].from_database
        return read(word) if read else word

    def _refusing(self, role: str) -> Callable[..., None]:
        """Return what refuses a new value of an attribute, unless the row is new or no task."""
        name, status = self.roles[role].name, self.roles["status"].name

        def refuse(task: Any, value: Any, *_: object) -> None:
            # Also the same value: it may be old, and would not be written.
            if (state := sa.inspect(task)).key is None:
                return
            new, old, event = self._letter(value) if role == "status" else None, None, ""
            # A coroutine cannot load it here: a row in an AsyncSession counts as a task.
            if status in state.dict or state.async_session is None:
                if (old := self.state_of(task)) is None:
                    return
                event = "" if new is None else self.machine.usual_event(old, new)
            leaves = role == "status" and new is None and self._is_foreign(value)
            if leaves and old != TAKEN:
                return
            known = ("ack", "cancel", "kill") if leaves else INSTEAD
            calls = [call for call in known if (event not in INSTEAD or call == event) and self.machine.sources(call)]
            queue = f"{self.store.name}.xq" if state.async_session is None else f"await {self.store.name}.xq.aio"
            raise BadValue(
                f"{name!r} is the queue's {role}, which only the queue writes in a task: in place of {shown(value)} "
                f"call {' or '.join(f'{queue}.{call}(task, on=session)' for call in calls)}"
            )

        return refuse

    def _merging(self, merge: Callable[..., None]) -> Callable[..., None]:
        """Return an attribute's merge(), which leaves a row as the session has just read it."""

        def merging(prop: Any, session: Any, source: Any, values: Any, merged: Any, other: Any, *load: Any) -> None:
            if not load[0] or source.key is merged.key is None:
                merge(prop, session, source, values, merged, other, *load)
            elif merged.key is None:
                gone = ": its row was deleted; put() puts a new one"
                raise NotFound(self.store.name, self.tasks.app_key(source.key[1]), gone)

        return merging

    # what a flush puts

    def _updating(self, mapper: object, connection: sa.Connection, task: Any) -> None:
        """Put a row that was no task, as its new status says, or empty a row that leaves the queue.

        Raises BadValue if the first is a task by now, or the other one is taken.
        """
        state, columns, name = sa.inspect(task), self.store.mapper.columns, self.roles["status"].name
        added = state.attrs[name].history.added
        if not added or isinstance(added[0], sa.ClauseElement):
            return
        key = zip(self.store.mapper.primary_key, state.identity, strict=True)
        row = sa.select(columns[name]).where(*(column == value for column, value in key)).with_for_update()
        old = self._letter(word := connection.scalar(row))
        if self._letter(added[0]) is None:
            if old == TAKEN:
                raise BadValue(f"{shown(task)} is taken by now: cancel() or kill() it before it is {shown(added[0])}")
            for field, value in [(self.roles[role], LEFT[role]) for role in LEFT if old and role in self.roles]:
                state.dict[field.name] = value
                attributes.flag_modified(task, field.name)
            return
        if old is not None:
            raise BadValue(
                f"{shown(task)} has become a task since the session read it, with {shown(word)} in {name!r}, and is "
                f"not put again by {shown(added[0])}: roll back, and read it anew"
            )
        self._put(mapper, connection, task)

    def _put(self, mapper: object, connection: sa.Connection, task: Any) -> None:
        """Write what put() writes into an instance that is flushed. Raises BadValue and BadType."""
        state = sa.inspect(task)
        values = {name: value for name, value in state.dict.items() if not isinstance(value, sa.ClauseElement)}
        asked, trace, joined = self.asked.get(state, (None, None, None))
        if asked is None:
            if self.roles["status"].name in state.dict.keys() - values or not self._is_ready(values):
                return
            asked, trace = self.parts.inserts.plain, self._trace(values)
        # Not before the flush, which sets keys of parents, and calls the application's listeners.
        with nullcontext() if joined is connection else self.store.joining(connection):
            written = self.parts.inserts.written(asked, values)
        engine = connection.engine
        if self.unique and not sa.event.contains(engine, "handle_error", self._failed):
            sa.event.listen(engine, "handle_error", self._failed)
        if trace is not None and "trace" in self.roles:
            written[self.roles["trace"]] = trace
        for field, value in written.items():
            state.dict[field.name] = field.from_database(value) if field.from_database and value is not None else value
            attributes.flag_modified(task, field.name)
        for name in self.own if state.key is None else ():
            state.dict.setdefault(name, None)  # else it would be read by a query
        self._entered[state] = asked.transition.target

    def _is_ready(self, values: Mapping[str, Any]) -> bool:
        """Return whether an instance is a ready task. Without one of the queue's words a row may be none."""
        name = self.roles["status"].name
        column = self.store.mapper.columns[name]
        default = self.store.declared_defaults().get(name, getattr(column.server_default, "arg", None))
        word = values[name] if name in values else default() if callable(default) else default
        letter = self._letter(word)
        if not (letter or word in (None, default) or isinstance(column.type, sa.Enum) or self._is_foreign(word)):
            words = ", ".join(map(str, self.letters))
            raise BadValue(f"{shown(word)} is no status of {self.store.name}, but spelt like one: there are {words}")
        if letter != READY and letter in self.machine.pending:
            by = "take()" if letter == TAKEN else "put(task, on=session, delay=...)"
            raise BadValue(f"a task has {shown(word)} in {name!r} by {by}, which also says when that ends")
        return letter == READY

    def _trace(self, values: Mapping[str, Any]) -> str | None:
        around, found = self.executor.observers.around_put, list[str | None]([None])
        if around is not None and "trace" in self.roles and values.get(self.roles["trace"].name) is None:
            around(lambda trace: found.append(trace) or [], 1)  # type: ignore[func-returns-value]
        return found[-1]

    def _after(self, mapper: object, connection: sa.Connection, task: Any) -> None:
        entered, inserts = self._entered.pop(sa.inspect(task), None), self.parts.inserts
        if entered is not None and inserts.looks_after:
            key = self.store.mapper.primary_key_from_instance(task)
            with self.store.joining(connection):
                inserts.inserted(self.tasks.identify(key[0] if len(key) == 1 else tuple(key))[0], entered)

    def _failed(self, context: Any) -> Duplicate | None:
        """Return what is raised in place of the database's refusal of a unique value."""
        binding = self.parts.inserts.executor.binding
        refused = isinstance(context.sqlalchemy_exception, exc.IntegrityError) and binding
        is_mine = refused and binding.dialect.moves.is_duplicate(str(context.original_exception))
        return Duplicate(self.store.name) if is_mine else None


@contextmanager
def _savepoint(session: Any) -> Iterator[None]:
    """Run the block in a savepoint, at whose end SQLAlchemy would call the application's listeners to commits."""
    events = session.dispatch
    kept = events.before_commit, events.after_commit
    events.before_commit = events.after_commit = lambda session: None
    try:
        with session.begin_nested():
            yield
    finally:
        events.before_commit, events.after_commit = kept


class Unit:
    """The session whose transaction a call joins. Implements `xq.core.connections.Unit`."""

    def __init__(self, store: Any, session: orm.Session) -> None:
        self.store, self.session = store, session
        self._flushed = False

    def flush(self) -> None:
        """Write what is pending, before the call's first statement."""
        if not self._flushed:
            self._flushed = True
            self.session.flush()

    def put(self, tasks: Sequence[Any], asked: Any, trace: str | None) -> Sequence[Any] | None:
        guard = self.store.guarded
        given = [sa.inspect(task) for task in tasks if isinstance(task, self.store.model)]
        if not given or guard.machine.settings.retval != "model":
            return None
        if len(given) < len(tasks):
            raise BadType("put_many(..., on=session) takes instances or mappings, not both at once")
        options = [guard.roles[name].name for name in asked.seconds if name in guard.roles]
        rows = []  # no tasks yet: their new status puts them
        for state, task in zip(given, tasks, strict=True):
            if state.deleted or (state.persistent and guard.state_of(task) is not None):
                raise BadValue(f"{shown(task)} is a task already: put takes a new instance, or a row that is no task")
            if state.persistent:
                rows.append(task)
            if state.detached:
                orm.make_transient(task)
            if state.key is None:
                for name, value in guard.by_option.pop(state, {}).items():
                    if state.dict.get(name) == value:
                        attributes.set_attribute(task, name, None)
                for name in options:
                    if state.dict.get(name) is not None:
                        raise BadValue(f"{name!r} stands both in the task and in the option: give one of them")
        guard.asked.update(dict.fromkeys(given, (asked, trace, self.store._joined.get().outer)))
        self._flushed = True
        try:
            with _savepoint(self.session):  # flushes what is pending
                self.session.add_all(tasks)
                for task in rows:
                    setattr(task, guard.roles["status"].name, guard.word(asked.transition.target))
        finally:
            for state in given:
                guard.asked.pop(state, None)
                guard.by_option[state] = {name: state.dict.get(name) for name in options}
        return tasks

    def present(self, read: Any) -> Any:
        """Return the session's instance of a task that was read, with its values and the token of its take."""
        state: Any = sa.inspect(read)
        if (found := self.session.identity_map.get(state.key)) is None:
            self.session.add(read)
            return read
        for name, value in state.dict.items():
            if name in state.mapper.column_attrs:
                attributes.set_committed_value(found, name, value)
        of_found: Any = sa.inspect(found)
        of_found.manager.dispatch.refresh(of_found, None, [*of_found.mapper.column_attrs.keys()])
        token, owner = getattr(read, TOKEN_ATTRIBUTE, None), state.dict[self.store.guarded.roles["owner"].name]
        if token is not None or getattr(found, TOKEN_ATTRIBUTE, None) != owner:
            setattr(found, TOKEN_ATTRIBUTE, token)
        return found

    def gone(self, task: Any) -> None:
        if task in self.session:
            self.session.expunge(task)  # its values can be read after the commit
