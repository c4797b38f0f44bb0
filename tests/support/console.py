"""A browser for the console, and the end of the consoles of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from xq import serve

HERE = {"Accept": "text/html"}
SAME = {**HERE, "Sec-Fetch-Site": "same-origin"}


def visitor(console: Any, host: str = "localhost", address: str = "127.0.0.1", **options: Any) -> TestClient:
    """A browser on this machine, or on another, that does not follow redirects."""
    return TestClient(
        console, base_url=f"http://{host}", client=(address, 50_000), follow_redirects=False, headers=HERE, **options
    )


@pytest.fixture(autouse=True)
def consoles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Ends the consoles of a test: their looks would go on beside the next ones."""
    made: list[Any] = []

    def app(*args: Any, make: Callable[..., Any] = serve.app, **named: Any) -> Any:
        made.append(make(*args, **named))
        return made[-1]

    monkeypatch.setattr(serve, "app", app)
    yield made
    for console in made:
        console.close()
