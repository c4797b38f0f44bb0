"""Prevent save() of a stale instance from moving a task, and from inserting a deleted one again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from xq.core.errors import NotFound


class Read(NamedTuple):
    """A snapshot of an instance: its key and the queue's fields, as it last read or wrote them."""

    key: Any
    values: dict[str, Any]  # by attribute


def remember(instance: Any, names: Iterable[str]) -> None:
    """Update the snapshot with these attributes. It keeps its other values if the key is the same."""
    before: Read | None = getattr(instance._state, "xq", None)
    known = before.values if before is not None and _same_key(before.key, instance.pk) else {}
    attributes = instance.__dict__
    instance._state.xq = Read(
        instance.pk, {**known, **{name: attributes[name] for name in names if name in attributes}}
    )


def guard(model: Any, guarded: Sequence[str]) -> None:
    """Make save() of a model leave out those of `guarded` (attribute names) that equal the snapshot.

    save() writes fields that the application has changed, and those in `update_fields`. It raises NotFound if the row
    is gone, since its task was finished; Django would insert it again. A rollback does not change a snapshot.
    """
    from_db: Callable[..., Any] = model.from_db.__func__
    refresh_from_db, save_table, do_update = model.refresh_from_db, model._save_table, model._do_update

    def among(names: Iterable[str] | None) -> list[str]:
        return [name for name in guarded if names is None or {name, _field(model, name).name} & {*names}]

    @wraps(from_db)
    def reading(cls: Any, *args: Any, **options: Any) -> Any:
        instance = from_db(cls, *args, **options)
        remember(instance, guarded)
        return instance

    @wraps(refresh_from_db)
    def refreshing(self: Any, using: Any = None, fields: Any = None, **options: Any) -> None:
        named = None if fields is None else list(fields)
        refresh_from_db(self, using=using, fields=named, **options)
        remember(self, among(named))

    # not save_base(): handlers of post_save run within that, and may save the instance again, or fail
    @wraps(save_table)
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
        # else Django has chosen the fields that are not deferred
        chosen = update_fields is not None and update_fields != _loaded(self)
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
    """Return the fields that save() writes by itself for an instance with deferred fields."""
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
