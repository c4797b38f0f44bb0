"""A field in the task table."""

from __future__ import annotations

import json
from typing import Any

from django.db import models


class JSONTextField(models.TextField):
    """JSON as ASCII text.

    The databases' JSON types refuse values that Python's JSON allows: zero bytes, lone surrogates, NaN.
    """

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        return None if value is None else json.loads(value)

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else json.dumps(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)
