"""The console's page of a queue's activity, from the table that `xq.spark.stream()` writes."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import xq
from tests.contract.test_console import EVIL, FEATURES, cells, texts
from tests.support.console import consoles, visitor  # noqa: F401
from xq import serve

TABLE = "activity"
MOVES = {"put": "XR", "take": "RT", "ack": "TD", "bury": "TB", "kill": "RX", "ttl": "RX"}  # by event
UNITS = {"minute": 60, "hour": 3600, "day": 86_400}
EVERY = {"day": 900, "week": 7_200, "month": 28_800}  # seconds of a column


@pytest.fixture
def queue(make_shared):
    return make_shared(FEATURES, roles=("runat", "owner", "tube")).xq


def write(queue: Any, rows: Iterable[tuple[Any, ...]], name: str = "Task", unit: str = "minute") -> None:
    """Write (bucket, tube, event, n) as the stream does: a batch of the next number."""
    rollup, length, batch = queue.pipeline.rollup(TABLE), UNITS[unit], 0
    rollup.install()
    counted = [(name, tube, unit, int(at // length * length), *MOVES[event], event, n) for at, tube, event, n in rows]
    while not rollup.add("a stream", batch, counted):
        batch += 1


def shown(queue: Any, span: str = "", **query: str) -> list[list[str]]:
    """The rows of the page's table."""
    page = visitor(serve.app([queue], activity=TABLE)).get("/q/Task/activity", params={"span": span, **query})
    assert page.status_code == 200, page.text
    return cells(page.text)


def numbers(rows: list[list[str]]) -> list[list[int]]:
    return [[int(n.replace(",", "")) for n in row[1:]] for row in rows]


def test_the_numbers_of_a_queue_are_shown_by_span(queue):
    now = time.time()
    day = now // 900 * 900 - 1800
    minutes = [day, day + 60, day + 840]
    write(queue, [(at, "", event, n) for n, event in enumerate(MOVES, 1) for at in minutes])
    write(queue, [(day - 3 * 86_400, "", "put", 7_000)])
    write(queue, [(day - 20 * 86_400, "", "put", 9)])
    write(queue, [(day - 60 * 86_400, "", "put", 500), (day, "", "put", 77)], name="Another")
    once = [3, 9, 12, 15, 18]
    assert numbers(shown(queue)) == numbers(shown(queue, "day")) == numbers(shown(queue, "none")) == [once]
    ((begins, *_),) = shown(queue)
    assert begins == time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(day))
    assert numbers(shown(queue, "week")) == [once, [7_000, 0, 0, 0, 0]]
    assert numbers(shown(queue, "month")) == [once, [7_000, 0, 0, 0, 0], [9, 0, 0, 0, 0]]


@pytest.mark.parametrize("span", EVERY)
def test_a_chart_has_about_a_hundred_columns_at_most(queue, span):
    now = time.time()
    write(queue, [(now - i * EVERY[span] / 2, "", "put", i + 1) for i in range(400)])
    page = visitor(serve.app([queue], activity=TABLE)).get("/q/Task/activity", params={"span": span}).text
    put, *others = re.findall(r'<svg class="bars".*?</svg>', page)
    assert 80 <= put.count("<rect") <= 100
    assert [other.count("<rect") for other in others] == [0, 0, 0, 0]
    assert len(cells(page)) <= 100


@pytest.mark.parametrize(("unit", "columns"), [("hour", 25), ("day", 2)])
def test_a_column_has_whole_buckets_of_the_unit_of_the_stream(queue, unit, columns):
    now = time.time()
    write(queue, [(now - i * UNITS[unit], "", "put", 1) for i in range(50)], unit=unit)
    found = shown(queue)
    assert len(found) == columns
    assert {row[1] for row in found} == {"1"}


