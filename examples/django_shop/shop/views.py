"""The page of the shop, and its requests."""

from __future__ import annotations

from pathlib import Path

from django import forms
from django.conf import settings
from django.db import transaction
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from .models import Customer, Order, Product
from .work import invoice as write_invoice


class OrderForm(forms.Form):
    product = forms.ModelChoiceField(Product.objects.all())
    pieces = forms.IntegerField(min_value=1, max_value=99, initial=1)
    name = forms.CharField(max_length=50)
    email = forms.EmailField()


def shop(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    if form.is_valid():
        wanted = form.cleaned_data
        with transaction.atomic():  # the order, its mail and its invoice: all or none
            customer, _ = Customer.objects.get_or_create(email=wanted["email"], defaults={"name": wanted["name"]})
            order = Order.xq.put({"customer": customer, "product": wanted["product"], "pieces": wanted["pieces"]})
            write_invoice.enqueue(order.pk)
        return redirect("shop")
    return render(request, "shop/shop.html", {"products": Product.objects.order_by("pk"), "form": form})


def orders(request: HttpRequest) -> HttpResponse:
    """Return the last orders and their number by status. The page reads them twice a second."""
    last = Order.objects.select_related("customer", "product").order_by("-pk")[:20]
    shown = [
        {
            "number": order.pk,
            "what": f"{order.pieces} x {order.product} for {order.customer}",
            "status": order.status,
            "invoiced": order.invoiced,
            "error": order.reason(),
        }
        for order in last
    ]
    counts = {Order.xq.statuses[letter]: n for letter, n in Order.xq.stats().counts.items()}
    return JsonResponse({"orders": shown, "counts": counts})


@require_POST
def cancel(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel an order that is not being packed. The plain update takes it out of the queue."""
    changed = Order.objects.filter(pk=number, status__in=["new", "later", "failed"]).update(status="cancelled")
    return JsonResponse({"cancelled": bool(changed)})


def invoice(request: HttpRequest, number: int) -> FileResponse:
    file = Path(settings.INVOICES, f"{number}.html")
    if not file.exists():
        raise Http404(f"the invoice of order {number} is not written yet")
    return FileResponse(file.open("rb"), content_type="text/html")
