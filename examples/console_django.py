"""The console of a queue at a URL of a project of Django, behind the login of its staff.

    python examples/console_django.py            asks the project three times, and ends

A project of your own needs the lines below `# urls.py`; the rest makes this file a project.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import django
from django.conf import settings

SECRET = "only for this example"

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(Path(tempfile.mkdtemp(prefix="xq-console-"), "app.db")),
        }
    },
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "xq.adapters.django",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY=SECRET,
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                    "django.template.context_processors.request",
                ]
            },
        }
    ],
    USE_TZ=True,
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import include, path  # noqa: E402

import xq.serve  # noqa: E402
from xq.adapters.django import upgrade  # noqa: E402
from xq.adapters.django.console import console, user_of  # noqa: E402


class Mail(models.Model):
    to = models.TextField()
    status = models.CharField(max_length=1, default="R")
    error = models.TextField(null=True)

    class Meta:
        app_label = "mail"


mails: Any = upgrade(Mail, fields={"status": "status", "error": "error"}, features={"buried": True, "history": True})

# urls.py
queues = xq.serve.app([Mail], user=user_of, hosts=["*"])  # Django checks the host: ALLOWED_HOSTS
urlpatterns = [path("admin/", admin.site.urls), path("queues/", include(console(queues)))]


def main() -> None:
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Mail)
    mails.install()
    mails.put({"to": "ann@example.org"})
    mails.bury_many(mails.take_many(1), error="TimeoutError: no answer")
    User.objects.create_user("bob")
    User.objects.create_superuser("ann")

    browser = Client(headers={"Accept": "text/html", "Sec-Fetch-Site": "same-origin"})
    answer = browser.get("/queues/")
    print("Nobody:", answer.status_code, answer.headers["Location"])
    browser.force_login(User.objects.get(username="bob"))
    print("Bob is not of the staff:", browser.get("/queues/").status_code)
    browser.force_login(User.objects.get(username="ann"))
    print("Ann looks:", browser.get("/queues/").status_code)
    form = {"verb": "dig", "scope": "selected", "keys": "1", "reason": "it answers again"}
    kind = "application/x-www-form-urlencoded"
    print("Ann digs:", browser.post("/queues/q/Mail/act", urlencode(form), content_type=kind).status_code)
    last = mails.history(1)[-1]
    print(f"The history: {last.event} by {last.actor}: {last.reason}")


if __name__ == "__main__":
    main()
