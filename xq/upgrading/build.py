"""Build a queue from a model, features and dialects: what each ORM's `upgrade` shares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from xq.api import Queue
from xq.core.clock import Clock
from xq.core.compile import puts
from xq.core.connections import Store
from xq.core.errors import ConfigurationError, shown
from xq.core.kinds import Field, T, Table, own_name
from xq.core.machine import Feature, Machine, seconds
from xq.core.schema import (
    OWN,
    asks_for_own,
    check_key,
    check_that_ack_keeps,
    default_id,
    key_of,
    offered,
    roles_of,
    statuses_of,
    stored_words,
    tubes_of,
    used_by,
    wanted,
)
from xq.core.words import Wording
from xq.database.transactions import retried
from xq.engine.binding import Definition
from xq.engine.executor import Executor
from xq.sql.dialects import DIALECTS
from xq.sql.installer.findings import DURATIONS, PUTS
from xq.sql.installer.findings import OWN as BROUGHT
from xq.upgrading.registry import catalogue, compose
from xq.upgrading.verbs import QueueAttribute, attach

C = TypeVar("C", bound=type[Any])
P = ParamSpec("P")

# name -> when it fires, what it puts, and tz and the options of put
Schedules = Mapping[str, tuple[object, object] | tuple[object, object, Mapping[str, Any]]]


def as_decorator(upgrade: Callable[Concatenate[type[Any], P], object]) -> Callable[P, Callable[[C], C]]:
    """Return an ORM's `upgrade` as a class decorator."""

    def queue(*args: P.args, **options: P.kwargs) -> Callable[[C], C]:
        """Upgrade a model by a class decorator: `@xq.queue(fields={"status": "status"}, features={"keep": True})`.

        It takes the arguments of `upgrade` and raises its errors. A model that inherits from its ORM's abstract model
        needs no `fields`.
        """
        if args and isinstance(args[0], type):
            raise ConfigurationError(
                f"@queue stands above {args[0].__name__} with its arguments: "
                "write @queue(fields={'status': ...}, features={...})"
            )

        def decorate(model: C) -> C:
            upgrade(model, *args, **options)
            return model

        return decorate

    return queue


def build(
    store: Store[T],
    fields: Mapping[str, Any] | None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
    detached: bool = False,
    wording: Wording | None = None,
    schedules: Schedules | None = None,
    woken: Callable[[], None] = lambda: None,
    kind: type[Queue[Any]] = Queue,
) -> Queue[T]:
    """Return a queue on any store: each ORM's `upgrade` calls this. Raises ConfigurationError.

    With `detached`, nothing is attached to the model, and the queue is not maintained. `wording` replaces words in
    the messages. A waiting call calls `woken` whenever it wakes; an exception there ends the call. `kind` is the class
    of the queue.
    """
    fields, features = _ordered({} if fields is None else fields, {} if features is None else features)
    if not detached and isinstance(vars(store.model).get("xq"), QueueAttribute):
        raise ConfigurationError(f"{store.name} is a queue already: change the features where it is upgraded")
    if clock is not None and not isinstance(getattr(clock, "now", None), (int, float)):
        raise ConfigurationError(f"clock has a number of seconds as .now, as xq.testing.Clock; {shown(clock)} has none")
    chosen = compose(features, default_id(key_of(store)))
    mapped = _mapped(store, fields, chosen, tube_stats, detached)
    words = statuses_of({} if statuses is None else statuses)
    table = Table(store.table, store.schema, store.fields, key_of(store), mapped)
    if not detached:
        store.check_roles(table.roles)
    tubes = tubes_of(table, () if tube_stats is None else tube_stats)
    definition = _define(store, table, chosen, words, tubes, wording, schedules, features)
    if not detached:
        check_that_ack_keeps(definition.machine, words)
    queue = kind(store, definition, clock, woken)
    if worker is not None:
        queue.worker(worker, workers=workers)
    if detached:
        queue.parts.maintenance.stop_maintenance()
    else:
        attach(store, queue, methods)
        store.with_the_table(partial(_create_by, queue.parts.executor), partial(queue.uninstall, keep_columns=True))
        store.guard(queue.roles.values())
    return queue


