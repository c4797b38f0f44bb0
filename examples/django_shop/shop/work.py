"""The work for each order: the queue on Order mails it, and a task of django.tasks writes its invoice."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.conf import settings
from django.core.mail import send_mail
from django.template.loader import render_to_string
from django_tasks import task

from .models import Order


class UndeliverableError(Exception):
    """The mailbox does not exist."""


@Order.xq.worker(max_attempts=2)
def mail(order: Order) -> None:
    """Mail an order. `manage.py xq_worker shop.Order` calls this for each order."""
    _wait_for_the_post()
    if order.customer.email.endswith("@nowhere.example"):
        raise UndeliverableError(f"no mailbox {order.customer.email}")
    text = render_to_string("shop/mail.txt", {"order": order})
    send_mail(f"Your order {order.pk}", text, "shop@localhost", [order.customer.email])


@task()
def invoice(number: int) -> None:
    """Write the invoice of an order. `manage.py xq_worker` calls this."""
    order = Order.objects.get(pk=number)
    settings.INVOICES.mkdir(parents=True, exist_ok=True)
    Path(settings.INVOICES, f"{number}.html").write_text(render_to_string("shop/invoice.html", {"order": order}))
    Order.objects.filter(pk=number).update(invoiced=True)  # the application may write its own fields at any time


def _wait_for_the_post() -> None:
    """Wait until the file SHOP_POST exists, if that variable is set."""
    office = os.environ.get("SHOP_POST")
    while office and not Path(office).exists():
        time.sleep(0.05)