def test_a_filter_names_tubes(queue):
    now = time.time()
    write(queue, [(now, "mail", "put", 2), (now, "news", "put", 3), (now, "", "put", 4), (now, EVIL, "put", 5)])
    for text, n in {
        "": 14,
        "tube:mail": 2,
        "tube:mail,news": 5,
        'tube:""': 4,
        f'tube:"{EVIL.replace(chr(34), chr(92) + chr(34))}"': 5,
    }.items():
        assert [row[0] for row in numbers(shown(queue, filter=text))] == [n], text
    assert shown(queue, filter="tube:none") == []


def test_the_links_to_other_spans_keep_the_filter(queue):
    write(queue, [(time.time(), "a&b", "put", 2), (time.time() - 200_000, "a&b", "put", 3)])
    here = visitor(serve.app([queue], activity=TABLE))
    page = here.get("/q/Task/activity", params={"filter": "tube:a&b"}).text
    links = [html.unescape(link) for link in re.findall(r'href="(/q/Task/activity\?[^"]+)"', page)]
    assert [sum(n for n, *_ in numbers(cells(here.get(link).text))) for link in links] == [2, 5, 5]


def test_another_filter_is_explained_on_the_page(queue):
    here = visitor(serve.app([queue], activity=TABLE))
    for text in ("state:buried", "-tube:mail", "tube:a tube:b", "tube>a", "mail", '"'):
        answer = here.get("/q/Task/activity", params={"filter": text})
        assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), text


def test_the_page_says_how_old_the_newest_bucket_is(queue):
    at = time.time() // 60 * 60 - 7200
    write(queue, [(at, "", "put", 2)])
    page = " ".join(texts(visitor(serve.app([queue], activity=TABLE)).get("/q/Task/activity").text))
    assert re.search(r"The newest bucket began 2(\.\d+)? h ago, at ", page), page
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) in page


def test_without_the_option_there_is_no_page(queue):
    here = visitor(serve.app([queue]))
    assert here.get("/q/Task/activity").status_code == 404
    assert "Activity" not in texts(here.get("/q/Task").text)
    assert "Activity" in texts(visitor(serve.app([queue], activity=TABLE)).get("/q/Task").text)


def test_a_table_that_cannot_be_read_is_one_sentence_and_breaks_no_other_page(queue):
    queue.put({"name": "a"})
    queue.model._meta.database.execute_sql("CREATE TABLE activity (queue VARCHAR(160), bucket BIGINT)")
    for table in ("nowhere", "activity"):  # which lacks columns
        here = visitor(serve.app([queue], activity=table))
        answer = here.get("/q/Task/activity")
        (alert,) = re.findall(r'<p class="notice wrong" role="alert">(.*?)</p>', answer.text, re.DOTALL)
        assert (answer.status_code, f"the table {table} cannot be read" in alert) == (503, True)
        assert "\n" not in alert
        codes = [here.get(path).status_code for path in ("/", "/q/Task", "/q/Task/workers", "/q/Task/doctor")]
        assert codes == [200] * 4


def test_a_queue_that_the_table_lacks_is_said(queue):
    write(queue, [(time.time(), "", "put", 1)], name="pages")
    page = visitor(serve.app([queue], activity=TABLE)).get("/q/Task/activity").text
    assert any("The table activity has no transition of Task" in text for text in texts(page))
    (row,) = cells(visitor(serve.app({"pages": queue}, activity=TABLE)).get("/q/pages/activity").text)
    assert row[1] == "1"


def test_hostile_names_of_queues_tubes_and_tables_are_text(queue):
    write(queue, [(time.time(), EVIL, "put", 3)], name=EVIL)
    here = visitor(serve.app({EVIL: queue}, activity=TABLE))
    (path,) = set(re.findall(r'href="(/q/[^"]+/activity)"', here.get(f"/q/{slug(here)}").text))
    page = here.get(path).text
    assert cells(page)[0][1] == "3"
    assert "<script>alert" not in page
    assert "<img" not in page
    evil = visitor(serve.app([queue], activity=f'a"; DROP TABLE task; {EVIL}')).get("/q/Task/activity")
    assert evil.status_code == 503
    assert "<script>alert" not in evil.text
    assert queue.count() == 0


