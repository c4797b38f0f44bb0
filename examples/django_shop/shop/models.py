"""The products, the customers, and the orders: an ordinary table that is also a queue."""

from __future__ import annotations

from django.db import models

from xq.adapters.django import queue


def euros(cents: int) -> str:
    return f"{cents / 100:.2f}"


class Product(models.Model):
    name = models.CharField(max_length=50)
    cents = models.IntegerField()

    def __str__(self) -> str:
        return self.name

    @property
    def price(self) -> str:
        return euros(self.cents)


class Customer(models.Model):
    name = models.CharField(max_length=50)
    email = models.EmailField(unique=True)

    def __str__(self) -> str:
        return self.name


@queue(
    fields={"status": "status", "attempts": True, "error": True},
    features={"delayed": True, "buried": True, "keep": True},
    statuses={"R": "new", "W": "later", "T": "packing", "D": "mailed", "B": "failed"},
)
class Order(models.Model):
    """An order. Its status belongs to the queue, except "cancelled", which the queue ignores."""

    customer = models.ForeignKey(Customer, models.CASCADE)
    product = models.ForeignKey(Product, models.PROTECT)
    pieces = models.PositiveIntegerField(default=1)
    placed_at = models.DateTimeField(auto_now_add=True)
    invoiced = models.BooleanField(default=False)
    status = models.CharField(max_length=10, default="new")

    def __str__(self) -> str:
        return f"order {self.pk}"

    def reason(self) -> str:
        """Return the first line of the error, without the traceback."""
        return (self.xq_error or "").partition("\n")[0]

    @property
    def price(self) -> str:
        return euros(self.pieces * self.product.cents)
