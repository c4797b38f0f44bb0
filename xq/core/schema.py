"""Check that a queue fits a model: its fields, its key, and its words for statuses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from string import ascii_letters
from typing import Any, Final

from xq.core.connections import TaskModel
from xq.core.errors import ConfigurationError, shown
from xq.core.kinds import NUMBERS, WIDE, Field, Kind, Table, fits_a_column, own_name
from xq.core.machine import ABSENT, ELSEWHERE, MANAGED, NAMES, REMEMBERED, Feature, Machine
from xq.core.words import PLAIN, plain

Kinds = tuple[Kind, ...]
MOMENTS: Final[Kinds] = ("double", "bigint", "datetime", "timestamptz")
WORDS: Final[Kinds] = ("text", "integer", "bigint")

# role -> field kinds that can hold it
ROLES: Final[Mapping[str, Kinds]] = {
    "status": WORDS,
    "runat": MOMENTS,
    "deadline": MOMENTS,
    "finished": MOMENTS,
    "moved": MOMENTS,
    "version": ("integer", "bigint"),
    "priority": NUMBERS,
    "tube": ("text", "uuid"),
    "owner": ("text",),
    "attempts": ("integer", "bigint"),
    "lost": ("integer", "bigint"),
    "ttl": ("float", "double"),
    "ttr": ("float", "double"),
    "utube": (*WORDS, "uuid"),
    "unique": (*WORDS, "uuid"),
    "error": ("text",),
    "trace": ("text",),
    "after": ("text",),
    "group": ("text",),
    "steps": ("text",),
    "awaits": ("text",),
}
NEEDED: Final = {  # Roles whose advice is more than the kinds above.
    "status": "a CharField, a TextField, or an IntegerField with statuses= (or left out: xq brings xq_status)",
}
TRACE_LENGTH: Final = 64  # characters in a new field for W3C's traceparent,
TRACEPARENT: Final = 55  # which has so many
OWNER_LENGTH: Final = 64  # characters in an owner: the session's uuid, a time, a process and a number

# Roles that may have an own column: its field's kind, and a text's length.
OWN: Final[Mapping[str, tuple[Kind, int | None]]] = {
    "status": ("text", 64),
    "owner": ("text", OWNER_LENGTH),
    "runat": ("double", None),
    "deadline": ("double", None),
    "finished": ("double", None),
    "moved": ("double", None),
    "attempts": ("integer", None),
    "lost": ("integer", None),
    "error": ("text", None),
    "ttl": ("double", None),
    "ttr": ("double", None),
    "trace": ("text", TRACE_LENGTH),
    "after": ("text", OWNER_LENGTH),
    "group": ("text", 255),
    "steps": ("text", WIDE),
    "awaits": ("text", 255),
}
NULLABLE: Final = ("runat", "deadline", "finished", "owner", "ttl", "ttr", "after", "group", "steps", "awaits")

LEAST: Final = {"owner": OWNER_LENGTH, "trace": TRACEPARENT, "after": OWNER_LENGTH, "steps": 2**16, "awaits": 255}
ALWAYS: Final = ("status", "priority", "owner", "attempts", "error")  # the offered roles that every queue maps

# The kinds of key that each strategy of the feature id makes. A kind's first strategy is its default.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "auto_increment": ("auto", "bigauto"),
    "time64": ("bigint", "bigauto"),
    "uuid": ("uuid", "text"),
}


def key_of(store: TaskModel[Any]) -> tuple[Field, ...]:
    by_name = {field.name: field for field in store.fields}
    return tuple(by_name[name] for name in store.key)


def wanted(fields: Mapping[str, Any], features: Sequence[Feature]) -> list[str]:
    """Return the roles that get an own column unless they are mapped: the needed ones, and True in `fields`."""
    needed = {"status", "owner"}.union(*(feature.needs for feature in features))
    return [role for role in OWN if role in needed or asks_for_own(role, fields.get(role))]


def asks_for_own(role: object, named: object) -> bool:
    """Return whether a value in `fields` asks for an own column: True, or its name."""
    return role in OWN and (named is True or (isinstance(named, str) and named == own_name(str(role))))


def used_by(features: Sequence[Feature], fields: Mapping[str, Any]) -> set[str]:
    """Return the roles that features read or write. Raises ConfigurationError for one that does not exist.

    The columns of a feature may have roles of their own, which `fields` maps: xq reads none of these.
    """
    found = {"key", ""}
    for feature in features:
        roles = {*feature.needs, *feature.fill, *(column.role for column in feature.columns)}
        roles |= {guard.role for guard in feature.guards} | {timer.column for timer in feature.timers}
        if strange := sorted(roles - ROLES.keys() - own_roles(features, fields) - {"key", ""}):
            kinds = ", ".join(f"{role} ({' or '.join(kinds)})" for role, kinds in ROLES.items())
            raise ConfigurationError(
                f"feature {feature.name!r} uses the role {strange[0]!r}, which does not exist: there are {kinds}"
            )
        found |= roles | {timer.option for timer in feature.timers if timer.option in REMEMBERED}
    return found - {"key", ""}


def own_roles(features: Iterable[Feature], fields: Mapping[str, Any]) -> set[str]:
    """Return the mapped roles that only the columns of features have."""
    return {column.role for feature in features for column in feature.columns if column.role in fields} - ROLES.keys()


def offered(store: TaskModel[Any], roles: Mapping[str, Any], used: Collection[str]) -> dict[str, str]:
    """Return the offered fields that the queue maps beside `roles`: for its features, and for ALWAYS.

    A role in ALWAYS is left out if the application has replaced its field by one with an unsuitable kind.
    """
    by_name = {field.name: field for field in store.fields}
    given = {_name_of(named) for named in roles.values()}
    free = [role for role in store.offers if role in by_name and role not in roles and role not in given]
    return {
        role: role for role in free if role in used or (role in ALWAYS and _misfit(store, role, by_name[role]) is None)
    }


def _name_of(named: object) -> object:
    return named if isinstance(named, str) else getattr(named, "name", None)


def roles_of(store: TaskModel[Any], fields: Mapping[str, Any], features: Iterable[Feature] = ()) -> dict[str, Field]:
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"fields is a mapping of roles to fields, not {shown(fields)}")
    names = {field.name: field for field in store.fields}
    by_name = {field.column: field for field in store.fields} | names
    roles: dict[str, Field] = {}
    known = ROLES.keys() | own_roles(features, fields)
    for role, named in fields.items():
        if not isinstance(role, str) or role not in known:
            raise ConfigurationError(
                f"there is no role {shown(role)}: there are {', '.join(ROLES)}; a feature stands in features="
            )
        name = _name_of(named)
        if name not in by_name and asks_for_own(role, named):
            continue
        if named is True:
            raise ConfigurationError(
                f"role {shown(role)} is a field of your own: add one to {store.name}, and name it, as in "
                f"fields={{{role!r}: 'name'}}; xq itself brings columns for {', '.join(OWN)}"
            )
        if not isinstance(name, str) or name not in by_name:
            raise ConfigurationError(
                f"role {shown(role)}: {store.name} has no field {shown(named)}; it has {', '.join(names)}"
            )
        field = by_name[name]
        store.refer(field, partial(_require, store, role, field))
        other = next((r for r, f in roles.items() if f is field), None)
        if other:
            raise ConfigurationError(f"field {shown(name)} cannot be both {other!r} and {shown(role)}")
        roles[role] = field
    return roles


def _require(store: TaskModel[Any], role: str, field: Field) -> None:
    if misfit := _misfit(store, role, field):
        raise ConfigurationError(misfit)


def _misfit(store: TaskModel[Any], role: str, field: Field) -> str | None:
    """Return why a field cannot hold a role, in words; None if it can."""
    if field.kind not in ROLES.get(role, (field.kind,)):
        wanted = {**NEEDED, **store.needed}.get(role) or f"a field of type {' or '.join(ROLES[role])}"
        said = (field.declared or field.type or "without a type") if field.kind == "other" else field.kind
        return f"role {shown(role)} is {wanted}; {store.name}.{field.name} is {said}"
    if role in NULLABLE and not field.null:
        return f"role {shown(role)}: {store.name}.{field.name} must be nullable: NULL means that there is none"
    if role in MANAGED and field.name in store.key:
        return f"role {shown(role)}: {field.name!r} is part of the key, and a key must not change"
    least = LEAST.get(role, 0)
    if field.max_length is not None and field.max_length < least:
        return f"role {role!r}: {store.name}.{field.name} holds {field.max_length} characters, {least} are needed"
    return None


def statuses_of(statuses: Mapping[Any, str | int]) -> dict[str, str | int]:
    """Return `statuses=` by letter, with plain words. Raises ConfigurationError."""
    if not isinstance(statuses, Mapping):
        raise ConfigurationError(f"statuses is a mapping of letters to stored words, not {shown(statuses)}")
    # the application may give words to states whose features are off
    known = [letter for letter in ascii_letters if letter.upper() not in (ABSENT, ELSEWHERE)]
    found: dict[str, str | int] = {}
    for state, word in statuses.items():
        letter = PLAIN.letter(state, known)
        if letter is None:
            raise ConfigurationError(f"statuses: {shown(state)} is no state; the states are {PLAIN.states(NAMES)}")
        if letter in found:
            raise ConfigurationError(f"statuses: {PLAIN.state(letter)} is given twice")
        if isinstance(word, bool) or not isinstance(word, (str, int)) or not fits_a_column(word):
            raise ConfigurationError(f"statuses: {PLAIN.state(letter)} is text or an integer, not {shown(word)}")
        found[letter] = plain(word)
    return found


def stored_words(machine: Machine, field: Field, statuses: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return each state's stored status, and others' that `statuses` names. Raises ConfigurationError."""
    lacking = [state for state in machine.states if state not in statuses]
    if lacking and any(letter != word for letter, word in statuses.items()):
        raise ConfigurationError(
            f"statuses: {PLAIN.states(lacking)} {'has' if len(lacking) == 1 else 'have'} no word, and every state of "
            f"the queue needs one: statuses={{..., {lacking[0]!r}: 'a word of yours'}}"
        )
    words: dict[str, str | int] = {**{state: state for state in machine.states}, **statuses}
    wanted = str if field.kind == "text" else int
    for state in machine.states:
        word = words[state]
        if not isinstance(word, wanted):
            raise ConfigurationError(
                f"statuses: {field.name!r} holds {'text' if wanted is str else 'integers'}, so "
                f"{PLAIN.state(state)} needs {'text' if wanted is str else 'an integer'}, not {shown(word)}"
            )
        if isinstance(word, str) and field.max_length is not None and len(word) > field.max_length:
            raise ConfigurationError(f"statuses: {shown(word)} is longer than the {field.max_length} of {field.name!r}")
    stored = [words[state] for state in machine.states]
    if len(set(stored)) < len(stored):
        raise ConfigurationError(f"statuses: two states are stored as the same: {words}")
    return words


