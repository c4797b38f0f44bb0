"""Put, work off and read tasks by Spark, on this machine or on a cluster.

On this machine the queue is in a file of SQLite: `python examples/spark_cluster.py`. The workers of a cluster reach a
queue on PostgreSQL or MariaDB. `make spark-cluster` starts a cluster to play with, and says how to run this there:
`spark-submit --master spark://... examples/spark_cluster.py postgresql://user@host/database`. xq need not be installed
on its workers.
"""

import sys
import tempfile

import peewee as pw
from playhouse.db_url import connect
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import xq

url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{tempfile.mkdtemp(prefix='xq-numbers-')}/app.db"
db = connect(url, **{"prefer_psycopg3": True} if url.startswith("postgres") else {})


class Number(pw.Model):
    id = pw.AutoField()
    number = pw.IntegerField()
    factors = pw.TextField(null=True)
    status = pw.CharField(max_length=1, default="R")

    class Meta:
        database = db
        table_name = "xq_example_number"


numbers = xq.upgrade(Number, fields={"status": "status"}, features={"keep": True, "buried": True})
db.create_tables([Number])

spark = xq.spark.session(app_name="factors")  # spark-submit has chosen the master
spark.sparkContext.setLogLevel("ERROR")


@F.udf("string")
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
    return taken.select("id", factored("number").alias("factors"))


frame = spark.range(1001, 3001).selectExpr("CAST(id AS INT) AS number")
# A job is put once under its name, so this program may be run again.
frame.write.format("xq").options(**xq.spark.options(numbers), job="1001 to 3000").mode("append").save()
print("Worked off:", dict(xq.spark.consume(spark, numbers, work, batch=500)))

read = spark.read.format("xq").options(**xq.spark.options(numbers)).load()
primes = F.count_if(~F.contains("factors", F.lit("x")))
found = read.agg(F.count("*"), primes, F.max_by("factors", F.length("factors")))
for count, of_one, longest in found.collect():
    print(f"{count} numbers, {of_one} of them prime; the most factors: {longest}")
spark.stop()
db.close()