def arguments_of(
    record: Mapping[str, Any], field: Callable[[str], str] = str, of: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of `upgrade` for an installed definition, as a database records it, or one as `written`.

    `of` has the features of the application, some of which may be its own. Raises ConfigurationError if it lacks one.
    """
    own = {} if of is None else record.get(BROUGHT, {})
    if lost := own.keys() - (of or {}).keys():
        raise ConfigurationError(
            f"the queue was installed with features of its own program, {', '.join(sorted(lost))}, so there is no way "
            "back without them: leave them in features= as long as there are migrations that name them"
        )
    features = {**record["features"], **record.get(DURATIONS, {}), **{name: (of or {})[name] for name in own}}
    if "keep" in record.get(DURATIONS, {}):  # a number might be meant as days
        features["keep"] = timedelta(seconds=record[DURATIONS]["keep"])
    if features.get("id") == "callable":  # the function that makes keys is known to its own program only
        features["id"] = made if callable(made := (of or {}).get("id")) else "required"
    return {
        "fields": {role: field(column) for role, column in record["roles"].items()},
        "features": features,
        "statuses": record.get("statuses") and {**record["statuses"], **record.get("states", {})},
        "tube_stats": record.get("tube_stats"),
    }


def written(definition: Definition) -> dict[str, Any]:
    """Return a definition as plain data for a migration, by the names of fields. `arguments_of` reads it.

    It lacks the digest of the transitions, which a newer xq may change.
    """
    record = json.loads(json.dumps(definition.structure, default=str))
    statuses = record["statuses"] and {**record["statuses"], **record["states"]}
    parts = {"roles": definition.arguments["fields"], "features": record["features"], "statuses": statuses}
    parts |= {part: record.get(part) for part in ("tube_stats", DURATIONS, BROUGHT)}
    return {name: part for name, part in parts.items() if part}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return in words how two definitions, as `written`, differ; "" if only durations do."""
    spoken: list[str] = []
    for part, what in {"features": "", "roles": "role ", "statuses": "status ", BROUGHT: "definition of "}.items():
        there, here = old.get(part, {}), new.get(part, {})
        names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
        spoken += [f"{what}{name}: {_said(there.get(name))} -> {_said(here.get(name))}" for name in names]
    there, here = old.get("tube_stats", []), new.get("tube_stats", [])
    return "; ".join(spoken + [f"tube_stats: {there} -> {here}"] * (there != here))


def _said(value: object) -> str:
    return "off" if value is None else "on" if value is True else str(value)


def _create_by(executor: Executor, create: Callable[[], None]) -> None:
    """Create the table by `create`, a call of the ORM, and install; in any number of processes at once."""
    binding = executor.open(installed=False)
    binding.installation.ddl()  # raises, before the table is there, what the database cannot have
    with binding.dialect.installer.creating(executor.store):
        create()
    retried(executor.store, binding.installation.install)
    executor.close()


def _ordered(fields: Any, features: Any) -> tuple[Any, Any]:
    """Return `fields` and `features` with the feature that a minus before the priority's field means."""
    named = fields.get("priority") if isinstance(fields, Mapping) and isinstance(features, Mapping) else None
    if not (isinstance(named, str) and named.startswith("-")):
        return fields, features
    return {**fields, "priority": named[1:]}, {**features, "priority": "highest"}


def _mapped(
    store: Store[Any], fields: Mapping[str, Any], chosen: Sequence[Feature], tube_stats: object, detached: bool
) -> dict[str, Field]:
    """Return the roles and their fields: by `fields`, by the ORM's base, and new fields, which the model gets."""
    mapped, used = roles_of(store, fields, chosen), used_by(chosen, fields)
    if store.offers and not detached:  # a detached queue has a recorded definition with all its roles
        tubes = isinstance(tube_stats, (list, tuple, set)) and tube_stats  # a model's length is a query
        asked = [role for role, named in fields.items() if asks_for_own(role, named)]
        used = {*used, *asked, "status", *(["tube"] if tubes else [])}
        mapped |= roles_of(store, offered(store, mapped, used))
    own = [role for role in wanted(fields, chosen) if role not in mapped]
    if not own:
        return mapped
    store.bring({own_name(role): OWN[role] for role in own})
    names = {role: field.name for role, field in mapped.items()}
    return roles_of(store, names | {role: own_name(role) for role in own}, chosen)


def _define(
    store: Store[Any],
    table: Table,
    chosen: Sequence[Feature],
    statuses: Mapping[str, str | int],
    tube_stats: tuple[str, ...],
    wording: Wording | None,
    schedules: Schedules | None,
    features: Mapping[str, Any],
) -> Definition:
    for feature in chosen:
        for role in feature.needs:
            if role not in table.roles:
                raise ConfigurationError(
                    f"feature {feature.name!r} needs the role {shown(role)}: map it to a field of {store.name}, "
                    f"as in fields={{{shown(role)}: ...}} (mapped: {', '.join(table.roles)})"
                )
    machine = Machine(chosen, table.roles)
    own = {f.name: _digest(_brought_by(f)) for f in features.values() if isinstance(f, Feature)}
    given = {f.name: (f, features.get(f.name)) for f in chosen}
    timed = {name: seconds(on) for name, (_, on) in given.items() if isinstance(on, timedelta)}
    timed |= {name: on for name, (f, on) in given.items() if f.structure is True and type(on) in (int, float)}
    timed |= {f.name: f.given for f in chosen if f.given is not None}
    check_key(table, machine.settings.id)
    words = stored_words(machine, table.roles["status"], statuses)
    named = {letter: word for letter, word in statuses.items() if letter != word}
    return Definition(
        machine=machine,
        table=table,
        words=words,
        wording=wording or getattr(store.model, "xq_wording", None) or Wording(named),
        tube_stats=tube_stats,
        structure={
            "roles": {role: field.column for role, field in table.roles.items()},
            "statuses": named,
            "tube_stats": list(tube_stats),
            "features": {f.name: f.structure for f in chosen if f.structure is not None},
            "states": {state: words[state] for state in machine.states},
            "transitions": _digest(machine.structure),
            DURATIONS: timed,
            PUTS: {options: _digest(text) for options, text in puts(machine, table, words).items()},
            **({BROUGHT: own} if own else {}),
        },
        features=features,
        catalogue=catalogue,
        dialects=DIALECTS,
        schedules=schedules,
    )


def _digest(what: object) -> str:
    return hashlib.sha256(str(what).encode()).hexdigest()[:12]


def _brought_by(feature: Feature) -> tuple[object, ...]:
    """Return the parts of a feature that must be equal in every process."""
    timers = [replace(timer, default=None) for timer in feature.timers]  # a duration may differ between processes
    return feature.transitions, timers, feature.detours, feature.columns