def check_that_ack_keeps(machine: Machine, statuses: Mapping[str, str | int]) -> None:
    """Raise ConfigurationError if there is a word for ended tasks, and ack deletes them."""
    ends = [letter for letter in ("D", "Z") if letter in statuses and letter not in machine.states]
    if ends and machine.ack_deletes:
        raise ConfigurationError(
            f"statuses has a word for {PLAIN.states(ends)}, but ack deletes the task: add the feature 'keep' (or "
            "'zombie', which deletes it some time later), or leave the word out"
        )


def tubes_of(table: Table, tube_stats: Sequence[str]) -> tuple[str, ...]:
    # a model is a Collection: it has a length and an iterator, which run queries
    listed = isinstance(tube_stats, Collection) and not isinstance(tube_stats, (str, type))
    if not listed or not all(isinstance(tube, str) for tube in tube_stats):
        raise ConfigurationError(f"tube_stats is a list of names of tubes, not {shown(tube_stats)}")
    if tube_stats and "tube" not in table.roles:
        raise ConfigurationError("tube_stats needs the role 'tube': map it to a field")
    if any(tube == "" or "\0" in tube for tube in tube_stats):
        raise ConfigurationError("tube_stats: a tube whose name is empty, or holds a zero byte, cannot be counted")
    return tuple(sorted(set(tube_stats)))  # the triggers have them, and must be equal in every process


def default_id(key: Sequence[Field]) -> str:
    made = (strategy for strategy, kinds in KEYS.items() if len(key) == 1 and key[0].kind in kinds)
    return next(made, "required")


def check_key(table: Table, strategy: str) -> None:
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
