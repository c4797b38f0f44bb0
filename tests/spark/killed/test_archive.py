"""A process that archives or restores is killed between its steps, and nothing is lost or twice."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys

import peewee as pw

from tests.spark.archives import FEATURES, done, ids, told
from tests.spark.drivers import HOME
from tests.steps import is_exact, state
from xq.adapters.spark.archives import archive, history, restore
from xq.adapters.spark.archives import tasks as all_tasks

# What an archive does, in this order, and after which of it a process may be killed: what it is of, its name, and
# at which of its calls, before (False) or after it (True).
ARCHIVING = [
    ("Archives", "prepare", 1, True),
    ("Archives", "_in_parts", 1, True),  # some tasks are in the staging table, and others not yet
    ("Archives", "stage", 1, True),
    ("Folder", "write", 1, False),  # it is written
    ("Folder", "move", 1, False),
    ("Folder", "move", 1, True),
    ("archives", "delete", 1, True),  # of the staging table
    ("Archives", "forget", 1, True),
    ("Folder", "move", 2, False),
    ("Folder", "move", 2, True),
    ("spans", "delete", 1, True),  # of the history
]
RESTORING = [
    ("Archives", "loading", 1, True),
    ("Archives", "loaded", 1, False),
    ("Archives", "loaded", 1, True),
    ("Folder", "move", 1, False),
    ("Folder", "move", 1, True),
    ("Archives", "_in_parts", 1, True),
    ("Archives", "put_back", 1, True),
    ("Folder", "delete", 1, True),
]

# A driver of its own on the Java of the tests: to start another takes ten times as long.
SCRIPT = """
import json, os, pickle, signal, sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.java_gateway import launch_gateway
import peewee as pw
import xq
from tests.conftest import Maker, live
from xq.pipeline import archives
from xq.pipeline import spans
from xq.adapters.spark import files

given = json.loads(sys.argv[1])
kind, name, parameters = pickle.loads(bytes.fromhex(given["database"]))
Task = live(kind(name, **parameters))(given["features"])

owners = {"Archives": archives.Archives, "Folder": files.Folder, "archives": archives, "spans": spans}
owner = owners[given["owner"]]
method, calls = getattr(owner, given["method"]), 0

def killed(*args, **named):
    global calls
    calls += 1
    if calls == given["call"] and not given["after"]:
        os.kill(os.getpid(), signal.SIGKILL)
    found = method(*args, **named)
    if calls == given["call"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

setattr(owner, given["method"], killed)
archives.BATCH = archives.ROWS = spans.ROWS = 2
gateway = launch_gateway()
SparkContext._ensure_initialized(gateway=gateway)
java = gateway.jvm.org.apache.spark
context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
spark = SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))).newSession()
spark.conf.set("spark.sql.session.timeZone", "UTC")
getattr(xq.spark, given["what"])(xq.spark.register(spark), Task, given["out"])
"""


def killed(spark, Task, what, out, owner, method, call, after):
    """Have another process archive or restore, and be killed in the midst of it."""
    db, java = Task._meta.database, spark.sparkContext._gateway.gateway_parameters
    parameters = {"timeout": 60} if isinstance(db, pw.SqliteDatabase) else db.connect_params
    given = {
        "database": pickle.dumps((type(db), db.database, parameters)).hex(),
        "features": FEATURES,
        "what": what,
        "out": out,
        "owner": owner,
        "method": method,
        "call": call,
        "after": after,
    }
    root = str(HOME)
    environment = {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(java.port),
        "PYSPARK_GATEWAY_SECRET": java.auth_token,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps(given)]
    ended = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, f"{method} was not reached: {ended.stderr[-3000:]}"


def some(points, db):
    """Those of the points that are tried on this database: each on one, as a process costs seconds."""
    kinds = (pw.SqliteDatabase, pw.PostgresqlDatabase, pw.MySQLDatabase)
    return points[next(i for i, kind in enumerate(kinds) if isinstance(db, kind)) :: len(kinds)]


def test_whoever_archives_is_killed_and_nothing_is_lost_or_twice(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = []
    for point in some(ARCHIVING, Task._meta.database):
        keys += done(Task, 5)
        before = {(found.id, found.key) for found in history(spark, Task, out).collect()}
        killed(spark, Task, "archive", out, *point)
        assert [key for key in ids(all_tasks(spark, Task, out)) if key in keys] == keys, point
        now = [(found.id, found.key) for found in history(spark, Task, out).collect()]
        assert len(now) == len(set(now)), point
        assert before <= set(now), point
        assert is_exact(Task)
    archive(spark, Task, out)
    assert not Task.xq.pipeline.archives.runs()
    assert {state(Task, key) for key in keys} == {"X"}
    assert [key for key in ids(all_tasks(spark, Task, out)) if key in keys] == keys
    assert Task.xq.History.select().count() == 1


def test_whoever_restores_is_killed_and_nothing_is_lost_or_twice(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task, 5)
    before = told(all_tasks(spark, Task, out))
    for point in some(RESTORING, Task._meta.database):
        archive(spark, Task, out)
        killed(spark, Task, "restore", out, *point)
        assert told(all_tasks(spark, Task, out)) == before, point
        assert is_exact(Task)
    restore(spark, Task, out)
    assert told(all_tasks(spark, Task, out)) == before
    assert {state(Task, key) for key in keys} == {"D"}
    assert not Task.xq.pipeline.archives.runs()
