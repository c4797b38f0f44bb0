"""What installing has in common on PostgreSQL and MariaDB."""

from __future__ import annotations

import re
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.errors import ConfigurationError
from xq.core.kinds import OUTCOME_UNKNOWN
from xq.sql.installer.installer import Installer
from xq.sql.shared import QUEUES


class ServerInstaller(Installer):
    """The records of xq stand in the connection's first schema, and it uses the server's locks."""

    others: ClassVar[str]  # a query for the other schemas that have xq's records
    from_there: ClassVar[str]  # advice how to use another schema's records; the name follows

    @property
    def like_mine(self) -> str:
        """The LIKE pattern, as SQL, for the names that this queue's objects have."""
        escaped = re.sub("[|%_]", r"|\g<0>", self.terms.name(""))  # | has no other meaning in SQL or re
        return f"{self.terms.literal(escaped + '%')} ESCAPE '|'"

    def not_online(self, store: Connections) -> str:
        # The triggers count its heads, which must not change until they are built.
        heads = self.terms.heads
        return f"the heads of its {heads.name}s are built while no row changes: call install()" if heads else ""

    def refuse(self, store: Connections) -> None:
        super().refuse(store)
        if unfit := self.unfit(store):
            raise ConfigurationError(f"{store.name} cannot be installed: {unfit}")

    def unfit(self, store: Connections) -> str | None:
        ((first,),) = store.execute(f"SELECT {self.terms.first_schema}")
        here = self.terms.source.schema or first
        for (other,) in store.execute(self.others):
            # A process whose first schema has the table records it without the schema.
            names = [f"{here}.{self.terms.source.name}", *([self.terms.source.name] if other == here else [])]
            listed, records = ", ".join(map(self.terms.literal, names)), f"{self.terms.quote(other)}.{QUEUES}"
            try:
                found = store.execute(f"SELECT name FROM {records} WHERE name IN ({listed})")
            except Exception as error:
                if store.classify(error) in OUTCOME_UNKNOWN:
                    raise
                continue  # no right to read it; PostgreSQL's query omits those, since an error ends a transaction
            for (name,) in found:
                return (
                    f"{records} names its table as {name}, so other processes use it from there, and neither would "
                    f"see which of the others live: {self.from_there} {other} as they do, or, if none of them is "
                    f"left, DELETE FROM {records} WHERE name = {self.terms.literal(name)}"
                )
        return None
