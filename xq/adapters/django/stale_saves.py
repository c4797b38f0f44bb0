"""Prevent save() on a stale instance from moving a task, and from inserting a deleted one again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from xq.core.errors import NotFound


def guard(model: Any, keys: Sequence[str], roles: Sequence[Any]) -> None:
    """Make a model's save() write one of these fields only if the application has changed or named it.

    An instance remembers in `_state.xq` the values that it read or wrote last, also of `keys`. save() raises NotFound
    if the row is gone, since its task was finished; Django would insert it again.
    """
    from_db: Callable[..., Any] = model.from_db.__func__
    refresh_from_db, save_base = model.refresh_from_db, model.save_base
    names = [*keys, *(field.attname for field in roles)]

    @wraps(from_db)
    def reading(cls: Any, *args: Any, **options: Any) -> Any:
        instance = from_db(cls, *args, **options)
        values = instance.__dict__
        instance._state.xq = {name: values[name] for name in names if name in values}
        return instance

    @wraps(refresh_from_db)
    def refreshing(self: Any, using: Any = None, fields: Any = None, **options: Any) -> None:
        named = None if fields is None else list(fields)
        refresh_from_db(self, using=using, fields=named, **options)
        _remember(self, named)

    @wraps(save_base)  # save() ends in it, also an application's save() that changes fields first
    def saving(self: Any, raw: bool = False, force_insert: Any = False, **options: Any) -> None:
        state, named, deferred = self._state, options.get("update_fields"), self.get_deferred_fields()
        # If fields are deferred, save() names all others.
        fewer = len(named or ()) + len(deferred) + len(keys) < len(self._meta.concrete_fields)
        chosen = named is not None and (fewer or not deferred)
        new = raw or force_insert or state.adding or state.db != options.get("using")
        outer = getattr(state, "xq_guards", False)  # a receiver of pre_save may save the instance, too
        state.xq_guards = not chosen and not new and bool(_known(self))
        try:
            save_base(self, raw=raw, force_insert=force_insert, **options)
        finally:
            state.xq_guards = outer

    model._xq_guarded = (keys, [field.attname for field in roles])
    model.from_db, model.refresh_from_db, model.save_base = classmethod(reading), refreshing, saving
    for field in roles:
        field.pre_save = _guarded(field, field.pre_save)


class _Itself:
    """The value in an UPDATE that leaves a column as it is. Not an F(), which Django 6 would read back."""

    def __init__(self, column: str) -> None:
        self.column = column

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        quoted = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias  # before Django 6.1
        return quoted(self.column), []


def _guarded(field: Any, pre_save: Callable[[Any, bool], Any]) -> Callable[[Any, bool], Any]:
    """Return a `pre_save` that writes a field only if it is changed, for example by a receiver of the signal."""

    @wraps(pre_save)
    def value(instance: Any, add: bool) -> Any:
        written = pre_save(instance, add)
        state: Any = getattr(instance, "_state", None)
        if not getattr(state, "xq_guards", False):
            return written
        if add:  # its UPDATE has found no row
            gone = (
                ": it was finished, or its put was undone. put() puts a new one, and "
                "save(force_insert=True) inserts what a transaction has undone"
            )
            raise NotFound(type(instance).__name__, instance.pk, gone)
        if hasattr(written, "resolve_expression"):  # `F("priority") + 1` is written each time
            return written
        name = field.attname
        unchanged = name in state.xq and state.xq[name] == instance.__dict__.get(name)
        return _Itself(field.column) if unchanged else written

    return value


@receiver(post_save, dispatch_uid="xq")  # the first one: the application's may save the instance again, or fail
def _written(instance: Any, update_fields: Any, **signal: Any) -> None:
    if hasattr(instance, "_xq_guarded"):
        _remember(instance, update_fields)


def _remember(instance: Any, names: Iterable[str] | None) -> None:
    """Remember the values in the key and in the guarded fields, or in some fields by their names."""
    (keys, guarded), values = instance._xq_guarded, instance.__dict__
    wanted = {*keys, *(guarded if names is None else {*guarded} & {*names})}
    instance._state.xq = {**_known(instance), **{name: values[name] for name in wanted & values.keys()}}


def _known(instance: Any) -> dict[str, Any]:
    """Return the values that an instance read or wrote last; none if it has another key by now."""
    known: dict[str, Any] = getattr(instance._state, "xq", {})
    keys, _ = instance._xq_guarded
    return known if all(str(known.get(name)) == str(instance.__dict__.get(name)) for name in keys) else {}
