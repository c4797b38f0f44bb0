"""The console's page of a queue's activity, from the table that `xq.spark.stream()` writes."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import xq
from tests.contract.test_console import EVIL, FEATURES, cells, texts
from tests.support.console import visitor
from tests.timing import in_sequence
from xq import serve

TABLE = "activity"
MOVES = {"put": "XR", "take": "RT", "ack": "TD", "bury": "TB", "kill": "RX", "ttl": "RX"}  # by event


@pytest.fixture
def queue(make_shared):
    return make_shared(FEATURES, roles=("runat", "owner", "tube")).xq


@in_sequence
def now() -> float:
    return time.time()


def write(queue: Any, rows: Iterable[tuple[Any, ...]], name: str = "Task") -> None:
    """Write (bucket, tube, event, n) as the stream does: a batch of the next number."""
    rollup, batch = queue.pipeline.rollup(TABLE), 0
    rollup.install()
    counted = [(name, tube, "minute", int(at // 60 * 60), *MOVES[event], event, n) for at, tube, event, n in rows]
    while not rollup.add("a stream", batch, counted):
        batch += 1


def page(queue: Any, *, activity: Any = TABLE, **query: str) -> Any:
    return visitor(serve.app([queue], activity=activity)).get("/q/Task/activity", params=query)


def numbers(queue: Any, **query: str) -> list[list[int]]:
    """The rows of the page's table, without the time at which each begins."""
    answer = page(queue, **query)
    assert answer.status_code == 200, answer.text
    return [[int(n.replace(",", "")) for n in row[1:]] for row in cells(answer.text)]


def test_the_numbers_of_a_queue_are_shown_by_span(queue):
    day = now() // 900 * 900 - 1800
    minutes = [day, day + 60, day + 840]
    write(queue, [(at, "", event, n) for n, event in enumerate(MOVES, 1) for at in minutes])
    write(queue, [(day - 3 * 86_400, "", "put", 7_000), (day - 20 * 86_400, "", "put", 9)])
    write(queue, [(day, "", "put", 77)], name="Another")
    once = [3, 9, 12, 15, 18]
    assert numbers(queue) == numbers(queue, span="day") == numbers(queue, span="none") == [once]
    assert numbers(queue, span="week") == [once, [7_000, 0, 0, 0, 0]]
    assert numbers(queue, span="month") == [once, [7_000, 0, 0, 0, 0], [9, 0, 0, 0, 0]]
    shown = page(queue).text
    assert cells(shown)[0][0] == f"{datetime.fromtimestamp(day, UTC):%Y-%m-%d %H:%M:%S}"
    assert re.search(r"The newest bucket began \d\d min( \d+ s)? ago, at ", " ".join(texts(shown)))


def test_a_filter_names_tubes_and_another_one_is_explained(queue):
    write(queue, [(now(), tube, "put", n) for n, tube in enumerate(("mail", "a&b", "", EVIL), 2)])
    quoted = EVIL.replace('"', '\\"')
    tubes = {"": 14, "tube:mail": 2, "tube:mail,a&b": 5, 'tube:""': 4, f'tube:"{quoted}"': 5}
    for text, n in tubes.items():
        assert [row[0] for row in numbers(queue, filter=text)] == [n], text
    assert numbers(queue, filter="tube:none") == []
    links = re.findall(r'href="(/q/Task/activity\?[^"]+)"', page(queue, filter="tube:a&b").text)
    assert [parse_qs(urlsplit(html.unescape(link)).query).get("filter") for link in links] == [["tube:a&b"]] * 3
    for text in ("state:buried", "-tube:mail", "tube:a tube:b", "tube>a", "mail", '"'):
        answer = page(queue, filter=text)
        assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), text


def test_a_table_that_cannot_be_read_is_one_sentence_breaks_no_other_page_and_is_not_made(queue):
    queue.model._meta.database.execute_sql("CREATE TABLE activity (queue VARCHAR(160), bucket BIGINT)")
    before = queue.model._meta.database.get_tables()
    for table in ("nowhere", "activity", f'a"; DROP TABLE task; {EVIL}'):  # the second lacks columns
        here = visitor(serve.app([queue], activity=table, read_only=True, rights="viewer"))
        answer = here.get("/q/Task/activity")
        (alert,) = re.findall(r'<p class="notice wrong" role="alert">(.*?)</p>', answer.text, re.DOTALL)
        assert (answer.status_code, "cannot be read" in alert, "\n" in alert) == (503, True, False)
        assert "<script>alert" not in answer.text
        assert [here.get(path).status_code for path in ("/", "/q/Task", "/q/Task/workers")] == [200] * 3
    assert queue.model._meta.database.get_tables() == before


def test_the_page_is_there_with_the_option_alone_and_says_which_queue_the_table_lacks(queue):
    here = visitor(serve.app([queue]))
    assert here.get("/q/Task/activity").status_code == 404
    assert "Activity" not in texts(here.get("/q/Task").text)
    write(queue, [(now(), "", "put", 1)], name="pages")
    assert any("The table activity has no transition of Task" in text for text in texts(page(queue).text))
    for wrong in ("", 5, "a\0b", "a" * 256, ["activity"]):
        with pytest.raises((xq.BadType, xq.BadValue), match="table"):
            page(queue, activity=wrong)


def test_hostile_names_of_queues_and_tubes_are_text(queue):
    write(queue, [(now(), EVIL, "put", 3)], name=EVIL)
    here = visitor(serve.app({EVIL: queue}, activity=TABLE))
    (path,) = set(re.findall(r'href="(/q/[^"?/]+)"', here.get("/").text))
    shown = here.get(f"{path}/activity").text
    assert cells(shown)[0][1] == "3"
    assert "<script>alert" not in shown
    assert "<img" not in shown
    wrong: Any
    for wrong in ("", 5, "a\0b"):
        with pytest.raises(xq.BadType, match="named"):
            serve.app({wrong: queue})
