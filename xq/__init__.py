"""xq turns a table that an application already has into a persistent queue."""

import importlib
import types
import typing

from xq.adapters.peewee import queue, upgrade
from xq.adapters.peewee.task import Task
from xq.core.errors import (
    ArchiveBusy,
    BadType,
    BadValue,
    ConfigurationError,
    Conflict,
    Duplicate,
    Error,
    FeatureOff,
    Full,
    InTransaction,
    LeftOpen,
    NotFound,
    NotInstalled,
    NotOwner,
    NotRunning,
    SessionLost,
    TubeBusy,
    TubeDropped,
    TubeExists,
    Undone,
    UnknownSession,
    UnknownTube,
    WrongState,
)
from xq.core.machine import Choice, Column, Detour, Feature, Machine, Timer, Transition
from xq.engine.stats import Stats
from xq.queue import Queue
from xq.runtime.lease import Lease, current
from xq.runtime.schedules import Schedule
from xq.runtime.workers.attempts import Batch
from xq.runtime.workers.outcomes import Bury, Discard, Retry
from xq.runtime.workers.program import run
from xq.runtime.workers.worker import Worker
from xq.sessions.session import Session
from xq.tubes import Tubes

if typing.TYPE_CHECKING:
    from xq import spark as spark

__version__ = "0.1.0"

__all__ = [
    "BadType",
    "BadValue",
    "Batch",
    "Bury",
    "Choice",
    "Column",
    "ConfigurationError",
    "Conflict",
    "Detour",
    "Discard",
    "Duplicate",
    "Error",
    "Feature",
    "FeatureOff",
    "Full",
    "ArchiveBusy",
    "InTransaction",
    "Lease",
    "LeftOpen",
    "Machine",
    "NotFound",
    "NotInstalled",
    "NotOwner",
    "NotRunning",
    "Queue",
    "Retry",
    "Schedule",
    "Session",
    "SessionLost",
    "Stats",
    "Task",
    "Timer",
    "Transition",
    "TubeBusy",
    "TubeDropped",
    "TubeExists",
    "Tubes",
    "Undone",
    "UnknownSession",
    "UnknownTube",
    "WrongState",
    "Worker",
    "__version__",
    "current",
    "queue",
    "run",
    "upgrade",
]


def __getattr__(name: str) -> types.ModuleType:
    """`xq.spark`, imported when it is first asked for: it needs PySpark, and xq does not."""
    if name == "spark":
        return importlib.import_module("xq.spark")
    raise AttributeError(f"module 'xq' has no attribute {name!r}")
