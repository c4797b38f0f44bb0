"""Read queues through Spark's own JDBC source, on a cluster without xq: options, type conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from xq.adapters.spark.queues import check_session, extract_of
from xq.api import queue_of
from xq.core.connections import Address
from xq.core.errors import BadValue, ConfigurationError
from xq.pipeline.scan import SLICE, WHOLE, Extract, Part, What, quoted

ROWS = 10_000  # per round trip; with 0 PostgreSQL's driver would load all rows into memory


def jdbc_options(
    queue: Any,
    what: What = "tasks",
    columns: Sequence[str] | None = None,
    partitions: int = 1,
    read_from: str | None = None,
) -> dict[str, str]:
    """Return options for `spark.read.format("jdbc")` to read the tasks, history or stats of a queue, a model or tube.

    Most columns arrive in their types. SQLite and MariaDB return date-times as text (UTC), since their drivers would
    shift them by Java's time zone; SQLite also returns dates and decimals as text. A history's `at` is microseconds
    since 1970. `jdbc` converts these. The database applies no DataFrame filter: Spark does. The password is an option
    that Spark does not show.

    Partitions are ranges in the key, which must be one integer, or in the history's ids. Each partition sees its own
    moment. For one moment, use one partition, or read a copy of the database. `read_from` is the URL of a replica,
    which is read instead.

    Raises BadValue for unknown columns, and for more than one partition with another key; ConfigurationError for a
    database that JDBC cannot reach.
    """
    options, _ = _planned(extract_of(queue, what, read_from), columns, partitions)
    return options


def jdbc(
    spark: SparkSession, queue: Any, what: What = "tasks", columns: Sequence[str] | None = None, partitions: int = 1
) -> DataFrame:
    """Return a queue's tasks, history or stats through JDBC, in the types of `format("xq")`.

    See `jdbc_options`. A history is read as it was at this call, in `partitions` or more, each by a short statement.
    """
    check_session(spark, queue_of(queue))
    return by_jdbc(spark, extract_of(queue, what), columns, partitions)


def by_jdbc(spark: SparkSession, extract: Extract, columns: Sequence[str] | None, partitions: int = 1) -> DataFrame:
    """Return an extract's rows through JDBC. Raises ConfigurationError if that cannot reach the database."""
    slices = extract.ranges(partitions, longest=SLICE) if extract.order else []
    is_cut = len(slices) > 1 and not any(column.asked for column in extract.chosen(columns))
    is_cut = is_cut and (columns is None or extract.ranged in columns)
    now = slices[0]._replace(span=None) if is_cut else WHOLE
    options, types = _planned(extract, columns, 1 if is_cut else partitions, now)
    try:
        if is_cut:
            spans = ["{} BETWEEN {} AND {}".format(extract.ranged, *part.span) for part in slices if part.span]
            read = spark.read.jdbc(options.pop("url"), options.pop("dbtable"), predicates=spans, properties=options)
        else:
            read = spark.read.format("jdbc").options(**options).load()
    except Exception as error:
        driver = options["driver"]
        if f"ClassNotFoundException: {driver}" not in str(error):
            raise
        raise ConfigurationError(
            f"Spark has no {driver}: name its jar in XQ_SPARK_JARS, or its coordinates in XQ_SPARK_PACKAGES, before "
            "the session starts (docs/spark.md), or read by format('xq')"
        ) from None  # a hundred lines of Java's
    return read.select([_made(kind, stored, F.col(quoted(name))).alias(name) for name, (kind, stored) in types.items()])


def _planned(
    extract: Extract, columns: Sequence[str] | None, partitions: int, among: Part = WHOLE
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the options, and for each column its type and the type in which JDBC returns it."""
    sql, stored = extract.stock(columns, among)
    types = {column.name: (column.type, column.stored) for column in stored}
    options = {
        **reached(extract.address),
        "dbtable": f"({sql}) AS xq_rows",
        "customSchema": ", ".join(replace(column, type=column.stored).declared for column in stored),
        "fetchsize": str(ROWS),
        "sessionInitStatement": extract.begin,
        "pushDownPredicate": "false",  # databases compare texts by their collations
    }
    if partitions > 1:
        options |= _partitioned(extract, partitions, types)
    return {name: value for name, value in options.items() if value}, types


def _partitioned(extract: Extract, partitions: int, types: Mapping[str, object]) -> dict[str, str]:
    if extract.ranged not in types:
        wanted = (
            f"the column {extract.ranged!r} among those read" if extract.ranged else "a key that is one whole number"
        )
        raise BadValue(f"partitions of the {extract.what} of {extract.name} need {wanted}: use one partition")
    bounds = extract.bounds()
    if bounds is None:
        return {}
    first, last = bounds
    ranges = {"partitionColumn": extract.ranged, "lowerBound": first, "upperBound": last + 1}
    return {name: str(value) for name, value in {**ranges, "numPartitions": partitions}.items()}


# The type that JDBC returns -> how it is converted.


def _moment(text: Column) -> Column:
    """Return text as a moment, in UTC if the text has no time zone, whatever the Spark session's time zone."""
    zone = F.when(text.rlike(r"(Z|[+-]\d\d:?\d\d)$"), F.lit("")).otherwise(F.lit("Z"))
    return F.concat(text, zone).cast("TIMESTAMP")


MAKES: Mapping[tuple[str, str], Callable[[Column], Column]] = {
    ("BIGINT", "TIMESTAMP"): F.timestamp_micros,
    ("STRING", "TIMESTAMP"): _moment,
    ("ARRAY<BIGINT>", "ARRAY<TIMESTAMP>"): lambda array: F.transform(array, F.timestamp_micros),
    ("STRING", "DATE"): lambda text: F.substring(text, 1, 10).cast("DATE"),
}


def _made(kind: str, stored: str, column: Column) -> Column:
    if kind == stored:
        return column
    return MAKES[stored, kind](column) if (stored, kind) in MAKES else column.cast(kind)


# How Java's drivers address a database.

DRIVERS = {"sqlite": "org.sqlite.JDBC", "postgres": "org.postgresql.Driver", "innodb": "org.mariadb.jdbc.Driver"}
OF_POSTGRES = {  # libpq's parameter -> the Java driver's
    **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")},
    "application_name": "ApplicationName",
    "connect_timeout": "connectTimeout",
}

LIMITS: Mapping[str, Mapping[str, str]] = {  # as those of the drivers of Python, as far as Java's have them
    "sqlite": {},
    "postgres": {"connectTimeout": "3", "tcpKeepAlive": "true"},
    "innodb": {"connectTimeout": "3000", "tcpKeepIdle": "2", "tcpKeepInterval": "2", "tcpKeepCount": "3"},
}


def _sqlite(parameters: Mapping[str, Any]) -> str:
    path = parameters["database"]
    # rw: the driver must not create a missing file.
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


URLS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"sqlite": _sqlite, "postgres": _postgres, "innodb": _mariadb}


def reached(address: Address) -> dict[str, str]:
    """Return the options with which Java's driver connects. Raises ConfigurationError if it cannot."""
    parameters = address.parameters
    options = {"url": URLS[address.engine](parameters), "driver": DRIVERS[address.engine]}
    known = {"user": parameters.get("user"), "password": address.password, **LIMITS[address.engine]}
    if address.engine == "sqlite":
        known["busy_timeout"] = str(round(1000 * parameters["timeout"]))
    return options | {name: value for name, value in known.items() if value is not None}
