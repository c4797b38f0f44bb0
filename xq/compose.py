"""upgrade(): where features, dialects and models meet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, product
from typing import Any, Final, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from xq.adapters.databases import DIALECTS
from xq.adapters.peewee import PeeweeStore
from xq.clock import Clock
from xq.database import Definition
from xq.errors import ConfigurationError, Conflict
from xq.features import FEATURES
from xq.handle import Queue
from xq.machine import ABSENT, ELSEWHERE, MANAGED, Feature, Machine
from xq.store import Field, Store, Table
from xq.tasks import Catalogue

T = TypeVar("T")

VERBS: Final = (
    "put",
    "take",
    "ack",
    "release",
    "bury",
    "dig",
    "kick",
    "plow",
    "kill",
    "touch",
    "stats",
    "queue_stats",
)

TIMES: Final = ("double", "bigint", "datetime")
NUMBERS: Final = ("integer", "bigint", "float", "double", "auto", "bigauto", "other")
WORDS: Final = ("text", "integer", "bigint")

# role -> the kinds of field that can hold it
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "status": WORDS,
    "runat": TIMES,
    "deadline": TIMES,
    "priority": NUMBERS,
    "tube": ("text",),
    "owner": ("text",),
    "attempts": ("integer", "bigint"),
    "ttl": ("float", "double"),
    "ttr": ("float", "double"),
    "utube": WORDS,
    "unique": (*WORDS, "uuid"),
    "error": ("text",),
}
NEEDED: Final = {  # where the first choice of the kinds above needs a word of advice
    "runat": "a DoubleField or BigIntegerField (seconds since 1970) or a DateTimeField (UTC); "
    "a FloatField is single precision, which moves a timestamp by minutes",
    "status": "a CharField, a TextField, or an IntegerField with statuses=",
}
OWNER_LENGTH: Final = 64  # of a mark: the session's uuid, a time, a process and a number

STRATEGIES: Final[Mapping[str, str]] = {
    "auto": "auto_increment",
    "bigauto": "auto_increment",
    "bigint": "time64",
    "uuid": "uuid",
    "text": "uuid",
}
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "auto_increment": ("auto", "bigauto"),
    "time64": ("bigint", "bigauto"),
    "uuid": ("uuid", "text"),
}


def upgrade(
    model: type[T],
    fields: Mapping[str, Any],
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Queue[T]:
    """Give a model the power of a queue. Touches no database: it may stand at import time.

    `fields` maps roles to fields of the model, by name or as the field: status is required, the features say
    which others. `features` maps the names of features to their values. `statuses` maps the letters of the states
    to what the application stores in the status field. `tube_stats` names the tubes that are counted one by one.
    `methods` puts the verbs on the model (a sequence: only these). `clock` is for tests.

    The model's only_save_dirty is set, so that save() writes what the application changed and never moves a task
    back. Raises ConfigurationError, which says what does not fit.
    """
    store: Store[T] = PeeweeStore(model)  # type: ignore[type-var]
    return build(
        store,
        fields,
        {} if features is None else features,
        {} if statuses is None else statuses,
        () if tube_stats is None else tube_stats,
        methods,
        clock,
    )


def queue(
    fields: Mapping[str, Any],
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Callable[[type[T]], type[T]]:
    """upgrade, as a class decorator: `@xq.queue(fields={"status": "status"}, features={"keep": True})`."""

    def decorate(model: type[T]) -> type[T]:
        upgrade(model, fields, features, statuses=statuses, tube_stats=tube_stats, methods=methods, clock=clock)
        return model

    return decorate


def build(
    store: Store[T],
    fields: Mapping[str, Any],
    features: Mapping[str, Any],
    statuses: Mapping[str, str | int],
    tube_stats: Sequence[str],
    methods: bool | Sequence[str],
    clock: Clock | None,
) -> Queue[T]:
    """A queue on any store: what `upgrade` does for one ORM."""
    if isinstance(vars(store.model).get("xq"), Handle):
        raise ConfigurationError(f"{store.name} is a queue already: its xq.reconfigure(features=...) changes it")
    table = Table(store.table, store.schema, store.fields, _key(store), _roles(store, fields))
    definition = _define(store, table, statuses, _tubes(table, tube_stats), features)
    handle = Queue(store, definition, clock)
    _attach(store, handle, methods)
    store.with_the_table(handle.install, handle.uninstall)
    return handle


def _define(
    store: Store[Any],
    table: Table,
    statuses: Mapping[str, str | int],
    tube_stats: tuple[str, ...],
    features: Mapping[str, Any],
) -> Definition:
    chosen = compose(features, default_id=_default_id(table))
    _fits_the_key(table, chosen)
    for feature in chosen:
        for role in feature.needs:
            if role not in table.roles:
                raise ConfigurationError(
                    f"feature {feature.name!r} needs the role {role!r}: map it to a field of {store.name}, "
                    f"as in fields={{{role!r}: ...}} ({', '.join(table.roles)} are mapped)"
                )
    machine = Machine(chosen, table.roles)
    words = _words(machine, table.roles["status"], statuses)
    return Definition(
        machine=machine,
        table=table,
        words=words,
        tube_stats=tube_stats,
        structure={
            "roles": {role: field.column for role, field in table.roles.items()},
            "statuses": {letter: word for letter, word in statuses.items() if letter != word},
            "tube_stats": sorted(tube_stats),
            "features": {f.name: f.structure for f in chosen if f.structure is not None},
        },
        catalogue=catalogue(),
        dialects=DIALECTS,
        redefine=partial(_define, store, table, statuses, tube_stats),
    )


# features


@cache
def _model_of_features() -> Any:
    """The pydantic model of features=: the annotation of each feature's argument is its validator."""
    fields: dict[str, Any] = {}
    for name, feature in FEATURES.items():
        hint, *_ = get_type_hints(feature, include_extras=True).values()
        fields[name] = (hint | Feature | None, None)
    config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return create_model("Features", __config__=config, **fields)