def slug(here: Any) -> str:
    return str(re.findall(r'href="/q/([^"?/]+)', here.get("/").text)[0])


def test_what_names_no_table_and_no_queue_is_refused(queue):
    wrong: Any
    for wrong in ("", 5, "a\0b", "a" * 256, ["activity"]):
        with pytest.raises((xq.BadType, xq.BadValue), match="table"):
            serve.app([queue], activity=wrong)
    for wrong in ("", 5, "a\0b"):
        with pytest.raises(xq.BadType, match="named"):
            serve.app({wrong: queue})


def test_the_page_only_reads(queue):
    """A viewer of a console that only reads has the page, and looking creates no table."""
    before = queue.model._meta.database.get_tables()
    here = visitor(serve.app([queue], activity=TABLE, read_only=True, rights="viewer"))
    assert here.get("/q/Task/activity").status_code == 503
    assert queue.model._meta.database.get_tables() == before
    write(queue, [(time.time(), "", "put", 1)])
    assert here.get("/q/Task/activity").status_code == 200


# Grafana

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "monitoring" / "grafana-activity.json"
GROUPED = {"postgres": "floor(({})/{})*{}", "mariadb": "{} DIV {} * {}"}  # as the data source of each fills it in


def asked(sql: str, engine: str, since: int, until: int) -> str:
    """The SQL of a panel, with what Grafana fills in."""
    sql = sql.replace("${table:raw}", TABLE).replace("${queue:sqlstring}", "'Task','It''s'")
    sql = sql.replace("$__unixEpochTo()", f"{until}").replace("$__interval", "5m")
    sql = re.sub(r"\$__unixEpochFilter\((\w+)\)", rf"\1 >= {since} AND \1 <= {until}", sql)
    sql = re.sub(r"\$__unixEpochGroup\((\w+), 5m\)", lambda found: GROUPED[engine].format(found[1], 300, 300), sql)
    assert "$" not in sql
    return sql


@pytest.mark.parametrize("shared_db", ["postgres", "mariadb"], indirect=True)
def test_the_panels_of_the_dashboard_show_what_the_table_has(queue):
    now = int(time.time()) // 300 * 300
    write(queue, [(now, "mail", "put", 2), (now + 60, "mail", "ack", 1), (now, "news", "put", 4)])
    write(queue, [(now - 600, "", "kill", 3)], name="It's")
    write(queue, [(now, "", "put", 50)], name="Another")
    write(queue, [(now - 90_000, "mail", "put", 7)])
    board = json.loads(DASHBOARD.read_text())
    database, since, until = queue.model._meta.database, now - 86_400, now + 100
    (names,) = [each["query"] for each in board["templating"]["list"] if each["name"] == "queue"]
    found = {}
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        (target,) = panel["targets"]
        sql = asked(target["rawSql"], queue.adapter.store.engine, since, until)
        found[panel["title"]] = [
            tuple(each if isinstance(each, str) else int(each) for each in row) for row in database.execute_sql(sql)
        ]
    assert sorted(database.execute_sql(asked(names, "", 0, 0))) == [("Another",), ("It's",), ("Task",)]
    assert found == {
        "Age of the newest bucket": [("It's", 700), ("Task", 40)],
        "Put and done": [(now - 600, "It's", 0, 0), (now, "Task", 6, 1)],
        "Buried, killed, expired": [(now - 600, "It's", 0, 3, 0), (now, "Task", 0, 0, 0)],
        "Tubes": [("It's", "", 0, 0, 0, 3, 0), ("Task", "mail", 2, 1, 0, 0, 0), ("Task", "news", 4, 0, 0, 0, 0)],
    }
