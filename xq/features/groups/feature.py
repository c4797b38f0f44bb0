"""The data of the feature `groups`: tasks under a name, whose last end puts another task."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings
from xq.features.groups.settler import Groups
from xq.features.groups.slice import GroupsSlice


def groups(on: On = True) -> Feature:
    """Put tasks as members of groups, by `Page.xq.group(name)`. The last end of a group's members puts its `then`."""
    kept, methods = Settings(groups=True), ("group", "groups")
    return Feature("groups", needs=("group",), settings=kept, methods=methods, slice=GroupsSlice, settler=Groups)
