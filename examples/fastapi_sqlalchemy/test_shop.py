"""The shop through its HTTP interface, on a fresh file, with the worker beside: python -m pytest in this folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from shop import app


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/test.db")
    with TestClient(app) as client:
        yield client


def state_of(shop: TestClient, number: int, among: tuple[str, ...] = ("booked", "failed")) -> str:
    """The state of an order once the worker has done with it."""
    end = time.monotonic() + 30
    while (state := str(shop.get(f"/orders/{number}").json()["state"])) not in among and time.monotonic() < end:
        time.sleep(0.01)
    return state


def test_an_order_is_booked_beside_the_requests(shop: TestClient) -> None:
    answers = [shop.post("/orders", params={"customer": "ann", "cents": cents}) for cents in (500, 700)]
    assert [each.status_code for each in answers] == [201, 201]
    assert [state_of(shop, each.json()["id"]) for each in answers] == ["booked", "booked"]
    assert shop.get("/customers/ann").json() == {"name": "ann", "owes": 1200}
    assert shop.get("/health").json()["state"] == "healthy"


def test_a_request_that_fails_leaves_no_customer_and_no_task(shop: TestClient) -> None:
    assert shop.post("/orders", params={"customer": "bob", "cents": 0}).status_code == 422
    assert shop.get("/customers/bob").status_code == 404
    assert shop.get("/orders/1").status_code == 404


def test_an_expensive_order_waits_for_somebody(shop: TestClient) -> None:
    order = shop.post("/orders", params={"customer": "eve", "cents": 1_000_000}).json()
    assert state_of(shop, order["id"]) == "failed"
    assert shop.get("/customers/eve").json()["owes"] == 0
