"""Commands for processes that go on: workers, their metrics, and the console in the browser."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from typer import Argument, Context, Option

from xq.cli import options as o
from xq.cli.output import say
from xq.cli.targets import all_of, found, queue_in, queue_named
from xq.core.errors import Error

ALL = f"{o.TARGET}; or sqlite:///app.db: all queues and tubes that it has"
TOKEN = "What to log in with. Better than here: in the environment."
HELP = "module:handler, decorated by @Page.xq.worker; or a queue"
Several = list[str] | None
LINES = "%(asctime)s %(levelname)s %(name)s: %(message)s"  # the log's


def metrics(targets: o.Targets) -> None:
    """Print queues' metrics once, as Prometheus reads them. Exits with 1 if a database fails."""
    from xq.metrics import Metrics

    read = Metrics([queue for target in targets for queue in all_of(target)], past=True, fresh_for=60)
    body, _ = read.scrape()
    print(body.decode(), end="")
    if failed := read.failed():
        raise Error(f"the database of {', '.join(failed)} fails: the log has the error")


def worker(
    targets: Annotated[list[str], Argument(metavar="TARGET...", help=HELP)],
    queue: Annotated[str, Option(help="module:Model, or URL#table: the queue of a plain function.")] = "",
    workers: Annotated[int | None, Option(min=1, help="How many tasks at a time.")] = None,
    kind: Annotated[str | None, Option(help="thread, process or asyncio.")] = None,
    tube: Annotated[list[str] | None, Option("--tube", "-t", help="Only this tube; may be repeated.")] = None,
    until_empty: Annotated[bool, o.flag("--until-empty", help="End when no task is ready.")] = False,
    max_tasks: Annotated[int | None, Option(min=1, help="End after this many tasks.")] = None,
    metrics_port: Annotated[int | None, Option(min=0, max=65535, help="Serve /metrics here; 0: any port.")] = None,
    metrics_host: Annotated[str, Option(help="The address of that port.")] = "127.0.0.1",
    verbose: Annotated[int, Option("--verbose", "-v", count=True, help="Say more; twice: all.")] = 0,
) -> None:
    """Run workers until SIGTERM or SIGINT. Then they finish their tasks; a second signal releases these."""
    from xq.workers.options import Options
    from xq.workers.program import assignment_of, assignments_of, checked, run_assignments, worker_of
    from xq.workers.worker import Worker

    level = logging.DEBUG if verbose > 1 else logging.INFO
    _show_log(level)
    options: dict[str, Any] = {name: each for name, each in (("workers", workers), ("kind", kind)) if each is not None}
    assignments = []
    for text in targets:
        thing = found(text)
        if queue and not isinstance(thing, Worker):
            thing = worker_of(queue_named(queue), thing, Options())
        handlers = [thing] if isinstance(thing, Worker) else [*queue_in(thing, text).handlers.values()]
        if not handlers:
            raise Error(f"{text} has no worker: decorate a function by @Page.xq.worker, and name it as module:function")
        for each in handlers:
            each.options = checked(each.queue, each.function, replace(each.options, **options))
            each.in_child.append(partial(_show_log, level))
        alone = isinstance(thing, Worker)
        assignments += [assignment_of(thing, None, tube)] if alone else assignments_of(handlers[0].queue, None, tube)
    with ExitStack() as stack:
        if metrics_port is not None:
            from xq.metrics import serving

            measured = [each.worker for each in assignments]
            stack.enter_context(serving(measured, metrics_host, metrics_port, tubes=tube or ()))
        run_assignments(assignments, until_empty, max_tasks)


def _show_log(level: int, worker: object = None) -> None:
    logging.basicConfig(level=level, format=LINES)


def serve(
    context: Context,
    targets: Annotated[list[str], Argument(metavar="TARGET...", help=ALL)],
    host: Annotated[str, Option(help="The address to listen on. Others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any that is free.")] = 8320,
    token: Annotated[str | None, Option(envvar="XQ_TOKEN", help=TOKEN)] = None,
    read_only: Annotated[bool, o.flag("--read-only", help="Show, and change nothing.")] = False,
    name: Annotated[str | None, Option(help="What this environment is called, as production.")] = None,
    colour: Annotated[str | None, Option(help="The colour of this environment, as '#b3261e'.")] = None,
    hosts: Annotated[Several, Option("--allow-host", help="A name by which browsers reach it.")] = None,
    user: Annotated[str | None, Option("--user-header", help="The header in which a proxy names its user.")] = None,
    proxies: Annotated[Several, Option("--proxy", help="The address or network of a proxy on another machine.")] = None,
    root_path: Annotated[str, Option(help="The path at which a proxy has the console, as /ops.")] = "",
    rights: Annotated[str, Option("--role", help="viewer, operator or admin.")] = "admin",
    hide: Annotated[Several, Option(help="A field whose value is not shown; may be repeated.")] = None,
    metrics: Annotated[str, Option(help="/metrics for Prometheus: off, token or open.")] = "off",
) -> None:
    """Serve a console in the browser: what is in the queues, what failed, and why, with buttons to mend it."""
    import uvicorn

    from xq.serve import app
    from xq.serve.login import is_loopback

    if not is_loopback(host) and not token:
        raise Error(f"{host} is for other machines, so the console needs a token: set XQ_TOKEN in the environment")
    options = {name: each for name, each in context.params.items() if name not in ("targets", "host", "port")}
    shown = [each for target in targets for each in _shown(target)]
    options |= {"token": token or None, "hosts": [*(hosts or ()), host], "proxies": proxies or (), "hide": hide or ()}
    console, is_ipv6 = app(shown, **options), ":" in host
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    except OSError as error:
        raise Error(f"{host}:{port} cannot be listened on: {error.strerror}") from error
    logging.basicConfig(level=logging.INFO, format=LINES)

    config = uvicorn.Config(console, log_level="warning", server_header=False, timeout_graceful_shutdown=1)
    config.proxy_headers = False  # the console itself decides whose headers it believes
    below = f"{console.settings.root}/"
    say(f"the console: http://{f'[{host}]' if is_ipv6 else host}:{listening.getsockname()[1]}{below}  (Ctrl-C ends it)")
    uvicorn.Server(config).run([listening])


def _shown(target: str) -> Iterator[Any]:
    """Yield what a target names: queues and tubes. A database without a table's name is all that it has."""
    if "://" not in target:
        thing = found(target)
        yield thing if hasattr(getattr(thing, "model", None), "xq") else queue_in(thing, target)
        return
    queues, tubes = all_of(target, or_none=True), []
    if "#" not in target:
        from xq import Tubes
        from xq.adapters.peewee.plain import database_errors

        with database_errors():
            tubes = [*Tubes(target).tube.values()]
    if not queues and not tubes:
        raise Error("no queue is installed in this database, and no tube: xq upgrade installs one")
    yield from [*queues, *tubes]
