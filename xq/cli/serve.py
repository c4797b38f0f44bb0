"""The command that serves the console in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from xq.cli.options import TARGET
from xq.cli.output import Failure, say
from xq.cli.targets import errors_end_the_program, found, queue_in, queue_named

EXTRA = "pip install 'xq-tables[serve]'"
ENVIRONMENT = "XQ_TOKEN"


def serve(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help=f"{TARGET}; or sqlite:///app.db: all queues and tubes that it has"),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on. Another than this machine's needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8320,
    token: Annotated[
        str | None, typer.Option(envvar=ENVIRONMENT, help="What to log in with. Better than here: in the environment.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show, and change nothing.")] = False,
    name: Annotated[str | None, typer.Option(help="What this environment is called, as production.")] = None,
    colour: Annotated[str | None, typer.Option(help="The colour of this environment, as '#b3261e'.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name under which browsers reach this console; may be repeated.")
    ] = None,
    user_header: Annotated[
        str | None, typer.Option(help="The header in which a proxy before this console names its user.")
    ] = None,
    proxy: Annotated[
        list[str] | None, typer.Option(help="The address of that proxy, if it is another machine; may be repeated.")
    ] = None,
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")] = "admin",
    hide: Annotated[list[str] | None, typer.Option(help="A field whose value is not shown; may be repeated.")] = None,
    metrics: Annotated[str, typer.Option(help="/metrics for Prometheus: off, token or open.")] = "off",
    activity: Annotated[
        str | None, typer.Option(metavar="TABLE", help="The table of `xq spark stream`: each queue has a page of it.")
    ] = None,
) -> None:
    """Serve a console in the browser: what is in the queues, what failed, and why, with buttons to mend it."""
    try:
        import uvicorn

        from xq.serve import app
        from xq.serve.login import is_loopback
    except ModuleNotFoundError as error:
        raise Failure(f"the console cannot be imported ({error}): {EXTRA}") from error
    if not is_loopback(host) and not token:
        raise Failure(
            f"{host} is reached from other machines, so the console needs a token: set {ENVIRONMENT} in the "
            "environment, to at least 16 characters that cannot be guessed"
        )
    with errors_end_the_program():
        console = app(
            list(_queues(targets)),
            token=token,
            rights=role,
            read_only=read_only,
            name=name,
            colour=colour,
            hosts=[*(allow_host or []), host],
            user=user_header,
            proxies=proxy or (),
            hide=hide or (),
            metrics=metrics,
            activity=activity,
        )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            console.close()
            await super().shutdown(sockets)

    server = Server(
        uvicorn.Config(
            console,
            host=host,
            port=port,
            log_level="warning",
            proxy_headers=False,  # the console itself decides whose headers it believes
            server_header=False,
            timeout_graceful_shutdown=1,  # pages that follow the console never end their requests
        )
    )
    say(f"the console: http://{f'[{host}]' if ':' in host else host}:{port or '(a free port)'}/  (Ctrl-C ends it)")
    server.run()


def _queues(targets: list[str]) -> Iterator[Any]:
    """Yield what the targets name: queues and tubes. A database without the name of a table is all that it has."""
    for text in targets:
        if "://" not in text:
            thing = found(text)
            yield thing if hasattr(getattr(thing, "model", None), "xq") else queue_in(thing, text)
        elif "#" in text:
            yield queue_named(text)
        else:
            yield from _all_of(text)


def _all_of(where: str) -> Iterator[Any]:
    from xq import Tubes
    from xq.adapters.peewee.tables import database_errors, queues_of
    from xq.adapters.tubes import without_password

    database, queues, left_out = queues_of(where)
    for table, why in left_out.items():
        say(f"{table} is left out: {why}")
    with database_errors(), database.connection_context():
        tubes = Tubes(database).tube
        found = [*queues, *(tubes[name] for name in tubes)]
    if not found:
        raise Failure(f"no queue is installed in {without_password(where)}, and no tube: xq upgrade installs one")
    yield from found


COMMANDS: dict[str, Callable[..., None]] = {"serve": serve}