def compose(features: Mapping[str, Any], default_id: str = "required") -> list[Feature]:
    """The features that are on, as data. A value that is a Feature is used as it is; False and None are off.

    Raises ConfigurationError, naming the feature, what it takes and what was given.
    """
    if not isinstance(features, Mapping):
        raise ConfigurationError(f"features is a mapping of names to values, not {features!r}")
    own = {name: value for name, value in features.items() if isinstance(value, Feature)}
    for name in features:
        if name not in FEATURES and name not in own:
            raise ConfigurationError(
                f"there is no feature {name!r}: there are {', '.join(FEATURES)}, or a value that is an xq.Feature"
            )
    on = {
        name: value for name, value in features.items() if name not in own and value is not None and value is not False
    }
    if "id" not in own and not any("key" in feature.fill for feature in own.values()):
        on = {"id": default_id} | on
    try:
        _model_of_features()(**on)
    except ValidationError as error:
        raise ConfigurationError(_told(error, on)) from error
    return [FEATURES[name](value) for name, value in on.items()] + list(own.values())


def _told(error: ValidationError, given: Mapping[str, Any]) -> str:
    name = str(error.errors()[0]["loc"][0])
    wants = "; ".join(dict.fromkeys(problem["msg"] for problem in error.errors() if "Feature" not in problem["msg"]))
    return f"feature {name!r} does not take {given[name]!r}: {wants.replace('a valid boolean', 'True')}"


@cache
def catalogue() -> Catalogue:
    """Which features bring which events and options: what is missing when each is left out.

    Left out of nothing but what it requires, and of all that go together, since some options need two.
    """
    features = {name: make() for name, make in FEATURES.items()}
    events: dict[str, list[str]] = {}
    options: dict[tuple[str, str], list[str]] = {}
    for name, feature in features.items():
        alone = [features[required] for required in feature.requires]
        for others in (alone, *_companies(features, feature)):
            with_it, without = Machine([feature, *others], ROLES), Machine(others, ROLES)
            for event in with_it.events:
                if event not in without.events:
                    events.setdefault(event, []).append(name)
            for event, option in sorted(_options(with_it) - _options(without)):
                if others is alone or event in without.events:
                    options.setdefault((event, option), []).append(name)
    return Catalogue(_each_once(events), _each_once(options))


