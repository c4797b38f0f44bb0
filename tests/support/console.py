"""A browser for the console."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

HERE = {"Accept": "text/html"}
SAME = {**HERE, "Sec-Fetch-Site": "same-origin"}


def visitor(console: Any, host: str = "localhost", address: str = "127.0.0.1", **options: Any) -> TestClient:
    """A browser on this machine, or on another, that does not follow redirects."""
    return TestClient(
        console, base_url=f"http://{host}", client=(address, 50_000), follow_redirects=False, headers=HERE, **options
    )
