"""What a report leaves in its folder, so that the next one goes on from it: `report(..., since="last")`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from xq.adapters.spark.files import Folder
from xq.core.errors import BadValue
from xq.pipeline.scan import Checkpoint

FOLDER = ".last"
FILE = f"{FOLDER}/report.json"
TASKS, FACTS = "tasks", "facts"  # tables in that folder


@dataclass(frozen=True)
class Last:
    """A report: its span, in µs since 1970, how far it has read the history of each queue, and when that begins."""

    since: int
    until: int
    checkpoints: Mapping[str, Checkpoint]
    begun: Mapping[str, int]

    @classmethod
    def of(cls, folder: Folder, names: Iterable[str]) -> Last:
        """Return the last report in a folder. Raises BadValue if there is none of these queues to go on from."""
        if not folder.exists(FILE):
            raise BadValue(
                f"{folder.path} has no report to go on from: since='last' needs one of the same queues, made without "
                "archive= by this version of xq; make it with another since first"
            )
        found = json.loads(folder.read(FILE))
        found["checkpoints"] = {name: tuple(checkpoint) for name, checkpoint in found["checkpoints"].items()}
        last = cls(**found)
        if set(last.checkpoints) != set(names):
            raise BadValue(
                f"the report in {folder.path} is of {', '.join(sorted(last.checkpoints))}, and this one of "
                f"{', '.join(sorted(names))}: since='last' needs the same queues"
            )
        return last

    def write(self, folder: Folder, name: str) -> None:
        folder.write(name, json.dumps(asdict(self)))