def _companies(features: Mapping[str, Feature], feature: Feature) -> list[list[Feature]]:
    """The largest sets of features that go with one, and without it."""
    clashes = [pair for pair in combinations(features, 2) if _clash(features[pair[0]], features[pair[1]])]
    found = []
    for left_out in product(*clashes):
        names = [
            name
            for name, other in features.items()
            if name not in (*left_out, feature.name) and feature.name not in other.requires
        ]
        others = [features[name] for name in names]
        if feature.name not in left_out and set(feature.requires) <= set(names):
            found.append(others)
    return found


def _clash(one: Feature, other: Feature) -> bool:
    try:
        Machine([replace(one, requires=()), replace(other, requires=())], ROLES)
    except Conflict:
        return True
    return False


def _options(machine: Machine) -> set[tuple[str, str]]:
    choices = {(choice.event, choice.name) for choice in machine.choices}
    return choices | {(event, option) for event in machine.events for option in machine.options(event)}


def _each_once(found: Mapping[Any, list[str]]) -> dict[Any, tuple[str, ...]]:
    return {what: tuple(dict.fromkeys(names)) for what, names in found.items()}


# the model


def _key(store: Store[Any]) -> tuple[Field, ...]:
    by_name = {field.name: field for field in store.fields}
    return tuple(by_name[name] for name in store.key)


def _roles(store: Store[Any], fields: Mapping[str, Any]) -> dict[str, Field]:
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"fields is a mapping of roles to fields, not {fields!r}")
    by_name = {field.name: field for field in store.fields}
    roles: dict[str, Field] = {}
    for role, named in fields.items():
        if role not in ROLES:
            raise ConfigurationError(f"there is no role {role!r}: there are {', '.join(ROLES)}")
        name = named if isinstance(named, str) else getattr(named, "name", None)
        if name not in by_name:
            raise ConfigurationError(f"role {role!r}: {store.name} has no field {named!r}; it has {', '.join(by_name)}")
        field = by_name[name]
        _fits_the_role(store, role, field)
        other = next((r for r, f in roles.items() if f is field), None)
        if other:
            raise ConfigurationError(f"field {name!r} cannot be both {other!r} and {role!r}")
        roles[role] = field
    if "status" not in roles:
        raise ConfigurationError(f"fields= must map the role 'status' to a field of {store.name}")
    return roles


def _fits_the_role(store: Store[Any], role: str, field: Field) -> None:
    if field.kind not in ROLES[role]:
        wanted = NEEDED.get(role) or f"a field of type {' or '.join(kind for kind in ROLES[role] if kind != 'other')}"
        raise ConfigurationError(f"role {role!r} is {wanted}; {store.name}.{field.name} is {field.kind}")
    if role in ("runat", "deadline", "owner", "ttl", "ttr") and not field.null:
        raise ConfigurationError(f"role {role!r}: {store.name}.{field.name} must be nullable, null says there is none")
    if role in MANAGED and field.name in store.key:
        raise ConfigurationError(f"role {role!r}: {field.name!r} is part of the key, and a key must not change")
    if role == "owner" and field.max_length is not None and field.max_length < OWNER_LENGTH:
        raise ConfigurationError(
            f"role 'owner': {store.name}.{field.name} holds {field.max_length} characters, {OWNER_LENGTH} are needed"
        )


def _words(machine: Machine, field: Field, statuses: Mapping[str, str | int]) -> dict[str, str | int]:
    if not isinstance(statuses, Mapping):
        raise ConfigurationError(f"statuses is a mapping of letters to stored words, not {statuses!r}")
    for letter, word in statuses.items():
        if not isinstance(letter, str) or len(letter) != 1 or letter in (ABSENT, ELSEWHERE, "*", "^"):
            raise ConfigurationError(f"statuses: {letter!r} is no state; the states are {', '.join(machine.states)}")
        if isinstance(word, bool) or not isinstance(word, (str, int)):
            raise ConfigurationError(f"statuses: {letter} is text or an integer, not {word!r}")
    words: dict[str, str | int] = {state: statuses.get(state, state) for state in machine.states} | dict(statuses)
    wanted = str if field.kind == "text" else int
    for state in machine.states:
        word = words[state]
        if not isinstance(word, wanted):
            raise ConfigurationError(
                f"statuses: {field.name!r} holds {'text' if wanted is str else 'integers'}, so {state} needs "
                f"{'text' if wanted is str else 'an integer'}, not {word!r}"
            )
        if isinstance(word, str) and field.max_length is not None and len(word) > field.max_length:
            raise ConfigurationError(f"statuses: {word!r} is longer than the {field.max_length} of {field.name!r}")
    mine = [words[state] for state in machine.states]
    if len(set(mine)) < len(mine):
        raise ConfigurationError(f"statuses: two states are stored as the same: {words}")
    return words


