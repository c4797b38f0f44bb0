"""The public names of xq, as the documents show them: read from the source by griffe, so that no extra is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import griffe

import xq

ROOT = Path(xq.__file__).resolve().parents[1]


@dataclass(frozen=True)
class Section:
    """Some public names under a heading."""

    title: str
    about: str
    names: tuple[str, ...]  # as a program writes them; without a dot they are names of xq


SECTIONS = (
    Section(
        "Making a queue",
        "`upgrade` adds the attribute `xq`, the queue, and these methods of it to the model: {verbs}.",
        ("upgrade", "queue", "Task", "Features"),
    ),
    Section("The queue", "`Page.xq`, and what `upgrade` returns.", ("Queue", "Group")),
    Section("asyncio", "`Page.xq.aio`. [asyncio.md](asyncio.md) explains it.", ("aio.Aio",)),
    Section(
        "Workers",
        "What `@Page.xq.worker` returns, and what its function uses. [workers.md](workers.md) explains them.",
        (
            *("Worker", "Running", "run", "current", "Lease", "Batch", "Concurrency"),
            *("Retry", "Next", "Bury", "Discard", "ProcessDied", "after_commit"),
            *("step", "sleep", "wait_for"),
        ),
    ),
    Section("Sessions", "Who owns taken tasks: see [workers.md](workers.md#who-owns-a-taken-task).", ("Session",)),
    Section(
        "What methods return",
        "Besides tasks. A program does not make these itself.",
        (
            *("Stats", "engine.stats.Numbers", "Schedule", "engine.pauses.Pause", "engine.limits.Limit"),
            *("operators.operations.Operation", "operators.operations.Preview"),
            *("operators.search.Found", "operators.failures.Failures", "operators.failures.FailureGroup"),
            *("operators.inspection.TimelineEntry", "operators.inspection.Snapshot", "operators.inspection.Age"),
            *("operators.doctor.Finding", "operators.inspection.Health"),
            "operators.inspection.Process",
        ),
    ),
    Section(
        "Tubes",
        "The tubes of tarantool/queue. [tubes.md](tubes.md) explains them.",
        ("Tubes", "tubes.Tube", "tubes.Task", "tubes.PRESETS"),
    ),
    Section(
        "Features of your own",
        "A feature is a function that returns a `Feature`. [guide.md](guide.md#features) explains them.",
        ("Feature", "Transition", "Timer", "Detour", "Column", "Guard", "Settings", "Slice", "Machine"),
    ),
    Section(
        "Testing",
        "Pytest has them as the fixtures `xq_memory`, `xq_clock`, `xq_session`, `run_pending`, `run_pending_async` and "
        "`assert_put`: see [guide.md](guide.md#testing-your-own-program).",
        (
            *("testing.Clock", "testing.clock", "testing.memory", "testing.session", "testing.run_pending"),
            *("testing.run_pending_async", "testing.assert_put"),
        ),
    ),
    Section(
        "Django",
        "Their module is `xq.adapters.django`, or one in it. [django.md](django.md) explains them.",
        (
            *(f"adapters.django.{name}" for name in ("upgrade", "queue", "queues", "TaskFields")),
            *("adapters.django.admin.QueueAdmin", "adapters.django.migrations.InstallQueue"),
            *(f"adapters.django.{name}" for name in ("options", "every", "enqueue_many", "aenqueue_many")),
            *("adapters.django.tasks.XQBackend", "adapters.django.console.console", "adapters.django.console.user_of"),
        ),
    ),
    Section(
        "SQLAlchemy",
        "Their module is `xq.adapters.sqlalchemy`. [The first steps](start/sqlalchemy.md) explain them.",
        tuple(f"adapters.sqlalchemy.{name}" for name in ("upgrade", "queue", "SqlalchemyQueue")),
    ),
    Section(
        "Spark",
        "The extra `spark`. [spark.md](spark.md) explains them.",
        (
            *(f"spark.{name}" for name in ("session", "register", "options", "tasks", "history", "stream")),
            *(
                f"spark.{name}"
                for name in ("consume", "catching", "report", "Report", "archive", "restore", "Archived")
            ),
            *(f"spark.{name}" for name in ("jdbc", "jdbc_options", "put", "error")),
        ),
    ),
    Section(
        "Other programs",
        "`Page.xq.pipeline`: reads and puts from other processes.",
        ("pipeline.pipeline.Pipeline", "pipeline.bulk.Recorded"),
    ),
    Section(
        "Console, metrics and traces",
        "The extras `serve`, `metrics` and `otel`: see [console.md](console.md) and [monitoring.md](monitoring.md).",
        ("serve.app", "serve.ROLES", "serve.VERBS", "metrics.Metrics", "otel.instrument"),
    ),
)

# Classes with members of the ORM or of Django: their docstrings name xq's own.
BARE = frozenset(("xq.adapters.peewee.task.Task", "xq.adapters.django.task_fields.TaskFields"))
BARE |= {"xq.adapters.django.admin.queue_admin.QueueAdmin", "xq.adapters.django.migrations.InstallQueue"}
BARE |= {"xq.adapters.django.tasks.backend.XQBackend"}

# What Python calls public and an application does not use, by class.
INSIDE: Mapping[str, frozenset[str]] = {
    "Batch": frozenset(("give",)),
    "Bury": frozenset(("outcome",)),
    "Discard": frozenset(("outcome",)),
    "Recorded": frozenset(("of",)),
    "Retry": frozenset(("outcome",)),
    "Next": frozenset(("outcome", "options")),
    "Machine": frozenset(("structure", "picked", "timer", "pending", "guard", "frees", "usual_event", "is_usual"))
    | {"before_take", "remembers", "accepts", "choose"},
    "Lease": frozenset(("start", "lose", "touched", "taken", "ttr", "finish", "ack_with", "is_lost", "on_loss"))
    | {"started_at", "ends_at", "touched_at", "touch_at", "calls"},
    "Session": frozenset(
        ("new_token", "token", "register", "acquire", "release", "enter", "hold", "note", "forget", "leave", "forked")
    ),
    "Tube": frozenset(("maintenance", "is_awaited", "create", "stop", "is_gone", "erase")),
    "Worker": frozenset(("call", "acall")),
}


@cache
def package() -> griffe.Module:
    found = griffe.load("xq", search_paths=[ROOT], allow_inspection=False)
    assert isinstance(found, griffe.Module)
    return found


def find(name: str) -> griffe.Object:
    """Return what a public name stands for."""
    found: griffe.Object | griffe.Alias = package()[name]
    return found.final_target if isinstance(found, griffe.Alias) else found


def errors() -> list[griffe.Class]:
    """Return the errors of xq, in the order of their module."""
    found = [each for each in package()["core.errors"].members.values() if isinstance(each, griffe.Class)]
    return [each for each in found if not each.name.startswith("_")]


def shown() -> Iterator[str]:
    """Yield every name of a section. Names of xq that have none end the program."""
    names = [name for section in SECTIONS for name in section.names]
    missing = {*xq.__all__} - {"__version__", *names, *(error.name for error in errors())}
    if missing:
        raise SystemExit(f"docs/names.py: no section has {', '.join(sorted(missing))}")
    mute = [name for name in names if not find(name).docstring]
    if mute:
        raise SystemExit(f"docs/names.py: nothing says what {', '.join(mute)} is")
    yield from names


def first(found: griffe.Object) -> str:
    """Return the first paragraph of a docstring, as Markdown; "" if there is none."""
    return " ".join(markdown(found).split("\n\n")[0].split())


def markdown(found: griffe.Object) -> str:
    """Return a docstring as Markdown: stars and angle brackets outside of code stand for themselves."""
    return _escaped(found.docstring.value.strip() if found.docstring else "")


def _escaped(text: str) -> str:
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts)


def is_property(found: griffe.Object) -> bool:
    return "property" in found.labels


def signature(found: griffe.Object) -> str:
    """Return a name as a program writes it, with arguments and type."""
    told = found.name
    if isinstance(found, griffe.Class) and found.name in MADE:
        init = found.members["__init__"]
        assert isinstance(init, griffe.Function)
        told += _arguments(init)
    elif isinstance(found, griffe.Function):
        returned = str(found.returns or "")
        if any("contextmanager" in str(each.value) for each in found.decorators):
            returned = returned.replace("Iterator[", "ContextManager[")
        told += _arguments(found) + (f" -> {returned}" if returned else "")
    elif isinstance(found, griffe.Attribute) and found.annotation:
        told += f": {found.annotation}"
        told += f" = {found.value}" if found.value is not None and "class-attribute" in found.labels else ""
        told = re.sub(r"[Ff]ield\(default_factory=dict\)", "{}", told)
    return told.replace("'", '"')


# Classes that a program makes itself. The arguments of a dataclass are its fields.
MADE = frozenset(("Tubes", "Machine", "Retry", "Next", "Bury", "Clock", "Metrics"))


def _arguments(function: griffe.Function) -> str:
    told = function.signature(return_type=False).removeprefix(function.name)
    told = re.sub(r"(?<== )[A-Z]+\b", partial(_number, function.module), told)
    return told.replace("(self, ", "(").replace("(self)", "()").replace("= MISSING", "= ...").replace("(cls, ", "(")


def _number(module: griffe.Module, found: re.Match[str]) -> str:
    """Return the number that a constant of a module stands for; the name of the constant if it is none."""
    constant = module.members.get(found[0])
    value = str(getattr(constant.final_target if isinstance(constant, griffe.Alias) else constant, "value", ""))
    return value if re.fullmatch(r"[\d_.]+", value) else found[0]


def public(found: griffe.Class) -> dict[str, griffe.Object]:
    """Return the public members of a class and of the classes of xq from which it inherits, by name."""
    mine: dict[str, griffe.Object] = {}
    if found.canonical_path not in BARE:
        for each in [found, *_bases(found)]:
            for name, member in each.members.items():
                if not (name.startswith("_") or name in INSIDE.get(found.name, ()) or isinstance(member, griffe.Alias)):
                    mine[name] = mine[name] if name in mine and mine[name].docstring else member
    return mine


def _bases(found: griffe.Class) -> Iterator[griffe.Class]:
    for base in found.bases:
        path = base.canonical_path if isinstance(base, griffe.Expr) else str(base)
        if path.startswith("xq.") and ".adapters.django." not in path and path != "xq.api.Queue":  # has a section
            each: Any = find(path.removeprefix("xq."))
            yield each
            yield from _bases(each)


def attributes(found: griffe.Class) -> list[griffe.Attribute]:
    """Return the fields of a class, and what its docstring names of the attributes that its methods set."""
    told = set(re.findall(r"`(\w+)`", found.docstring.value if found.docstring else ""))
    members = [each for each in public(found).values() if isinstance(each, griffe.Attribute) and not is_property(each)]
    return [each for each in members if not renames(each) and (each.name in told or _is_field(each))]


def _is_field(member: griffe.Attribute) -> bool:
    return bool(member.annotation) and re.match(r" {4}\w", _lines(member)[(member.lineno or 1) - 1]) is not None


def renames(member: griffe.Object) -> str:
    """Return the name of the method for which this is another name: `kick = dig`; "" if it is none."""
    if not isinstance(member, griffe.Attribute) or member.value is None or not isinstance(member.parent, griffe.Class):
        return ""
    return str(member.value) if isinstance(member.parent.members.get(str(member.value)), griffe.Function) else ""


def groups(found: griffe.Class) -> dict[str, list[griffe.Object]]:
    """Return the methods and properties of a class by the comment above them in the source: `# consumers`."""
    grouped: dict[str, list[griffe.Object]] = {}
    for member in public(found).values():
        if isinstance(member, griffe.Function) or is_property(member) or renames(member):
            grouped.setdefault(_comment(member), []).append(member)
    return grouped


def _comment(member: griffe.Object) -> str:
    lines = _lines(member)
    for number in range((member.lineno or 1) - 2, 0, -1):
        if lines[number].startswith("class "):
            break
        if re.fullmatch(r"    # .+", lines[number]) and not lines[number - 1] and not lines[number + 1]:
            return lines[number].removeprefix("    # ")
    return ""


def remark(field: griffe.Object) -> str:
    """Return the comment behind a field."""
    return _escaped(_lines(field)[(field.lineno or 1) - 1].partition("  # ")[2])


def _lines(member: griffe.Object) -> list[str]:
    assert isinstance(member.filepath, Path)
    return _read(member.filepath)


@cache
def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
