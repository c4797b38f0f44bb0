"""A console for queues in the browser, as an ASGI application: `xq.serve.app([Page])`. Needs the extra `serve`."""

from __future__ import annotations

try:
    from xq.serve.console import Console
    from xq.serve.login import ROLES, VERBS
    from xq.serve.pages import app
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "jinja2", "markupsafe", "anyio"):
        raise
    raise ModuleNotFoundError(
        f"the console needs {error.name}: pip install '.[serve]' in the checkout of xq", name=error.name
    ) from error

__all__ = ["ROLES", "VERBS", "Console", "app"]
