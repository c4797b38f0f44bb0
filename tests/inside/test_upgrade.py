"""upgrade: what it asks of a model, what it leaves alone, and what it refuses."""

from __future__ import annotations

from xq.adapters.peewee import PeeweeStore
from xq.build import build


def test_a_queue_may_be_apart_from_its_model_which_never_hears_of_it(make):
    model = make.model()
    apart = build(PeeweeStore(model), {"status": "status"}, {"keep": True}, apart=True)
    make.db.create_tables([model])
    assert [name for name in make.db.get_tables() if "xq" in name] == []
    assert (hasattr(model, "xq"), model._meta.only_save_dirty) == (False, False)
    apart.install()
    assert apart.put({"name": "a"}).name == "a"
