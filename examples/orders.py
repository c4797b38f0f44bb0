"""Make a table of orders a queue: it keeps its rows, its status words, and the other program that writes to it."""

import sqlite3
import tempfile

import peewee as pw

import xq

PATH = tempfile.mkdtemp(prefix="xq-orders-") + "/shop.db"
TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, address TEXT, state TEXT DEFAULT 'draft', error TEXT)"
db = pw.SqliteDatabase(PATH)


class Order(pw.Model):
    id = pw.BigAutoField()
    item = pw.TextField()
    address = pw.TextField(null=True)
    state = pw.TextField(default="draft")
    error = pw.TextField(null=True)

    class Meta:
        database = db
        table_name = "orders"


orders = xq.upgrade(
    Order,
    fields={"status": "state", "error": "error", "attempts": True},
    features={"buried": True, "keep": True},
    statuses={"R": "new", "T": "packing", "D": "shipped", "B": "failed"},  # orders with other words are ignored
)


@orders.worker(max_attempts=5)
def pack(order: Order) -> None:
    if not order.address:
        raise xq.Bury("no address")


def shop(*statements: str) -> None:
    """Stand for the other program: it has no xq, and writes plain SQL."""
    with sqlite3.connect(PATH) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


if __name__ == "__main__":
    shop(TABLE, "INSERT INTO orders (item, address, state) VALUES ('teapot', '1 Main Street', 'shipped')")
    orders.install()  # once: the indexes, triggers and side tables of the queue
    shop("INSERT INTO orders (item, address, state) VALUES ('lamp', '2 Main Street', 'new'), ('clock', NULL, 'new')")
    shop("INSERT INTO orders (item) VALUES ('chair')")  # a draft
    orders.run(until_empty=True)
    for order in Order.select().order_by(Order.id):
        print(order.item, order.state, order.error or "")

    shop("UPDATE orders SET state = 'new', address = '3 Main Street' WHERE state = 'draft'")  # a task from now on
    orders.run(until_empty=True)
    print(orders.stats(pretty=True).counts)
    db.close()
