"""manage.py shop: run the shop, as a web server and two workers."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application

from ...models import Product

WORKERS = {"mails": ["shop.Order"], "invoices": []}  # what each worker makes, and the arguments of its xq_worker
PRODUCTS = {"Teapot": 3450, "Lamp": 5900, "Clock": 12900, "Mirror": 7900}  # cents


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the page sends two requests a second."""


class Command(BaseCommand):
    help = "Runs the shop: makes its tables and some products, then a web server and workers, until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="0: any free port (default: 8000)")

    def handle(self, *args: Any, port: int, **options: Any) -> None:
        settings.DATA.mkdir(parents=True, exist_ok=True)
        call_command("migrate", verbosity=0)
        self._fill()
        server = ThreadedWSGIServer(("127.0.0.1", port), Quiet)
        server.set_app(StaticFilesHandler(get_wsgi_application()))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._say(f"The shop is open: http://127.0.0.1:{server.server_port}/")
        self._say(f"Its admin: http://127.0.0.1:{server.server_port}/admin/ (user admin, password admin)")
        self._say(f"Mails and invoices are in {settings.DATA}")
        self._work_until_stopped()
        server.shutdown()
        server.server_close()
        self._say("The shop is closed")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _fill(self) -> None:
        if not Product.objects.exists():
            Product.objects.bulk_create(Product(name=name, cents=cents) for name, cents in PRODUCTS.items())
            User.objects.create_superuser("admin", password="admin")

    def _work_until_stopped(self) -> None:
        """Run the workers, and restart one that died, until SIGINT or SIGTERM."""
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        running: dict[str, subprocess.Popen[bytes]] = {}
        while not stopped.is_set():
            for name, arguments in WORKERS.items():
                if name not in running or running[name].poll() is not None:
                    command = [sys.executable, sys.argv[0], "xq_worker", *arguments, "--no-reload"]
                    running[name] = subprocess.Popen(command, start_new_session=True)  # Ctrl-C does not reach them
                    self._say(f"Worker for {name}: process {running[name].pid}")
            stopped.wait(0.2)
        for worker in running.values():
            worker.terminate()  # it finishes its task
        for worker in running.values():
            worker.wait()
