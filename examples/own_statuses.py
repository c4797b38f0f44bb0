"""Turn an existing table of orders into a queue, with its rows and its own statuses.

The statuses are integers here. Words work too: statuses={"R": "new", "T": "packing", ...}. An order with a status that
is not mapped does not belong to the queue: xq never takes, counts or changes it.
"""

import peewee as pw

import xq

# ---- the existing application: a table with rows

DRAFT, NEW, PACKING, SHIPPED, FAILED, CANCELLED = 1, 10, 20, 30, 90, 99
NAMES = {1: "a draft", 10: "new", 20: "packing", 30: "shipped", 90: "failed", 99: "cancelled"}

db = pw.SqliteDatabase(":memory:")


class Order(pw.Model):
    id = pw.AutoField()
    item = pw.TextField()
    address = pw.TextField(null=True)
    status = pw.IntegerField(default=DRAFT)

    class Meta:
        database = db
        table_name = "order"  # a word of SQL: xq quotes every name


def show(title: str) -> None:
    print(title)
    for order in Order.select().order_by(Order.id):
        print(f"  {order.id} {order.item}: {NAMES[order.status]}")


db.create_tables([Order])
for item, address, status in (
    ("teapot", "1 Main Street", SHIPPED),
    ("lamp", "2 Main Street", NEW),
    ("clock", None, NEW),
    ("mirror", "4 Main Street", CANCELLED),
    ("chair", None, DRAFT),
):
    Order.create(item=item, address=address, status=status)
show("Before:")

# ---- the queue

orders = xq.upgrade(
    Order,
    fields={"status": Order.status},
    features={"keep": True, "buried": True},
    statuses={"R": NEW, "T": PACKING, "D": SHIPPED, "B": FAILED},
    methods=False,  # add only `Order.xq` to the model
)
print("\nMissing:", *orders.check(), sep="\n  ")
orders.install()  # for an existing table; orders.ddl() returns the same SQL as text, for migrations
print("Missing after install():", orders.check())
print("Orders by state:", orders.stats(pretty=True).counts)

# A row with a mapped status is a task. So the code of the application stays unchanged:
Order.create(item="vase", address="6 Main Street", status=NEW)

while order := orders.take():
    print(f"{order.item} is {NAMES[order.status]}")
    if order.address:
        orders.ack(order)
    else:
        orders.bury(order)

show("\nAfter:")
print("\nOrders by state:", orders.stats(pretty=True).counts)
print("Transitions:", orders.stats(pretty=True).transition)

# ---- an operator adds the missing address, and a plain UPDATE makes the draft an order

Order.update(address="3 Main Street").where(Order.item == "clock").execute()
orders.dig(n=None)
Order.update(status=NEW, address="5 Main Street").where(Order.status == DRAFT).execute()
orders.ack_many(orders.take_many(10))
show("\nIn the end:")
print("\nOrders by state:", orders.stats(pretty=True).counts)

orders.uninstall()
print("Tables after uninstall():", db.get_tables())
db.close()
