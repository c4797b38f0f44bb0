"""Make the pictures of docs/console.md and docs/operations.md: `make pictures`. Queues at work, in a real Chromium.

They show three minutes of work, and a minute of examples/evening.py, so this takes that long. Needs the packages of the
tests, and chromium.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import peewee as pw
import uvicorn

import xq
import xq.serve
from tests.browser import Browser, started
from xq.adapters.peewee.plain import queues_of

IMAGES = Path(__file__).with_name("images")
SECONDS = 180  # of work, which the history then has as an hour, as the charts do
PEOPLE = ("ann", "bob", "carol", "dave", "erin", "frank", "grace")
TUBES = ("orders", "news", "support")
FEATURES: xq.Features = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "history": True}
RATES = {"mail": 18.0, "invoice": 7.0, "thumbnail": 7.0}  # tasks a second
SHARES = {"mail": 0.07, "invoice": 0.02, "thumbnail": 0.01}  # of the attempts that fail

PAGES = {  # the name of a picture, its address, and the size of the window
    "console-overview": ("/", 1200, 500),
    "console-tasks": ("/q/mail?" + urlencode({"filter": "state:B"}), 1200, 760),
    "console-failures": ("/q/mail/failures", 1200, 640),
    "console-task": ("/q/mail/task?key={key}", 1200, 800),
    "console-workers": ("/q/mail/workers", 1200, 760),
    "console-dark": ("/", 1000, 500),
    "console-phone": ("/", 390, 700),
}


def queues(folder: str) -> dict[str, Any]:
    """Return the queues of a new database, by their names."""
    db = pw.SqliteDatabase(f"{folder}/shop.db", timeout=20, pragmas={"synchronous": "normal"})

    def made(name: str) -> Any:
        fields = {"to": pw.TextField(), "subject": pw.TextField(), "payload": pw.TextField()}
        model = type(name, (xq.Task,), {**fields, "Meta": type("Meta", (), {"database": db})})
        return xq.upgrade(model, features=FEATURES)

    found = {name: made(name) for name in RATES}
    db.create_tables([queue.model for queue in found.values()])
    return found


def put(queue: Any, number: int) -> None:
    person, tube = random.choice(PEOPLE), random.choice(TUBES)
    payload = f'{{"order": {number}, "items": [1, 2]}}'
    subject = f"Order {number} is on its way"
    queue.put({"to": f"{person}@example.org", "subject": subject, "payload": payload, "tube": tube})


def work(queue: Any) -> None:
    task = queue.take(timeout=0.5)
    if task is None:
        return
    time.sleep(random.uniform(0.001, 0.03))
    if random.random() > SHARES[queue.name]:
        queue.ack(task)
    elif random.random() < 0.5:
        queue.release(task, delay=random.uniform(5, 60))
    else:
        number = random.randrange(1000)
        errors = (f"KeyError: 'customer {number}'", f"TimeoutError: no answer after {number} ms")
        error = random.choice((*errors, f"ValueError: invalid literal for int(): 'x{number}'"))
        queue.bury_many([task], error=error)


@contextmanager
def at_work(found: dict[str, Any], pace: float) -> Iterator[None]:
    """Put tasks, at so much of their rates, and work them off until the block ends."""
    ended = threading.Event()

    def puts(name: str) -> None:
        number = 0
        while not ended.wait(random.expovariate(RATES[name] * pace)):
            put(found[name], number := number + 1)

    def works(name: str) -> None:
        while not ended.is_set():
            work(found[name])

    threads = [threading.Thread(target=does, args=[name]) for name in found for does in (puts, works)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def served(console: Any) -> Iterator[str]:
    """Serve a console on a free port of this machine, and yield its address."""
    server = uvicorn.Server(uvicorn.Config(console, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def take_picture(browser: Browser, name: str, url: str, width: int, height: int) -> None:
    look = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if name.endswith("dark") else "light"}]
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", look)
    browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    if url:
        browser.open(url)
    browser.one("main :is(svg, form)")
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")  # drawn
    browser.driver.get_screenshot_as_file(str(IMAGES / f"{name}.png"))


def evening(browser: Browser) -> None:
    """Take the pictures of docs/operations.md: images stand still, mails and orders fail."""
    example = Path(__file__).parents[1] / "examples" / "evening.py"
    with tempfile.TemporaryDirectory() as folder:
        place: dict[str, Any] = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(example.parent)}}
        subprocess.run([sys.executable, example, "--tasks", "200000"], check=True, **place)
        worker = [sys.executable, "-m", "xq", "worker"]
        workers = [
            subprocess.Popen([*worker, *names], stderr=subprocess.DEVNULL, **place)
            for names in (["evening:resize"], ["evening:send", "evening:book"])
        ]
        _, found, _ = queues_of(f"sqlite:///{folder}/evening.db")
        mail = next(queue for queue in found if queue.name == "mail")
        try:
            with served(xq.serve.app(found, name="shop")) as url:
                browser.open(url)
                time.sleep(60)
                take_picture(browser, "evening-overview", url, 1200, 430)
                mail.pause("newsletter", actor="ann", reason="the provider does not answer")
                browser.open(f"{url}/q/mail/failures")
                browser.one("button[value='dig']").click()
                take_picture(browser, "evening-dig", "", 1200, 980)
        finally:
            for worker_ in workers:
                worker_.kill()
                worker_.wait()


def main() -> None:
    random.seed(1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder:
        found = queues(folder)
        mail = found["mail"]
        key = mail.put({"to": "carol@example.org", "subject": "Order 15 is on its way", "payload": '{"order": 15}'}).id
        mail.bury_many([mail.take()], error="TimeoutError: no answer after 389 ms")
        console = xq.serve.app(list(found.values()), name="production", colour="#b3261e")
        browser = started(Path(folder, "chromium"))
        with at_work(found, 1):
            time.sleep(seconds / 2)
            with mail.acting("console", "the mail server answers again"):
                mail.dig(key)
            time.sleep(seconds / 2)
        now, longer = int(time.time() * 1_000_000), 3_600 / seconds
        for queue in found.values():
            queue.History.update(at_us=now - (now - queue.History.at_us) * int(longer)).execute()
        with at_work(found, 1 / longer), served(console) as url:
            browser.open(url)
            time.sleep(25)  # so that there are rates of now
            for name, (path, width, height) in PAGES.items():
                take_picture(browser, name, url + path.format(key=key), width, height)
        evening(browser)
        browser.driver.quit()


if __name__ == "__main__":
    main()
