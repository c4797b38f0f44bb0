from xq import spark as spark
from xq.adapters.peewee import queue, upgrade
from xq.adapters.peewee.task import Task
from xq.api import Queue
from xq.core.errors import (
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
    UnknownSession,
    UnknownTube,
    WrongState,
)
from xq.core.machine import Column, Detour, Feature, Guard, Machine, Settings, Timer, Transition
from xq.database.sessions import Session
from xq.engine.stats import Stats
from xq.features import Features
from xq.features.steps.calls import sleep, step, wait_for
from xq.runtime.group import Group
from xq.runtime.lease import Lease, after_commit, current
from xq.runtime.schedules import Schedule
from xq.sql.slice import Slice
from xq.tubes import Tubes
from xq.workers.attempt import Batch
from xq.workers.concurrency import Concurrency
from xq.workers.outcomes import Bury, Discard, Next, ProcessDied, Retry
from xq.workers.program import Running, run
from xq.workers.worker import Worker

__version__: str

__all__ = [
    "BadType",
    "BadValue",
    "Batch",
    "Bury",
    "Column",
    "Concurrency",
    "ConfigurationError",
    "Conflict",
    "Detour",
    "Discard",
    "Duplicate",
    "Error",
    "Feature",
    "FeatureOff",
    "Features",
    "Full",
    "Group",
    "Guard",
    "InTransaction",
    "Lease",
    "LeftOpen",
    "Machine",
    "Next",
    "NotFound",
    "NotInstalled",
    "NotOwner",
    "NotRunning",
    "ProcessDied",
    "Queue",
    "Retry",
    "Running",
    "Schedule",
    "Session",
    "SessionLost",
    "Settings",
    "Slice",
    "Stats",
    "Task",
    "Timer",
    "Transition",
    "TubeBusy",
    "TubeDropped",
    "TubeExists",
    "Tubes",
    "UnknownSession",
    "UnknownTube",
    "WrongState",
    "Worker",
    "__version__",
    "after_commit",
    "current",
    "queue",
    "run",
    "sleep",
    "step",
    "upgrade",
    "wait_for",
]
