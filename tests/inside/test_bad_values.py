"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import xq
from tests.support.bad_values import ROLES, VALUES, Call, HostileError, fits
from xq.features import FEATURES

# upgrade


def _upgrades() -> Iterator[tuple[str, Call]]:
    """Each argument of upgrade, and what stands in it."""
    fields = {"status": "status", "runat": "runat", "tube": "tube"}
    up = xq.upgrade

    def of_role(role: str) -> Call:
        return lambda Task, v: up(Task, {**fields, role: v})

    def of_feature(feature: str) -> Call:
        return lambda Task, v: up(Task, fields, {"ttr": 1, feature: v})

    def of_letter(letter: str) -> Call:
        return lambda Task, v: up(Task, fields, statuses={letter: v})

    yield "upgrade(v)", lambda Task, v: up(v, fields)
    yield "fields=v", lambda Task, v: up(Task, v)
    yield "fields={v: 'name'}", lambda Task, v: up(Task, {**fields, v: "name"})
    for role in (*ROLES, "status", "deadline", "error", "utube", "nonsense"):
        yield f"fields={{{role!r}: v}}", of_role(role)
    yield "features=v", lambda Task, v: up(Task, fields, v)
    yield "features={v: True}", lambda Task, v: up(Task, fields, {v: True})
    for feature in (*FEATURES, "nonsense"):
        yield f"features={{{feature!r}: v}}", of_feature(feature)
    yield "statuses=v", lambda Task, v: up(Task, fields, statuses=v)
    yield "statuses={v: 'x'}", lambda Task, v: up(Task, fields, statuses={v: "x"})
    for letter in "RTBXS*":
        yield f"statuses={{{letter!r}: v}}", of_letter(letter)
    yield "tube_stats=v", lambda Task, v: up(Task, fields, tube_stats=v)
    yield "tube_stats=[v]", lambda Task, v: up(Task, fields, tube_stats=[v])
    yield "tube_stats=[a, v]", lambda Task, v: up(Task, fields, tube_stats=["a", v])
    yield "methods=v", lambda Task, v: up(Task, fields, methods=v)
    yield "methods=[v]", lambda Task, v: up(Task, fields, methods=[v])
    yield "clock=v", lambda Task, v: up(Task, fields, clock=v)
    yield "queue(v)", lambda Task, v: xq.queue(v)(Task)
    yield "queue(fields, v)", lambda Task, v: xq.queue(fields, v)(Task)


UPGRADES = dict(_upgrades())


@pytest.mark.parametrize("name", UPGRADES)
def test_upgrade_makes_a_queue_that_works_or_says_what_is_wrong(make, name):
    wrong = {}
    for value, made in VALUES.items():
        if not fits(name, made()) or (name == "features={'id': v}" and callable(made())):
            continue  # what the caller's own function does is the caller's
        Task = make.model()
        try:
            UPGRADES[name](Task, made())
        except HostileError:
            pass
        except xq.ConfigurationError as error:
            str(error)
            if hasattr(Task, "xq") or hasattr(Task, "put"):
                wrong[value] = "refused, and yet the model was changed"
        except Exception as error:
            wrong[value] = repr(error)[:150]
        else:
            what = works(make, Task)
            if what:
                wrong[value] = f"accepted, and then {what}"
    assert wrong == {}


def works(make: Any, Task: Any) -> str:
    """What is wrong with a queue that upgrade made."""
    try:
        make.db.create_tables([Task])
        Task.xq.put({"name": "a"})
        Task.xq.sweep()
        task = Task.xq.take()
        if task is not None:
            Task.xq.ack(task)
        return "; ".join(Task.xq.check())
    except (xq.BadValue, HostileError):  # the key must be brought
        return ""
    except Exception as error:
        return repr(error)[:150]
    finally:
        Task.drop_table()
