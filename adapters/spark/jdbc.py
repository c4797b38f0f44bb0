"""Queues through Spark's own JDBC, for a cluster that has nothing of xq: options, types made right, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from xq.adapters.spark.queues import check_session, queue_of
from xq.core.errors import BadValue, ConfigurationError
from xq.core.ports import Address
from xq.pipeline.scan import Extract, What, quoted

ROWS = 10_000  # that a server sends at once. Above 0: else PostgreSQL's driver has all of them in memory


class Snapshot(str):
    """The name of a moment, by which PostgreSQL shows it to all connections; "" where a database cannot."""

    engine: str


@contextmanager
def snapshot(queue: Any) -> Iterator[Snapshot]:
    """What is read within this block, given `snapshot=`, is of the moment at which the block began: on PostgreSQL, in
    any number of partitions and reads, of all queues of that database.

    SQLite and MariaDB share no moment between connections: there each read is of one partition, and of the moment at
    which it runs. For more, read a copy. Spark reads when a result is asked for, and each time anew: ask within the
    block. PostgreSQL cannot clear up dead rows while the block runs.
    """
    extract = queue_of(queue).pipeline.extract()
    with extract.held() as name:
        moment = Snapshot(name)
        moment.engine = extract.address.engine
        yield moment


def jdbc_options(
    queue: Any,
    what: What = "tasks",
    columns: Sequence[str] | None = None,
    partitions: int = 1,
    snapshot: Snapshot | None = None,
) -> dict[str, str]:
    """Options of `spark.read.format("jdbc")` for the tasks, history or stats of a queue, a model or tube.

    All types come right but date-times: SQLite and MariaDB, whose drivers would shift them by Java's time zone, give
    texts (in UTC as stored), and so does SQLite with dates and decimals; `at` of a history is microseconds since 1970.
    `jdbc` makes of them what they are. A password is the option of that name, which Spark does not show.

    Partitions are ranges of the key, which must be one whole number, or of the ids of the history. Each is read at its
    own moment, unless a `snapshot` is given.

    Raises BadValue for columns that there are not, more than one partition of another key, and more than one in a
    snapshot of SQLite or MariaDB; ConfigurationError for a database that JDBC cannot reach.
    """
    options, _ = _planned(queue, what, columns, partitions, snapshot)
    return options


def jdbc(
    spark: SparkSession,
    queue: Any,
    what: What = "tasks",
    columns: Sequence[str] | None = None,
    partitions: int = 1,
    snapshot: Snapshot | None = None,
) -> DataFrame:
    """The tasks, history or stats of a queue by JDBC, in the types that `format("xq")` has. See `jdbc_options`."""
    check_session(spark)
    options, types = _planned(queue, what, columns, partitions, snapshot)
    try:
        read = spark.read.format("jdbc").options(**options).load()
    except Exception as error:
        driver = options["driver"]
        if f"ClassNotFoundException: {driver}" not in str(error):
            raise
        raise ConfigurationError(
            f"Spark has no {driver}: name its jar in XQ_SPARK_JARS, or its coordinates in XQ_SPARK_PACKAGES, before "
            "the session starts (docs/spark.md), or read by format('xq')"
        ) from error
    return read.select([_made(kind, stored, F.col(quoted(name))).alias(name) for name, (kind, stored) in types.items()])


def _planned(
    queue: Any, what: What, columns: Sequence[str] | None, partitions: int, snapshot: Snapshot | None
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The options; and the type of each column, with that in which JDBC has it."""
    extract = queue_of(queue).pipeline.extract(what, snapshot or "")
    if snapshot is not None and partitions > 1 and not snapshot:
        raise BadValue(
            f"{snapshot.engine} shows several connections no common moment: a snapshot of it is read in one partition; "
            "read a copy of it in more"
        )
    stock = extract.stock(columns)
    types = {column.name: (column.type, column.stored) for column in stock.columns}
    options = {
        **reached(extract.address),
        "dbtable": f"({stock.sql}) AS xq_rows",
        "customSchema": ", ".join(f"{quoted(column.name)} {column.stored}" for column in stock.columns),
        "fetchsize": str(ROWS),
        "sessionInitStatement": stock.begin,
    }
    if partitions > 1:
        options |= _partitioned(extract, partitions, types)
    return {name: value for name, value in options.items() if value}, types


