"""Targets on the command line: `shop.Order`, where DJANGO_SETTINGS_MODULE names a project's settings."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from xq.core.errors import ConfigurationError, shown


def find(text: str) -> Any:
    """Return the model with a label, or None if there are no settings, or no such model.

    Any other target is returned as None, with Django set up, so that it may be a module in the project. Raises
    ConfigurationError if the settings cannot be imported.
    """
    settings = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not settings or find_spec("django") is None:
        return None
    import django
    from django.apps import apps

    try:
        django.setup()
    except ImportError as error:
        raise ConfigurationError(
            f"DJANGO_SETTINGS_MODULE is {shown(settings)}, which cannot be imported ({error}): run the command in the "
            "folder of manage.py"
        ) from error
    try:
        return apps.get_model(text)
    except (LookupError, ValueError):
        return None
