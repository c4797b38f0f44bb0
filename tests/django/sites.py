"""The admin's site of one test: the queue in it, and who may do what."""

from __future__ import annotations

import html
import re
import types
from collections.abc import Iterable
from typing import Any

import pytest
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.test import Client, override_settings
from django.urls import path

from xq.adapters.django.admin import QueueAdmin

TABLES = (ContentType, Permission, Group, User, LogEntry, Session)


EVERYTHING = {"delayed": True, "buried": True, "keep": True, "ttr": 60}


class Site:
    """An admin's site at /admin/ with one model, whose list has at most ten rows a page."""

    def __init__(self, model: Any, of_model: Any = None, **attributes: Any) -> None:
        self.model = model
        ContentType.objects.clear_cache()  # of another test's database
        site = admin.AdminSite()
        own = {"list_display": ["name"], "list_per_page": 10, "fields": ["name", "size", "status"], **attributes}
        site.register(model, of_model or type("TaskAdmin", (QueueAdmin, admin.ModelAdmin), own))
        self.admin = site._registry[model]
        self.urls = types.ModuleType("urls_of_a_test")
        vars(self.urls)["urlpatterns"] = [path("admin/", site.urls)]
        self.list = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"

    def user(self, *may: str) -> Any:
        """Somebody who may do this with the model: "view", "change", "delete"; all of it when nothing is said."""
        name = "-".join(may) or "root"
        user = User.objects.create_user(name, password="secret", is_staff=True, is_superuser=not may)
        about = ContentType.objects.get_for_model(self.model)
        for verb in may:
            codename = f"{verb}_{self.model._meta.model_name}"
            known, _ = Permission.objects.get_or_create(codename=codename, content_type=about, defaults={"name": verb})
            user.user_permissions.add(known)
        return user

    def client(self, *may: str) -> Client:
        client = Client()
        client.force_login(self.user(*may))
        return client

    def act(self, client: Client, action: str, tasks: Iterable[Any], **more: str) -> list[str]:
        """What the page says after an action on tasks."""
        keys = [str(task.pk) for task in tasks]
        data = {"action": action, "_selected_action": keys, "select_across": "0", **more}
        return messages_of(client.post(self.list, data, follow=True))


def messages_of(response: Any) -> list[str]:
    page = response.content.decode().partition('<ul class="messagelist">')[2].partition("</ul>")[0]
    return [html.unescape(message) for message in re.findall(r"<li[^>]*>(.*?)</li>", page, re.DOTALL)]


def actions_of(response: Any) -> list[str]:
    """The names of the actions that a list offers."""
    offered = response.content.decode().partition('<select name="action"')[2].partition("</select>")[0]
    return re.findall(r'<option value="(\w+)"', offered)


def one_of_each(Task: Any) -> dict[str, Any]:
    """A task in each state, by its letter."""
    tasks = {letter: Task.put({"name": f"a task in {letter}"}) for letter in "BDTR"}
    Task.take().bury()
    Task.take().ack()
    Task.take()
    tasks["W"] = Task.put({"name": "a task in W"}, delay=3600)
    return tasks


@pytest.fixture
def manage(make):
    """Makes a queue, and the admin's site that has it."""
    undo = []

    def made(features=EVERYTHING, admin=None, **options):
        attributes = {"__str__": lambda task: str(task.name), **options.pop("attributes", {})}
        meta = {"app_label": "shop", "apps": Apps(["tests.django.shop"])}  # the admin asks for its app and relations
        model = make.database.model(meta=meta, **attributes)
        Task = make(features, model=model, **options)
        make.database.create(*TABLES)
        site = Site(Task, **(admin or {}))
        here = override_settings(ROOT_URLCONF=site.urls)
        here.enable()
        undo.append(here)
        return Task, site

    yield made
    for here in undo:
        here.disable()
