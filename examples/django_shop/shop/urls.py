"""The addresses of the shop."""

from django.contrib import admin
from django.urls import path

from . import views

urlpatterns = [
    path("", views.shop, name="shop"),
    path("orders.json", views.orders, name="orders"),
    path("orders/<int:number>/cancel", views.cancel, name="cancel"),
    path("invoices/<int:number>", views.invoice, name="invoice"),
    path("admin/", admin.site.urls),
]