def _partitioned(extract: Extract, partitions: int, types: Mapping[str, object]) -> dict[str, str]:
    if extract.ranged not in types:
        wanted = (
            f"the column {extract.ranged!r} among those read" if extract.ranged else "a key that is one whole number"
        )
        raise BadValue(f"partitions of the {extract.what} of {extract.name} need {wanted}: read them in one")
    bounds = extract.bounds()
    if bounds is None:
        return {}
    first, last = bounds
    ranges = {"partitionColumn": extract.ranged, "lowerBound": first, "upperBound": last + 1}
    return {name: str(value) for name, value in {**ranges, "numPartitions": partitions}.items()}


# What JDBC reads -> what it is.


def _moment(text: Column) -> Column:
    """A time, of UTC where it does not say of where; whatever the session's time zone."""
    zone = F.when(text.rlike(r"(Z|[+-]\d\d:?\d\d)$"), F.lit("")).otherwise(F.lit("Z"))
    return F.concat(text, zone).cast("TIMESTAMP")


MAKES: Mapping[tuple[str, str], Callable[[Column], Column]] = {
    ("BIGINT", "TIMESTAMP"): F.timestamp_micros,
    ("STRING", "TIMESTAMP"): _moment,
    ("STRING", "DATE"): lambda text: F.substring(text, 1, 10).cast("DATE"),
}


def _made(kind: str, stored: str, column: Column) -> Column:
    if kind == stored:  # not even cast, or filters would not be pushed down
        return column
    return MAKES[stored, kind](column) if (stored, kind) in MAKES else column.cast(kind)


# How Java's drivers are told of a database.

DRIVERS = {"sqlite": "org.sqlite.JDBC", "postgres": "org.postgresql.Driver", "mariadb": "org.mariadb.jdbc.Driver"}
OF_POSTGRES = {  # libpq's name -> that of Java's driver
    **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")},
    "application_name": "ApplicationName",
    "connect_timeout": "connectTimeout",
}


def _sqlite(parameters: Mapping[str, Any]) -> str:
    path = parameters["database"]
    # rw: a file that is not there is not made.
    return f"jdbc:sqlite:{path if path.startswith('file:') else f'file:{quote(path)}?mode=rw'}"


def _postgres(parameters: Mapping[str, Any]) -> str:
    known = {java: parameters[name] for name, java in OF_POSTGRES.items() if name in parameters}
    more = f"?{urlencode(known, quote_via=quote)}" if known else ""
    return f"jdbc:postgresql://{_servers(parameters, 5432)}/{quote(str(parameters.get('dbname', '')), safe='')}{more}"


def _mariadb(parameters: Mapping[str, Any]) -> str:
    return f"jdbc:mariadb://{_servers(parameters, 3306)}/{quote(str(parameters['database']), safe='')}"


def _servers(parameters: Mapping[str, Any], port: int) -> str:
    hosts = str(parameters.get("host") or "localhost").split(",")
    ports = [each or str(port) for each in str(parameters.get("port") or "").split(",")]
    if socket := parameters.get("unix_socket") or next((host for host in hosts if host.startswith(("/", "@"))), None):
        raise ConfigurationError(
            f"JDBC cannot reach the server by its socket {socket}: give the model's database a host of TCP, "
            "or read by format('xq')"
        )
    ports *= len(hosts) if len(ports) == 1 else 1
    return ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in zip(hosts, ports))


URLS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "mariadb": _mariadb,
}


def reached(address: Address) -> dict[str, str]:
    """The options by which Java's driver finds a database. Raises ConfigurationError where it cannot."""
    parameters = address.parameters
    options = {"url": URLS[address.engine](parameters), "driver": DRIVERS[address.engine]}
    known = {"user": parameters.get("user"), "password": address.password}
    if address.engine == "sqlite":
        known["busy_timeout"] = str(round(1000 * parameters["timeout"]))
    return options | {name: value for name, value in known.items() if value is not None}
