"""save() of an instance that was read earlier never moves a task, and never brings back one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakSet, ref

from django.db import connections
from django.db.backends.signals import connection_created

from xq.core.errors import NotFound

FOLLOWED = ("commit", "rollback", "close", "savepoint", "clean_savepoints", "savepoint_rollback", "savepoint_commit")


class Mark:
    """What was written within these savepoints of a transaction, and whether that was undone, once it is known."""

    def __init__(self, savepoints: Iterable[str]) -> None:
        self.savepoints = frozenset(savepoints)
        self.undone: bool | None = None

    def __deepcopy__(self, memo: object) -> Mark:
        """A copy of an instance hears how it ends as well. One that is loaded from a pickle does not."""
        return self


def _marks(connection: Any) -> WeakSet[Mark]:
    """The marks in the transaction of a connection, which has its own methods tell them how that ends.

    Not `on_commit`: the application's tests count what is there, and its hooks run, and fail, before the last one.
    """
    found: WeakSet[Mark] | None = vars(connection).get("_xq_marks")
    if found is not None:
        return found
    marks: WeakSet[Mark] = WeakSet()
    begun: list[str] = []  # the savepoints that are there, those that the application made by hand among them
    stood = {name: method for name, method in vars(connection).items() if name in FOLLOWED}  # a tool's
    kind: Any = type(connection)
    connection_of: Callable[[], Any] = ref(connection)

    def call(name: str, *given: Any) -> Any:
        return stood[name](*given) if name in stood else getattr(kind, name)(connection_of(), *given)

    def end(undone: bool) -> None:
        for mark in list(marks):
            mark.undone = undone
        marks.clear()
        begun.clear()

    def commit() -> None:
        call("commit")
        end(undone=False)

    def rollback() -> None:
        end(undone=True)
        call("rollback")

    def savepoint() -> str | None:
        made: str | None = call("savepoint")
        if made is not None:
            begun.append(made)
        return made

    def savepoint_rollback(savepoint: str) -> None:
        for mark in [mark for mark in marks if savepoint in mark.savepoints]:
            mark.undone = True
            marks.discard(mark)
        if savepoint in begun:
            del begun[begun.index(savepoint) + 1 :]
        call("savepoint_rollback", savepoint)

    def savepoint_commit(savepoint: str) -> None:
        if savepoint in begun:
            del begun[begun.index(savepoint) :]
        call("savepoint_commit", savepoint)

    def clean_savepoints() -> None:
        for mark in marks:  # from here on the names of those that are gone are given anew
            mark.savepoints &= {*begun, *connection_of().savepoint_ids}
        call("clean_savepoints")

    def close() -> None:
        end(undone=True)
        call("close")

    connection.commit, connection.rollback, connection.close = commit, rollback, close
    connection.savepoint, connection.clean_savepoints = savepoint, clean_savepoints
    connection.savepoint_rollback, connection.savepoint_commit = savepoint_rollback, savepoint_commit
    connection._xq_marks, connection._xq_savepoints = marks, begun
    return marks


def _follow(connection: Any, **others: Any) -> None:
    _marks(connection)


class Read(NamedTuple):
    """What an instance was when it was read or written last."""

    key: Any
    values: dict[str, Any]  # of the queue's fields, by attribute
    mark: Mark | None = None  # it was written in a transaction that may be undone
    before: Read | None = None  # what it was before that


def last_read(instance: Any) -> Read | None:
    read: Read | None = getattr(instance._state, "xq", None)
    while read is not None and read.mark is not None and read.mark.undone:
        read = read.before
    return read


def remember(instance: Any, names: Iterable[str], connection: Any = None) -> None:
    """From here on these attributes are as the database has them; of the others, what was read before.

    With the `connection` on which they were written.
    """
    before = last_read(instance)
    known = before.values if before is not None and before.key == instance.pk else {}
    held = instance.__dict__
    values = {**known, **{name: held[name] for name in names if name in held}}
    # By hand one may end a transaction so that nobody is told.
    if connection is None or not (connection.in_atomic_block and connection.commit_on_exit):
        instance._state.xq = Read(instance.pk, values)
        return
    marks = _marks(connection)
    left = {*connection._xq_savepoints, *(savepoint for savepoint in connection.savepoint_ids if savepoint is not None)}
    mark = Mark(left)
    marks.add(mark)
    instance._state.xq = Read(instance.pk, values, mark, _stays(before, mark.savepoints, left))


def _stays(read: Read | None, undone: Collection[str], left: Collection[str]) -> Read | None:
    """The last of what was read that stays when what was written within these savepoints is undone."""
    while read is not None and read.mark is not None:
        if read.mark.undone is False:
            return Read(read.key, read.values)
        within = read.mark.savepoints.intersection(left)
        if read.mark.undone is None and within != undone:
            return read._replace(before=_stays(read.before, within, left))
        read = read.before
    return read


def _seen(read: Read | None, values: Mapping[str, Any]) -> Read | None:
    """What was read with these values as well, which hold whatever of what was written is undone."""
    return read and read._replace(values={**read.values, **values}, before=_seen(read.before, values))


def guard(model: Any, ours: Sequence[str]) -> None:
    """Have save() of a model leave out those of `ours` (attribute names) that are as they were read.

    What the application has changed is written, and what it names in `update_fields`. Where the row is gone, since its
    task was finished, Django would insert it anew: save() raises NotFound.
    """
    from_db: Callable[..., Any] = model.from_db.__func__
    refresh_from_db, save_table, do_update = model.refresh_from_db, model._save_table, model._do_update

    def among(names: Iterable[str] | None) -> list[str]:
        return [name for name in ours if names is None or {name, _field(model, name).name} & {*names}]

    @wraps(from_db)
    def reading(cls: Any, *args: Any, **options: Any) -> Any:
        instance = from_db(cls, *args, **options)
        remember(instance, ours)
        return instance

    @wraps(refresh_from_db)
    def refreshing(self: Any, using: Any = None, fields: Any = None, **options: Any) -> None:
        named = None if fields is None else list(fields)
        read = last_read(self)
        refresh_from_db(self, using=using, fields=named, **options)
        names = among(named)
        if read is None or not _same_key(read.key, self.pk):
            remember(self, names)
            return
        # What was written and is read again may be undone. What differs is somebody else's, and never to be written.
        held = self.__dict__
        seen = {name: held[name] for name in names if name in held and not _is_as_read(self, name, read)}
        self._state.xq = _seen(read, seen)

    @wraps(save_table)  # and not of save_base(), within which handlers of post_save save the instance again, or fail
    def saving(
        self: Any,
        raw: bool = False,
        cls: Any = None,
        force_insert: Any = False,
        force_update: bool = False,
        using: Any = None,
        update_fields: Any = None,
    ) -> Any:
        updated = save_table(self, raw, cls, force_insert, force_update, using, update_fields)
        remember(self, among(update_fields), connections[using])
        return updated

    @wraps(do_update)
    def updating(
        self: Any, base_qs: Any, using: Any, pk_val: Any, values: Any, update_fields: Any, *others: Any
    ) -> Any:
        read = last_read(self)
        chosen = update_fields is not None and update_fields != _loaded(self)  # else by Django, of what is not deferred
        if read is None or not _same_key(read.key, pk_val) or self._state.db != using or chosen:
            return do_update(self, base_qs, using, pk_val, values, update_fields, *others)
        changed = [item for item in values if not _is_as_read(self, item[0].attname, read)]
        found = do_update(self, base_qs, using, pk_val, changed, None, *others)
        if not found:
            gone = ": it was finished, or its put was undone. save() would put it as it was, put() puts a new one"
            raise NotFound(type(self).__name__, pk_val, gone)
        return found

    # From its first savepoint on: a later look at a connection does not tell which the application has made by hand.
    connection_created.connect(_follow, dispatch_uid="xq")
    for connection in connections.all(initialized_only=True):
        _marks(connection)

    model.from_db = classmethod(reading)
    model.refresh_from_db, model._save_table, model._do_update = refreshing, saving, updating


def _field(model: Any, attribute: str) -> Any:
    return next(field for field in model._meta.concrete_fields if field.attname == attribute)


def _loaded(instance: Any) -> set[str] | None:
    """What save() of an instance with deferred fields writes when it is not told."""
    meta = instance._meta
    keys = getattr(meta, "pk_fields", None) or [meta.pk]
    writable = [field for field in meta.concrete_fields if not getattr(field, "generated", False)]
    deferred = {field.attname for field in writable if field.attname not in instance.__dict__}
    return {field.attname for field in meta.concrete_fields if field not in keys} - deferred if deferred else None


def _same_key(one: Any, other: Any) -> bool:
    return bool(one == other) or str(one) == str(other)  # a UUID, and its text


def _is_as_read(instance: Any, name: str, read: Read) -> bool:
    value = instance.__dict__.get(name)
    if hasattr(value, "resolve_expression"):  # `F("priority") + 1` is written each time
        return False
    return name in read.values and bool(read.values[name] == value)
