"""Write user-written features into migrations."""

from __future__ import annotations

from dataclasses import MISSING, fields

from django.db.migrations.serializer import BaseSerializer, serializer_factory
from django.db.migrations.writer import MigrationWriter

from xq.core.machine import Choice, Column, Detour, Feature, Guard, Marker, Settings, Timer, Transition


class _Parts(BaseSerializer):
    """One of the data classes of a feature: serializes the values that are not defaults."""

    def serialize(self) -> tuple[str, set[str]]:
        kind, imports, parts = type(self.value), {"import xq.core.machine"}, []
        for field in fields(self.value):
            value = getattr(self.value, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if value != default:
                text, needed = serializer_factory(value).serialize()
                parts.append(f"{field.name}={text}")
                imports |= needed
        return f"xq.core.machine.{kind.__name__}({', '.join(parts)})", imports


class _Marker(BaseSerializer):
    def serialize(self) -> tuple[str, set[str]]:
        return f"xq.core.machine.{self.value.name}", {"import xq.core.machine"}


def register() -> None:
    """Register the serializers with Django."""
    for kind in (Choice, Column, Detour, Feature, Guard, Settings, Timer, Transition):
        MigrationWriter.register_serializer(kind, _Parts)
    MigrationWriter.register_serializer(Marker, _Marker)
