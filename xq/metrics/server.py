"""A small HTTP server that answers /metrics: the own port of a program of workers."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any

from xq.core.errors import ConfigurationError
from xq.metrics.collector import Metrics
from xq.metrics.work import Work
from xq.runtime.workers.worker import Worker

log = logging.getLogger("xq.metrics")


class Server(ThreadingHTTPServer):
    """Answers GET /metrics, and nothing else."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.metrics = metrics
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"the metrics cannot be served on {host}:{port}: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    server_version, sys_version = "xq", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "the metrics are at /metrics")
            return
        assert isinstance(self.server, Server)
        body, content_type = self.server.metrics.scrape(self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def listen(metrics: Metrics, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve metrics at http://host:port/metrics in a thread, until `shutdown` of the result. Port 0 chooses a free one.

    It has no access control: bind it to an address that only your Prometheus reaches.
    """
    server = Server(metrics, host, port)
    threading.Thread(target=server.serve_forever, name="xq-metrics", daemon=True).start()
    return server


@contextmanager
def serving(workers: list[Worker[Any]], host: str, port: int, names: Sequence[str] | None = None) -> Iterator[Server]:
    """Serve the metrics of workers, of their queues and of this program, while the block runs them.

    The queues have these names, in the order of the workers; None: their own.

    A parent of worker processes has no threads, since it forks again when one crashes: then a process of its own
    serves, which ends with the parent.
    """
    named = [worker.queue.name for worker in workers] if names is None else list(names)
    work = Work(workers, named)
    metrics = Metrics({name: worker.queue for name, worker in zip(named, workers, strict=True)}, work=work)
    server = Server(metrics, host, port)
    log.info("metrics: http://%s:%d/metrics", host, server.server_port)
    if any(worker.options.kind == "process" for worker in workers):
        process = get_context("fork").Process(target=_serve_in_child, args=(server, work, os.getpid()), daemon=True)
        process.start()
        try:
            yield server
        finally:
            process.terminate()
            process.join()
            server.server_close()
        return
    for target in (work.read, server.serve_forever):
        threading.Thread(target=target, name="xq-metrics", daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _serve_in_child(server: Server, work: Work, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the whole group
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for target in (work.read, server.serve_forever):
        threading.Thread(target=target, daemon=True).start()
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(0)
