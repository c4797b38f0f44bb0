"""Migrations of Alembic: autogenerate writes the queue into a revision, as SQL that stays as it is."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

import sqlalchemy as sa
import xq
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from tests.sqlalchemy.in_loop import ASYNCHRONOUS
from tests.sqlalchemy.in_loop import engine as engine_in_loop
from tests.sqlalchemy.maker import engine_of as engine
from tests.steps import a_second_passes
from xq.adapters.sqlalchemy import upgrade

ENV = """
import asyncio
import xq.adapters.sqlalchemy.alembic
from alembic import context

attributes = context.config.attributes
engine, options = attributes["engine"], {"target_metadata": attributes["metadata"], **attributes["options"]}

def migrate(connection=None):
    context.configure(connection=connection, output_buffer=attributes["script"], url=engine.url, **options)
    with context.begin_transaction():
        context.run_migrations()

async def migrate_in_loop():
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()

if context.is_offline_mode():
    migrate()
elif hasattr(engine, "sync_engine"):
    asyncio.run(migrate_in_loop())
else:
    with engine.connect() as connection:
        migrate(connection)
"""
FIRST = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
SECOND = {"delayed": True, "keep": True, "history": True}
FIELDS = {"status": "state"}
MORE = {**FIELDS, "attempts": True, "error": True}


class Project:
    """A program with migrations, whose models the tests change."""

    schema: str | None = None

    def __init__(self, url: Any, folder: Path) -> None:
        self.engine = url
        self.config, self.script = Config(folder / "alembic.ini"), io.StringIO()
        self.config.set_main_option("script_location", str(folder / "migrations"))
        command.init(self.config, str(folder / "migrations"))
        (folder / "migrations" / "env.py").write_text(ENV)
        self.config.attributes.update(engine=self.engine, options={}, script=self.script)

    def models(self, fields: Any = None, features: Any = None, **options: Any) -> Any:
        """Define the models anew, the orders as a queue if there are fields. Return the queue."""
        is_postgres = self.engine.dialect.name == "postgresql"

        class Base(DeclarativeBase):
            pass

        class Order(Base):
            __tablename__ = "orders"
            __table_args__ = {"schema": self.schema}
            id: Mapped[int] = mapped_column(primary_key=True)
            state: Mapped[str] = mapped_column(sa.String(10), default="R")
            customer: Mapped[str | None] = mapped_column(sa.String(20))
            number: Mapped[str | None] = mapped_column(sa.String(20))
            more: Mapped[Any] = mapped_column(JSONB() if is_postgres else sa.JSON(), nullable=True)

        self.config.attributes["metadata"] = self.metadata = Base.metadata
        return upgrade(Order, fields, features, engine=self.engine, **options) if fields else None

    def revise(self) -> Path:
        return Path(command.revision(self.config, autogenerate=True).path)  # type: ignore[union-attr]

    def migrate(self, to: str = "head") -> None:
        command.upgrade(self.config, to)

    def tables(self) -> set[str]:
        return {*sa.inspect(self.engine).get_table_names()} - {"alembic_version"}

    def is_current(self) -> bool:
        try:
            command.check(self.config)
        except CommandError:
            return False
        return True


@pytest.fixture
def project(shared_db, tmp_path):
    made = Project(engine(shared_db), tmp_path)
    yield made
    made.engine.dispose()


def test_a_revision_installs_the_queue_and_the_next_one_is_empty(project):
    orders = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    assert orders.check() == []
    orders.put({})
    orders.ack(orders.take())
    assert orders.stats().counts == {"R": 0, "T": 0, "W": 0, "B": 0, "D": 1}
    assert project.is_current()
    command.downgrade(project.config, "base")
    assert {name for name in project.tables() if "orders" in name} == set()


def test_migrations_run_on_an_asynchronous_driver(project, shared_db):
    driver = next(name for name, kind in ASYNCHRONOUS.items() if isinstance(shared_db, kind))
    project.config.attributes["engine"] = engine_in_loop(shared_db, driver)
    orders = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    orders.put({})
    assert (orders.check(), project.is_current()) == ([], True)
    command.downgrade(project.config, "base")
    assert "orders" not in project.tables()


def test_a_table_with_rows_becomes_a_queue(project):
    project.models()
    project.revise()
    project.migrate()
    with project.engine.begin() as connection:
        connection.execute(project.metadata.tables["orders"].insert(), [{"state": "R"}, {"state": "sold"}])
    orders = project.models(FIELDS, FIRST)
    assert not project.is_current()
    text = project.revise().read_text()
    assert text.index("op.add_column") < text.index("op.install_queue")
    project.migrate()
    assert (orders.check(), orders.count("R")) == ([], 1)
    command.downgrade(project.config, "-1")
    assert {*project.tables()} & {"orders_xq_count"} == set()
    assert len(sa.inspect(project.engine).get_columns("orders")) == 5


def test_a_change_is_a_revision_whose_way_back_installs_the_definition_before(project):
    first = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    first.put_many([{}] * 3)
    first.take()
    second = project.models(MORE, SECOND)
    project.revise()
    project.migrate()
    assert (second.check(), project.is_current()) == ([], True)
    assert second.stats().counts == {"R": 2, "T": 1, "W": 0, "D": 0}
    command.downgrade(project.config, "-1")
    first = project.models(FIELDS, FIRST)
    assert first.check() == []
    project.migrate()
    assert project.models(MORE, SECOND).check() == []
    command.downgrade(project.config, "base")
    project.migrate()  # what an old revision installs is as it was then
    assert project.models(MORE, SECOND).check() == []


def test_a_change_that_was_taken_back_comes_again_and_puts_go_on_meanwhile(project, monkeypatch):
    old, new = (project.models(FIELDS, features) for features in (FIRST, {**FIRST, "max_takes": 3}))
    project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    project.models(FIELDS, {**FIRST, "max_takes": 3})
    project.revise()
    for _ in range(2):
        project.migrate()
        a_second_passes(monkeypatch)
        assert (old.put({}).state, new.put({}).state, new.ack(new.take()).state) == ("R", "R", "D")
        with pytest.raises(xq.NotInstalled, match="it is older"):
            old.take()
        command.downgrade(project.config, "-1")
        a_second_passes(monkeypatch)
        assert (old.put({}).state, old.ack(old.take()).state) == ("R", "D")
        with pytest.raises(xq.NotInstalled, match="run alembic upgrade .*it is withdrawn"):
            new.put({})  # whose column is gone
        with pytest.raises(xq.ConfigurationError, match="it is withdrawn"):
            new.install()


def test_rows_that_become_tasks_by_a_change_are_counted(project):
    orders = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    orders.kill(orders.put({}))
    with project.engine.begin() as connection:
        connection.execute(project.metadata.tables["orders"].insert(), [{"state": "open"}])
    words = {"R": "open", "T": "sending", "W": "later", "B": "failed", "D": "sent"}
    changed = project.models(FIELDS, FIRST, statuses=words)
    project.revise()
    project.migrate()
    assert (changed.check(), changed.stats().counts["R"]) == ([], 1)


def test_the_type_of_the_status_is_altered_without_the_triggers_that_name_it(project):
    project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    orders = project.models(FIELDS, FIRST)
    orders.put({})
    project.metadata.tables["orders"].c.state.type = sa.String(20)
    if project.engine.dialect.name == "sqlite":  # which alters no column in place
        project.config.attributes["options"] = {"render_as_batch": True}
    project.revise()
    project.migrate()
    assert (orders.check(), orders.count("R"), project.is_current()) == ([], 1, True)
    command.downgrade(project.config, "-1")
    assert orders.check() == []


def test_columns_of_a_definition_before_are_dropped(project):
    project.models(MORE, FIRST)
    project.revise()
    project.migrate()
    orders = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    assert orders.check() == []
    assert "xq_attempts" not in {each["name"] for each in sa.inspect(project.engine).get_columns("orders")}
    command.downgrade(project.config, "-1")
    assert project.models(MORE, FIRST).check() == []


def test_a_model_that_is_no_queue_any_more_is_a_plain_table_again(project):
    project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    project.models()
    with pytest.warns(UserWarning, match="orders is no queue any more"):
        text = project.revise().read_text()
    assert text.index("op.uninstall_queue") < text.index("op.drop_column")
    project.migrate()
    assert {name for name in project.tables() if "orders" in name} == {"orders"}
    assert project.is_current()
    command.downgrade(project.config, "-1")
    assert project.models(FIELDS, FIRST).check() == []


def test_the_queue_goes_with_its_table(project):
    project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    project.config.attributes["metadata"] = sa.MetaData()
    text = project.revise().read_text()
    assert text.index("op.uninstall_queue") < text.index("op.drop_table")
    project.migrate()
    assert {name for name in project.tables() if "orders" in name} == set()
    command.downgrade(project.config, "-1")
    assert project.models(FIELDS, FIRST).check() == []


def test_what_guards_need_beside_the_table_is_left_alone(project, caplog):
    caplog.set_level(logging.INFO, "alembic")
    if project.engine.dialect.name == "postgresql":
        project.schema = "shop"
        with project.engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA shop")
    project.config.attributes["options"] = {"include_schemas": project.schema is not None}
    guards = {**FIRST, "utube": 2, "unique": True, "history": True, "guard": True, "limit": 5}
    orders = project.models({**FIELDS, "utube": "customer", "unique": "number"}, guards)
    project.revise()
    project.migrate()
    assert (orders.check(), project.is_current()) == ([], True)
    orders.put({"customer": "ann", "number": "1"})
    changed = {**guards, "utube": 1, "limit": None}
    orders = project.models({**FIELDS, "utube": "customer", "unique": "number"}, changed)
    project.revise()
    project.migrate()
    assert (orders.check(), project.is_current(), orders.take().customer) == ([], True, "ann")
    assert [line for line in caplog.messages if "Detected removed" in line] == []


def test_a_script_installs_the_queue(project):
    project.models(FIELDS, FIRST)
    project.revise()
    orders = project.models(MORE, SECOND)
    command.upgrade(project.config, "head", sql=True)
    assert project.tables() == set()
    with project.engine.connect().execution_options(isolation_level="AUTOCOMMIT", no_parameters=True) as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")
        for sql in project.script.getvalue().split(";\n\n"):
            if sql.strip() and sql.strip() not in ("BEGIN", "COMMIT"):
                connection.exec_driver_sql(sql)
    orders = project.models(FIELDS, FIRST)
    assert orders.check() == []
    assert orders.put({}).state == "R"


def test_a_revision_refuses_what_install_refuses(project):
    first = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    first.put({})
    first.bury(first.take())
    project.models(FIELDS, SECOND)
    with pytest.raises(xq.ConfigurationError, match=r"(?s)has tasks in states.* 1.*UPDATE"):
        project.revise()
    first.dig(1)
    project.revise()
    first.bury(first.take())
    with pytest.raises(xq.ConfigurationError, match=r"(?s)has tasks in states.* 1.*UPDATE"):
        project.migrate()
    with project.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT state FROM orders")) == "B"
    assert project.models(FIELDS, FIRST).check() == [], "what was refused has dropped nothing"


def test_a_history_goes_with_the_revision_that_brought_it(project):
    project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    project.models(FIELDS, {**FIRST, "history": True})
    project.revise()
    project.migrate()
    command.downgrade(project.config, "-1")
    assert "orders_xq_history" not in project.tables()
    assert project.models(FIELDS, FIRST).check() == []


def test_a_revision_has_the_sql_of_the_databases_that_the_project_names(project):
    project.models(FIELDS, FIRST)
    other = "postgresql" if project.engine.dialect.name == "sqlite" else "sqlite"
    project.config.attributes["options"] = {"xq_databases": [other]}
    project.revise()
    with pytest.raises(xq.ConfigurationError, match="xq_databases"):
        project.migrate()


def test_what_is_not_made_by_installing_is_compared(project):
    project.models(FIELDS, FIRST)
    table = project.metadata.tables["orders"]
    sa.Index("ix_orders_xq_owner", table.c.xq_owner)
    sa.Table("xq_report", project.metadata, sa.Column("id", sa.Integer, primary_key=True))
    project.revise()
    project.migrate()
    assert project.is_current()
    orders = project.models(FIELDS, FIRST)
    text = project.revise().read_text()
    assert "op.drop_table('xq_report')" in text
    assert "op.drop_index" in text
    assert "install_queue" not in text
    project.migrate()
    assert orders.check() == []


def test_batch_alter_table_keeps_the_queue(project):
    orders = project.models(FIELDS, FIRST)
    project.revise()
    project.migrate()
    orders.put({})
    project.config.attributes["options"] = {"render_as_batch": True, "compare_type": True}
    if project.engine.dialect.name == "sqlite":  # where the table is made anew
        project.metadata.tables["orders"].c.state.type = sa.String(20)
    project.metadata.tables["orders"].append_column(sa.Column("note", sa.Text))
    text = project.revise().read_text()
    assert ("batch_alter_table" in text, "install_queue" in text) == (True, project.engine.dialect.name == "sqlite")
    project.migrate()
    assert orders.check() == []
    orders.put({})
    assert orders.stats().counts["R"] == 2
    command.downgrade(project.config, "-1")
    assert orders.check() == []


def test_indexes_are_built_beside_writers(project):
    project.models()
    project.revise()
    project.migrate()
    orders = project.models(FIELDS, FIRST)
    revision = project.revise()
    revision.write_text(
        revision.read_text().replace("        },\n    )\n", "        },\n        online=True,\n    )\n", 1)
    )
    project.migrate()
    assert (orders.check(), project.is_current()) == ([], True)
