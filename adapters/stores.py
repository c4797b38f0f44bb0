"""What stores share, whatever ORM is above their driver: what an error means, and how a connection is made ready."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from xq.core.errors import BadType, BadValue
from xq.core.ports import Driver, Field, Row

M = TypeVar("M")

# Of the drivers' parameters, beside the password: that of a key, and what may hold it.
SECRETS: Final = frozenset(
    {"sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key", "ssl", "ssl_key_password"}
)


class TellsErrors(ABC):
    """What errors of the database tell: of which kind they are the driver says, which are the database's the store."""

    integrity_error: type[BaseException]

    @property
    @abstractmethod
    def driver(self) -> Driver: ...

    @property
    @abstractmethod
    def in_use(self) -> Any:
        """The driver's connection of this thread, None where none is open."""

    @abstractmethod
    def is_failure(self, error: BaseException) -> bool: ...

    def of_the_driver(self, error: BaseException) -> BaseException:
        """What the driver raised, where an ORM has put an error of its own around it."""
        return error

    def is_refusal(self, error: BaseException) -> bool:
        refused = self.is_failure(error) and self.driver.is_refusal(self.of_the_driver(error))
        return isinstance(error, self.integrity_error) or refused

    def is_taken(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_taken(self.of_the_driver(error))

    def is_loss(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_broken(self.in_use)

    def is_conflict(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_conflict(self.of_the_driver(error))

    def is_only_read(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_only_read(self.of_the_driver(error))

    def is_denied(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_denied(self.of_the_driver(error))

    def is_locked(self, error: BaseException) -> bool:
        return self.is_failure(error) and self.driver.is_locked(self.of_the_driver(error))

    def failed(self, cursor: Any, error: BaseException) -> None:
        """After a statement that failed. Raises BadValue and BadType where it was for a value."""
        if cursor is not None and not self.is_failure(error):
            cursor.close()  # the error may be kept, and with it what is in progress on SQLite
        driver, cause = self.driver, self.of_the_driver(error)
        kind = BadValue if driver.is_beyond(cause) else BadType if driver.is_misfit(cause) else None
        if kind is not None:
            raise kind(f"the database cannot hold a value given: {error}") from error


class Prepared:
    """What is prepared of the connections of one thread, and what waits for the end of a transaction on them.

    Of nobody who ends one by a plain COMMIT, or by what tells nobody, is heard: the next statement finds it ended.
    """

    connection: object = None  # that is prepared
    begun: object = None  # that is but for an open transaction
    waiting: Sequence[Callable[[], None]] = ()

    def prepare(self, connection: object, within: bool, connected: Callable[[], None]) -> None:
        """Do once for a connection what it needs; `within` a transaction, which may be undone, once more after it."""
        if within and self.begun is connection:
            return
        self.begun = connection
        self.connection = self.connection if within else connection
        try:
            connected()
        except BaseException:
            self.connection = self.begun = None
            raise

    def wait(self, call: Callable[[], None]) -> None:
        self.waiting = [*self.waiting, call]

    def settle(self) -> None:
        calls, self.waiting = self.waiting, ()
        for call in calls:
            call()


class OrmStore(TellsErrors, Generic[M]):
    """Of a `xq.core.ports.Store` what does not differ between ORMs."""

    model: type[M]
    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    installs = ""
    operational_errors: tuple[type[BaseException], ...]

    @cached_property
    def _readers(self) -> list[tuple[int, Callable[[Any], Any]]]:
        return [(i, field.from_database) for i, field in enumerate(self.fields) if field.from_database]

    def read(self, row: Row) -> Sequence[Any]:
        if not self._readers:
            return row[: len(self.fields)]
        values = list(row[: len(self.fields)])
        for index, read in self._readers:
            try:
                values[index] = read(values[index])
            except Exception as error:
                key = [value for value, field in zip(values, self.fields, strict=True) if field.name in self.key]
                raise BadValue(
                    f"the row {key} of {self.name} holds {values[index]!r} in {self.fields[index].name!r}, which "
                    f"cannot be read ({error}): mend or delete it with plain SQL"
                ) from error
        return values

    @property
    @abstractmethod
    def has_threads(self) -> bool: ...

    @property
    def own_connection(self) -> Any:
        return self.in_use if self.has_threads else None

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def disconnect(self) -> None: ...

    @contextmanager
    def briefly_connected(self) -> Iterator[None]:
        if self.in_use is not None:
            yield
            return
        self.connect()
        try:
            yield
        finally:
            self.disconnect()

    def may_pass(self, error: BaseException) -> bool:
        if not self.is_failure(error) or self.is_refusal(error):
            return False
        operational = isinstance(error, self.operational_errors)
        lasting = self.driver.is_lasting(self.of_the_driver(error))
        return (operational and not lasting) or self.is_only_read(error) or self.is_loss(error)

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        """The kinds of fields tell enough."""

    def attach(self, name: str, value: object) -> None:
        setattr(self.model, name, value)
