from django.contrib import admin

from xq.adapters.django.admin import QueueAdmin

from .models import Customer, Order, Product


@admin.register(Order)
class OrderAdmin(QueueAdmin, admin.ModelAdmin):
    list_display = ["__str__", "customer", "product", "pieces", "xq_state", "xq_attempts", "xq_failure"]
    list_select_related = ["customer", "product"]


admin.site.register([Product, Customer])
