"""Tubes as in tarantool/queue: each type is a preset of features over a generated model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import Any

from xq.adapters.peewee import PeeweeStore
from xq.core.clock import Clock
from xq.core.errors import BadType, BadValue, ConfigurationError, NotInstalled, TubeExists, UnknownTube, shown
from xq.core.options import seconds_of
from xq.core.tokens import checked
from xq.database.sessions import Session
from xq.tubes import tables
from xq.tubes.arguments import by_name
from xq.tubes.custom import FACTORY_METHODS, CustomTube, missing_methods
from xq.tubes.state import RUNNING, State
from xq.tubes.tables import Record, TubeRecords
from xq.tubes.tube import Host, OnChange, Task, Tube, TubeWording, is_text, stored
from xq.tubes.types import OPTIONS, PRESETS, STORAGE_MODES, Preset, check_preset, features, roles
from xq.tubes.unopened import UnopenedTubes
from xq.upgrading.build import build

__all__ = ["PRESETS", "Task", "Tube", "Tubes"]


class TubeMap(Mapping[str, Tube]):
    """The tubes by name: `queue.tube["emails"]` or `queue.tube.emails`; `queue.tube()` lists the names."""

    def __init__(self, of: Tubes) -> None:
        self._of = of

    def __getitem__(self, name: str) -> Tube:
        return self._of._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of._names())

    def __len__(self) -> int:
        return len(self._of._names())

    def __getattr__(self, name: str) -> Tube:
        if name.startswith("__"):  # Python's own protocols look for such names
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownTube as error:
            raise AttributeError(str(error)) from error

    def __call__(self, *name: object) -> list[str]:
        if name:
            raise BadType(f"tube() returns the names of all tubes: tube[{shown(name[0])}] is one of them")
        return list(self)

    def __repr__(self) -> str:
        return f"<xq tubes {' '.join(self)}>"


class Tubes:
    """All tubes in a database: `queue = xq.Tubes(db)`. Opens no connection yet.

    `database` is a Peewee database or a URL. The tubes are stored in it, so every process that opens it finds them.
    `tube` has them by name: `queue.tube["emails"]` or `queue.tube.emails`, and `queue.tube()` lists the names.
    """

    _calls = nullcontext()  # around each call; those that need a state check it

    def __init__(self, database: Any, *, clock: Clock | None = None) -> None:
        self.database = tables.database(database)
        self.tube = TubeMap(self)
        self._clock = clock
        self._records = TubeRecords(self.database)
        # All users of the database share these, since the queue of a tube has its waiters and observers.
        shared: dict[str, Any] = vars(self._records.database).setdefault("tubes", {})
        self._open: dict[tuple[str, int], Tube] = shared.setdefault("open", {})
        self._drivers: dict[str, Any] = shared.setdefault("drivers", dict(PRESETS))
        self._running: State = shared.setdefault("state", self._state())
        others = UnopenedTubes(self._records, self._drivers, self._tube, self._close, clock)
        self._unopened: UnopenedTubes = shared.setdefault(f"unopened {id(clock)}", others)
        self._records.database.join(self._unopened)

    def _state(self) -> State:
        database = self._records.database
        questions = {
            "only_reads": lambda: database.sql.only_reads(database.store),
            "there": self._records.are_there,
            "awaited": lambda: any(tube.is_awaited for tube in list(self._open.values())),
            "paused": database.is_paused,
        }
        return State(questions, database.store.classify)

    def state(self) -> str:
        """Return the tubes' state, as this thread's connection now finds it.

        - RUNNING: the database accepts writes.
        - STARTUP: it accepts writes again; the maintenance thread is about to move what fell due meanwhile.
        - ENDING: it is read-only; this process's waiting calls are ending.
        - WAITING: it is read-only.
        - INIT: it is read-only and has no tubes yet.

        In every state but RUNNING the tubes' calls raise NotRunning.
        """
        return self._running.look()

    def _current(self) -> Session:
        """Return the current session, registered in the database."""
        database = self._records.made()
        self._unopened.attend()  # what it takes must come back, also of what is no queue
        session = database.sessions.to_take()
        session.register()
        return session

    @by_name
    def create_tube(
        self,
        name: str,
        type: str,
        *,
        temporary: bool = False,
        if_not_exists: bool = False,
        on_task_change: OnChange | None = None,
        storage_mode: str | None = None,
        **options: Any,
    ) -> Tube:
        """Create a tube: fifo, fifottl, limfifottl, utube, utubettl, or a registered type.

        Options, if the type has them:

        - `ttl`, `ttr`: seconds. ttr is ttl by default; ttl is unlimited by default.
        - `pri`: the default for put.
        - `capacity`: a put into a tube with this many tasks waits or returns None. 0: unlimited.
        - `temporary`, `storage_mode`: accepted for compatibility, without effect.

        `on_task_change` is called as by Tube.on_task_change. `if_not_exists` returns an existing tube with this name,
        whatever its type and options. Raises TubeExists, FeatureOff for an option that the type lacks, BadType for an
        unknown one, BadValue, NotRunning.
        """
        self._check_name(name)
        if not isinstance(type, str) or type not in self._drivers:
            raise BadValue(f"there is no type {shown(type)} of tubes: there are {', '.join(self._drivers)}")
        for flag, value in {"temporary": temporary, "if_not_exists": if_not_exists}.items():
            if not isinstance(value, bool):
                raise BadType(f"{flag} is True or False, not {shown(value)}")
        if storage_mode is not None and storage_mode not in STORAGE_MODES:
            raise BadValue(f"storage_mode is {' or '.join(STORAGE_MODES)}, not {shown(storage_mode)}")
        if on_task_change is not None and not callable(on_task_change):
            raise BadType(f"on_task_change is a function, not {shown(on_task_change)}")
        chosen = self._features(type, options)
        with self._running:
            self._records.made()
            found = self._find_record(name)
            tube = None if found is None else self._existing_tube(found, if_not_exists)
            if tube is None:
                given = {option: value for option, value in options.items() if value is not None}
                given |= {"temporary": True} if temporary else {}
                tube = self._create(Record(name, type, given, tables.new_table(name)), chosen, if_not_exists)
        if on_task_change is not None:
            tube.on_task_change(on_task_change)
        return tube

    @staticmethod
    def _check_name(name: object) -> None:
        if not isinstance(name, str):
            raise BadType(f"a tube is named by text, not by {shown(name)}")
        if not 1 <= len(name) <= tables.LONGEST_NAME or not is_text(name):
            raise BadValue(f"the name of a tube is text of 1 to {tables.LONGEST_NAME} characters, not {shown(name)}")

    def _features(self, type: str, options: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(self._drivers[type], Mapping):
            stored(dict(options))  # the class checks its own options; they must fit JSON, in which they are kept
            return {}
        for option in options:
            if option not in OPTIONS:
                known = ", ".join([*OPTIONS, "temporary", "if_not_exists", "on_task_change", "storage_mode"])
                raise BadType(f"create_tube has no option {shown(option)}: it has {known}")
        return features(type, options, self._drivers)

    def _find_record(self, name: str) -> Record | None:
        """Return the record for the tube with this name, or None.

        A process killed while it dropped a tube may have left the record without its table: it is deleted here.
        """
        found = self._records.find(name)
        if found is None or not isinstance(self._drivers.get(found.type), Mapping):  # a class creates its missing table
            return found
        if self.database.table_exists(found.table):
            return found
        self._records.check_transaction()
        self._tube(found).erase()
        return None

    def _existing_tube(self, record: Record, if_not_exists: bool) -> Tube:
        if not if_not_exists:
            raise TubeExists(record.name, record.type)
        return self._tube(record)

    def _create(self, record: Record, chosen: Mapping[str, Any], if_not_exists: bool) -> Tube:
        """Create the table before the record: every process that finds the record finds a complete tube."""
        self._records.check_transaction()
        tube = None
        try:
            tube = self._build(record, chosen)
            tube.create()
            if self._records.add(record):
                return self._register(record, tube)
        except BaseException:
            with suppress(Exception):  # a failed transaction has dropped the table already
                if tube is None:
                    tables.model(self.database, "Tube", record.table, ()).drop_table()
                else:
                    tube.erase()
            raise
        tube.erase()  # another process has added this name first
        found = self._records.find(record.name)
        if found is None:
            raise TubeExists(record.name, record.type)  # and has dropped its tube meanwhile
        return self._existing_tube(found, if_not_exists)

    def _build(self, record: Record, chosen: Mapping[str, Any]) -> Tube:
        def forget() -> bool:
            existed = self._records.remove(record)
            self._open.pop((record.table, id(self._clock)), None)
            return existed

        wording = TubeWording(type=record.type, types=self._drivers)
        host = Host(self._running, self._records, lambda: self._current().uuid, forget, wording)
        driver = self._drivers[record.type]
        if not isinstance(driver, Mapping):
            return CustomTube(record, driver, self.database, host)
        role_names = roles(chosen)
        model = tables.model(self.database, record.name, record.table, role_names)
        fields = {role: role for role in ("status", *role_names)}
        installs = (
            f"tube[{record.name!r}].model.xq.install() installs the queue as this process defines it; where processes "
            "differ, give all of them the same xq and the same drivers first"
        )
        store: PeeweeStore[Any] = PeeweeStore(model, installs)
        woken = self._running.check_waiting
        queue = build(store, fields, chosen, methods=False, clock=self._clock, wording=wording, woken=woken)
        return Tube(record, model, host, [feature.name for feature in queue.machine.features])

    def _tube(self, record: Record) -> Tube:
        """Return the tube for a record, the same object each time.

        Raises UnknownTube if its type is not registered in this process.
        """
        tube = self._open.get((record.table, id(self._clock)))
        if tube is None:
            if record.type not in self._drivers:
                raise UnknownTube(record.name, self._names(), record.type)
            given = {option: value for option, value in record.options.items() if option != "temporary"}
            try:
                built = self._build(record, self._features(record.type, given))
            except Exception as error:
                self._running.explain(error)  # a class may write when it opens its table
                raise
            tube = self._register(record, built)
        return tube

    def _close(self, record: Record) -> None:
        """Forget a tube that another process dropped, unless a call in this process waits in it."""
        tube = self._open.get((record.table, id(self._clock)))
        if tube is not None and not tube.is_awaited:
            del self._open[record.table, id(self._clock)]

    def _register(self, record: Record, tube: Tube) -> Tube:
        """Return this tube, or the one that another thread has opened first."""
        found = self._open.setdefault((record.table, id(self._clock)), tube)
        if found is not tube:
            tube.stop()
        return found

    def _names(self) -> list[str]:
        return [record.name for record in self._records if record.type in self._drivers]

    def _find(self, name: object) -> Tube:
        record = self._records.find(name) if isinstance(name, str) and is_text(name) else None
        if record is None:
            raise UnknownTube(name, self._names())
        return self._tube(record)

    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """Return a tube's statistics: {"tasks": {...}, "calls": {...}}.

        Without a name, return those of all tubes, by name. Raises UnknownTube.
        """
        if name is not None:
            return self._find(name).statistics()
        found: dict[str, Any] = {}
        for record in self._records:
            if record.type in self._drivers:
                with suppress(NotInstalled):  # another process has just dropped it
                    found[record.name] = self._tube(record).statistics()
        return found

    @property
    def driver(self) -> Mapping[str, Any]:
        """The tube types that are registered in this process: presets, and classes."""
        return MappingProxyType(self._drivers)

    def register_driver(self, name: str, driver: Preset | Any) -> None:
        """Register a tube type in this process: a preset, as `features=` of upgrade, or a class.

        A class has two methods. create_space(db, name, options) creates the table with this name if it is missing, and
        returns its model. new(model, on_task_change, options) returns an object with normalize_task, put, take, delete,
        release, bury, kick, peek (returns None for an unknown task), touch, truncate and tasks_by_state. The object
        calls on_task_change(task, event) after each change. xq calls its `start` and `stop` if it has them.

        Tubes of an unregistered type are hidden. Raises ConfigurationError, BadType, BadValue.
        """
        self._check_name(name)
        if name in self._drivers:
            raise ConfigurationError(f"there is a driver {shown(name)} already")
        if isinstance(driver, Mapping):
            check_preset(name, driver)
        elif missing := missing_methods(driver, FACTORY_METHODS):
            raise ConfigurationError(
                f"a driver is a mapping of features, or a class with {' and '.join(FACTORY_METHODS)}: "
                f"{shown(driver)} lacks {', '.join(missing)}"
            )
        self._drivers[name] = dict(driver) if isinstance(driver, Mapping) else driver

    def session(self, uuid: object = None) -> Session:
        """Return a new session for a `with` block, or the one with this uuid. Raises UnknownSession, BadValue."""
        with self._running:
            return self._records.made().sessions.registered(None if uuid is None else checked(uuid))

    def identify(self, uuid: object = None) -> str:
        """Return the uuid of the session in which this thread, or asyncio task, takes. With a uuid, join that session.

        A thread that joined none has the process's session. A joined session stays current until another is
        joined, or until the surrounding `with queue.session()` ends, which restores the session from before it. Joining
        a session leaves the one joined earlier in the same block; when its last member leaves, its tasks are released.
        Raises UnknownSession, BadType, BadValue; with a uuid also NotRunning.
        """
        wanted = None if uuid is None else checked(uuid)
        if wanted is None and self.state() != RUNNING:  # without writes the session cannot be registered
            return self._records.database.sessions.current().uuid
        with self._running:
            current = self._current()
            if wanted not in (None, current.uuid):
                own = wanted == current.sessions.own().uuid
                current.sessions.join(None if own else current.sessions.registered(wanted))
            return wanted or current.uuid

    @by_name
    def cfg(self, *, ttr: float | None = None, in_replicaset: bool | None = None) -> None:
        """Set and store options for all tubes in this database.

        `ttr`: for how many seconds an ended session keeps its tasks for a process that joins it again (0: they are
        released at once). `in_replicaset`: accepted for compatibility; sessions are always in the database. Options
        left out stay as they are. Raises BadType, BadValue.
        """
        if in_replicaset is not None and not isinstance(in_replicaset, bool):
            raise BadType(f"in_replicaset is True or False, not {shown(in_replicaset)}")
        if ttr is not None:
            seconds = seconds_of("session_ttr", ttr, ends=True)
            with self._running:
                database = self._records.made()
                database.run(database.sql.set_setting, {"name": "session_ttr", "value": seconds})
