"""Process orders with Spark, in batches of 400. One transaction writes the results of a batch and acks its tasks.

An order with an invalid price fails alone: it is buried with the error. The program then corrects the price and digs
it.
"""

import tempfile
from pathlib import Path

import peewee as pw
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import xq

db = pw.SqliteDatabase(str(Path(tempfile.mkdtemp(prefix="xq-orders-")) / "orders.db"))


class Order(pw.Model):
    id = pw.AutoField()
    customer = pw.TextField()
    price = pw.TextField()  # as the customer wrote it
    total = pw.FloatField(null=True)  # with the tax
    error = pw.TextField(null=True)
    status = pw.CharField(max_length=1, default="R")

    class Meta:
        database = db


orders = xq.upgrade(Order, fields={"status": "status", "error": "error"}, features={"keep": True, "buried": True})
db.create_tables([Order])


def work(taken: DataFrame) -> DataFrame:
    """Return the key, the field to update and the error of each task; the error is null if the price is a number."""
    price = F.try_to_number("price", F.lit("9999.99"))
    error = F.when(price.isNull(), F.concat(F.lit("no price: "), "price"))
    return taken.select("id", (price * 1.19).cast("double").alias("total"), error.alias("xq_error"))


orders.put_many({"customer": f"customer {n}", "price": f"{n}.50"} for n in range(1, 1000))
orders.put({"customer": "customer 1000", "price": "a lot"})

spark = xq.spark.session(driver_memory="1g")
spark.sparkContext.setLogLevel("ERROR")

print("Processed:", dict(xq.spark.consume(spark, orders, work, batch=400)))
for order in orders.by_state("B"):
    print(f"Buried: {order.customer}, {order.error}")
    Order.update(price="1000.00").where(Order.id == order.id).execute()
    orders.dig(order)
print("After the correction:", dict(xq.spark.consume(spark, orders, work)))

totals = spark.read.format("xq").options(**xq.spark.options(orders)).load()
for state, n, total in totals.groupBy("state").agg(F.count("*"), F.sum("total")).collect():
    print(f"{state}: {n} orders, {total:.2f} in all")
spark.stop()
db.close()
