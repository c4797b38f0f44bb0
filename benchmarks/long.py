"""make bench-long: what takes minutes to set up."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from benchmarks import held, readers, utubes
from benchmarks.bench import TEXT_OF_BACKLOG, backlog
from benchmarks.report import Section, run

SECTIONS = [
    Section(
        "millions", "Ten million rows", TEXT_OF_BACKLOG, partial(backlog, attrgetter("millions"), ("ready", "done"))
    ),
    *held.SECTIONS,
    *readers.SECTIONS,
    *utubes.LONG,
]

if __name__ == "__main__":
    run(SECTIONS, "make bench-long")
