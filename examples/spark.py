"""Put, process and report on tasks by Spark, on this machine or on a cluster.

On this machine the queue is in a file of SQLite: `python examples/spark.py`. The workers of a cluster reach a queue on
PostgreSQL or MariaDB. `make spark-cluster` starts a cluster to play with, and says how to run this there. xq need not
be installed on its workers.
"""

import sys
import tempfile

import peewee as pw
from playhouse.db_url import connect
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import xq

folder = tempfile.mkdtemp(prefix="xq-spark-")
url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/app.db"
db = connect(url, **{"prefer_psycopg3": True} if url.startswith("postgres") else {})


class Number(xq.Task):
    number = pw.IntegerField()
    factors = pw.TextField(null=True)

    class Meta:
        database = db
        table_name = "xq_example_number"


xq.upgrade(Number, features={"keep": True, "buried": True, "history": True})


@F.udf
def factored(number: int) -> str:
    """Return the prime factors. It runs on the workers."""
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return " x ".join(map(str, found))


def work(taken: DataFrame) -> DataFrame:
    """Return the key, the field to update and the error of each task. A task with an error is buried."""
    error = F.when(F.col("number") < 1, F.format_string("%d has no factors", "number"))
    return taken.select("id", factored("number").alias("factors"), error.alias("xq_error"))


if __name__ == "__main__":
    db.create_tables([Number])
    spark = xq.spark.session(app_name="factors")  # spark-submit has chosen the master
    spark.sparkContext.setLogLevel("ERROR")

    numbers = spark.range(2000).selectExpr("CAST(id AS INT) AS number")
    # A job is put once under its name, so this program may be run again.
    numbers.write.format("xq").options(**xq.spark.options(Number), job="below 2000").mode("append").save()
    print("Worked off:", dict(xq.spark.consume(spark, Number, work, batch=500)))
    for number in Number.xq.by_state("buried"):
        print("Buried:", number.error)

    read = spark.read.format("xq").options(**xq.spark.options(Number)).load()
    print("Primes:", read.where("factors = CAST(number AS STRING)").count())
    print("The report, with plots:", xq.spark.report(spark, Number, out=f"{folder}/report").html)
    spark.stop()
    db.close()
