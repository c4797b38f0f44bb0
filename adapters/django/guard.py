"""Keep save() of an instance that was read earlier from moving a task, and from inserting one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from xq.core.errors import NotFound


class Read(NamedTuple):
    """A snapshot of an instance: its key and the queue's fields as it last read or wrote them."""

    key: Any
    values: dict[str, Any]  # by attribute


def remember(instance: Any, names: Iterable[str]) -> None:
    """Take these attributes into the snapshot. Of the same row, it keeps the others as they were."""
    before: Read | None = getattr(instance._state, "xq", None)
    known = before.values if before is not None and _same_key(before.key, instance.pk) else {}
    held = instance.__dict__
    instance._state.xq = Read(instance.pk, {**known, **{name: held[name] for name in names if name in held}})


def guard(model: Any, ours: Sequence[str]) -> None:
    """Have save() of a model leave out those of `ours` (attribute names) that equal the snapshot.

    What the application has changed is written, and what it names in `update_fields`. Where the row is gone, since its
    task was finished, Django would insert it anew: save() raises NotFound. No rollback changes a snapshot.
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
        refresh_from_db(self, using=using, fields=named, **options)
        remember(self, among(named))

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
        remember(self, among(update_fields))
        return updated

    @wraps(do_update)
    def updating(
        self: Any, base_qs: Any, using: Any, pk_val: Any, values: Any, update_fields: Any, *others: Any
    ) -> Any:
        read: Read | None = getattr(self._state, "xq", None)
        chosen = update_fields is not None and update_fields != _loaded(self)  # else by Django, of what is not deferred
        if read is None or not _same_key(read.key, pk_val) or self._state.db != using or chosen:
            return do_update(self, base_qs, using, pk_val, values, update_fields, *others)
        changed = [item for item in values if not _is_as_read(self, item[0].attname, read)]
        found = do_update(self, base_qs, using, pk_val, changed, None, *others)
        if not found:
            gone = (
                ": it was finished, or its put was undone. put() puts a new one, and "
                "save(force_insert=True) inserts what a transaction has undone"
            )
            raise NotFound(type(self).__name__, pk_val, gone)
        return found

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
