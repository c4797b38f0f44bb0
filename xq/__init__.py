"""xq turns a table that an application already has into a persistent queue.

Each public name is imported when it is first used, so that the command line starts at once, and PySpark is needed for
`xq.spark` only. Type checkers read `__init__.pyi`, which has the same names.
"""

import importlib
import typing

__version__ = "0.3.0"

_NAMES = {
    "xq.adapters.peewee": "queue upgrade",
    "xq.adapters.peewee.task": "Task",
    "xq.core.errors": "BadType BadValue ConfigurationError Conflict Duplicate Error FeatureOff Full InTransaction "
    "LeftOpen NotFound NotInstalled NotOwner NotRunning SessionLost TubeBusy TubeDropped TubeExists UnknownSession "
    "UnknownTube WrongState",
    "xq.core.machine": "Column Detour Feature Guard Machine Settings Timer Transition",
    "xq.engine.stats": "Stats",
    "xq.features": "Features",
    "xq.features.steps.calls": "sleep step wait_for",
    "xq.sql.slice": "Slice",
    "xq.api": "Queue",
    "xq.runtime.group": "Group",
    "xq.runtime.lease": "Lease after_commit current",
    "xq.runtime.schedules": "Schedule",
    "xq.workers.attempt": "Batch",
    "xq.workers.concurrency": "Concurrency",
    "xq.workers.outcomes": "Bury Discard Next ProcessDied Retry",
    "xq.workers.program": "Running run",
    "xq.workers.worker": "Worker",
    "xq.database.sessions": "Session",
    "xq.tubes": "Tubes",
}
_modules = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_modules, "__version__"]


def __getattr__(name: str) -> typing.Any:
    if name == "spark":
        return importlib.import_module("xq.spark")
    if name not in _modules:
        raise AttributeError(f"module 'xq' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_modules[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # without `spark`: inspect, pydoc and freezegun read each name
