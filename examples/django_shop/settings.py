"""Settings of the shop. Environment variables: SHOP_DATA, the folder for its files, and DATABASE_URL."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SHOP_DATA", HERE / "data"))

ENGINES = {"sqlite": "sqlite3", "postgres": "postgresql", "postgresql": "postgresql", "mariadb": "mysql"}
# A transaction that reads and then writes must begin as a writer: otherwise SQLite refuses its write if another
# connection has written meanwhile. It waits for other writers.
OPTIONS = {"sqlite": {"transaction_mode": "IMMEDIATE", "timeout": 20}}


def database(url: str) -> dict[str, Any]:
    """Return an entry of DATABASES for sqlite:///shop.db, postgres://me:secret@localhost/shop or mariadb://..."""
    parts = urlsplit(url)
    if parts.scheme == "mariadb":
        import pymysql  # a driver in pure Python, in place of mysqlclient

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}",
        "NAME": parts.path[1:],
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": OPTIONS.get(parts.scheme, {}),
    }


DATABASES = {"default": database(os.environ.get("DATABASE_URL", f"sqlite:///{DATA / 'shop.sqlite3'}"))}

# The queue on Order mails the orders. Invoices are tasks of django.tasks, on a queue of their own.
TASKS = {"default": {"BACKEND": "xq.adapters.django.tasks.XQBackend"}}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_tasks",
    "xq.adapters.django",
    "xq.adapters.django.tasks",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"  # the post office: a folder
EMAIL_FILE_PATH = DATA / "mails"
INVOICES = DATA / "invoices"

DEBUG = True
SECRET_KEY = "of a shop that only this machine can reach"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
