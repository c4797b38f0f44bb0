"""Spark for tests: sessions of few rows and seconds, also in the programs that tests start.

Compiling, and planning anew as a query goes on, take longer than they save there.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

SETTINGS = """\
spark.sql.adaptive.enabled false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.codegen.wholeStage false
"""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def variables(folder: Path) -> dict[str, str]:
    """The environment variables with which Java starts such sessions; `folder` is for files that they name."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return {}
    settings = folder / "conf" / "spark-defaults.conf"
    settings.parent.mkdir()
    settings.write_text(SETTINGS)
    home = _home(folder / "home", Path(found.origin).parent)
    return {"SPARK_SUBMIT_OPTS": JAVA, "SPARK_CONF_DIR": str(settings.parent), "SPARK_HOME": str(home)}


def _home(home: Path, package: Path) -> Path:
    """Make a home of Spark whose workers import PySpark from a folder: from its zip file, each compiles it anew."""
    library = home / "python" / "lib"
    zipped = library / "pyspark.zip"
    zipped.mkdir(parents=True)
    (zipped / "pyspark").symlink_to(package)
    for other in (package / "python" / "lib").glob("py4j*"):
        (library / other.name).symlink_to(other)
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(package / name)
    return home
