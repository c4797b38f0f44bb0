"""A Peewee model with the fields that queues use: `xq.Task`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import peewee as pw

from xq.core.schema import OWNER_LENGTH, TRACE_LENGTH

if TYPE_CHECKING:
    from xq.methods import Verbs

    class Model(Verbs, pw.Model):
        pass
else:
    Model = pw.Model


class ShortText(pw.CharField):
    """A CharField that becomes a TEXT in SQLite's STRICT tables, where VARCHAR is unknown."""

    def ddl_datatype(self, ctx: Any) -> Any:
        return pw.SQL("TEXT") if self.model._meta.strict_tables else super().ddl_datatype(ctx)


class LongText(pw.TextField):
    """A TextField that MySQL and MariaDB make a MEDIUMTEXT: their TEXT holds 65,535 bytes."""

    def ddl_datatype(self, ctx: Any) -> Any:
        database = self.model._meta.database
        is_short = isinstance(getattr(database, "obj", database), pw.MySQLDatabase)
        return pw.SQL("MEDIUMTEXT") if is_short else super().ddl_datatype(ctx)


class Task(Model):
    """A base model with the fields that queues use: `upgrade` needs no `fields=` for models that inherit from it.

    The features unique and utube compare a field of yours, which `fields=` names.

    It is abstract: it has no database and no table. Each model that inherits from it has a table of its own, with the
    fields before its own ones. A field of the same name replaces one of these, and a primary key the `id`. (A tube's
    task is `xq.tubes.Task`.)
    """

    id: Any = pw.BigAutoField()  # each put uses up a number, and those of 32 bits end
    status = ShortText(max_length=1, default="R")
    runat = pw.DoubleField(null=True)
    deadline = pw.DoubleField(null=True)
    priority = pw.IntegerField(default=0, constraints=[pw.SQL("DEFAULT 0")])  # also for other programs' INSERTs
    tube = ShortText(null=True)
    owner = ShortText(max_length=OWNER_LENGTH, null=True)
    attempts = pw.IntegerField(default=0, constraints=[pw.SQL("DEFAULT 0")])
    ttl = pw.DoubleField(null=True)
    ttr = pw.DoubleField(null=True)
    error = pw.TextField(null=True)
    trace = ShortText(max_length=TRACE_LENGTH, null=True)