def _tubes(table: Table, tube_stats: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tube_stats, str) or not isinstance(tube_stats, Collection):
        raise ConfigurationError(f"tube_stats is a list of names of tubes, not {tube_stats!r}")
    if not all(isinstance(tube, str) for tube in tube_stats):
        raise ConfigurationError(f"tube_stats is a list of names of tubes, not {tube_stats!r}")
    if tube_stats and "tube" not in table.roles:
        raise ConfigurationError("tube_stats needs the role 'tube': map it to a field")
    if "" in tube_stats:
        raise ConfigurationError("tube_stats: a tube whose name is empty cannot be counted")
    return tuple(dict.fromkeys(tube_stats))


def _default_id(table: Table) -> str:
    kinds = [field.kind for field in table.key]
    return STRATEGIES.get(kinds[0], "required") if len(kinds) == 1 else "required"


def _fits_the_key(table: Table, features: Sequence[Feature]) -> None:
    strategy = next((str(f.settings["id"]) for f in features if "id" in f.settings), "required")
    if strategy == "required":
        return
    names = ", ".join(field.name for field in table.key)
    if len(table.key) > 1:
        raise ConfigurationError(
            f"feature 'id': the key ({names}) has several parts, so each task must bring it: 'required'"
        )
    field = table.key[0]
    fits = KEYS.get(strategy, (field.kind,))
    if field.kind not in fits or (strategy == "uuid" and (field.max_length or 36) < 36):
        raise ConfigurationError(
            f"feature 'id': {strategy!r} makes keys of type {' or '.join(fits)}; {names} is {field.kind}"
        )


# the methods


@dataclass(frozen=True)
class Verb:
    """A method of the queue on the model: `Page.ack(key)`, and on an instance without the key: `page.ack()`."""

    handle: Queue[Any]
    name: str

    def __get__(self, instance: object, owner: type) -> Any:
        if owner is not self.handle.model:
            raise ConfigurationError(
                f"{owner.__name__} inherits {self.name}() from the queue {self.handle.store.name}, "
                f"whose table is another: upgrade {owner.__name__} itself"
            )
        method = getattr(self.handle, self.name)
        return method if instance is None or self.name in TABLE_VERBS else partial(method, instance)


TABLE_VERBS: Final = ("take", "plow", "stats", "queue_stats")  # of the whole table, on an instance too


@dataclass(frozen=True)
class Handle:
    """`Model.xq`."""

    handle: Queue[Any]

    def __get__(self, instance: object, owner: type) -> Queue[Any]:
        if owner is not self.handle.model:
            raise ConfigurationError(
                f"{owner.__name__}.xq is that of {self.handle.store.name}, whose table is another: "
                f"upgrade {owner.__name__} itself"
            )
        return self.handle


def _attach(store: Store[Any], handle: Queue[Any], methods: bool | Sequence[str]) -> None:
    wanted = () if methods is False else VERBS if methods is True else tuple(methods)
    for name in wanted:
        if name not in VERBS:
            raise ConfigurationError(f"methods: there is no method {name!r}: there are {', '.join(VERBS)}")
    for name in ("xq", *wanted):
        if any(isinstance(vars(base).get(name), (Verb, Handle)) for base in store.model.__mro__):
            continue  # of a parent that is a queue: its table is another
        taken = store.attribute(name)
        if taken:
            raise ConfigurationError(
                f"{store.name}.{name} is {taken} already, and the method {name}() would hide it: "
                f"pass methods=False and use the queue that upgrade returns, or methods=(...) with those you want"
            )
    store.attach("xq", Handle(handle))
    for name in wanted:
        store.attach(name, Verb(handle, name))
