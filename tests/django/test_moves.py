"""What moves of tasks pass by, save() and its signals, managers, and what a project has for it: `moved`, and checks."""

from __future__ import annotations

from django.core.checks import run_checks
from django.db import transaction

from xq.adapters.django import moved

FEATURES = {"delayed": True, "buried": True, "keep": True}


def test_each_move_that_is_committed_sends_the_signal_moved(make):
    Task = make(FEATURES)
    seen = []

    def tell(sender, instance, event, source, target, signal):
        seen.append((sender is Task, instance.name, event, source, target))

    def fails(**signal):
        raise ValueError("a receiver's")

    Task.put({"name": "before"})
    assert not Task.xq.parts.observers.anybody, "so that moves cost nothing"
    for receiver in (fails, tell):
        moved.connect(receiver, sender=Task)
    with transaction.atomic():
        Task.put({"name": "rolled back"})
        transaction.set_rollback(True)
    with transaction.atomic():
        Task.take().bury()
        Task.put({"name": "late"}, delay=60)
        assert seen == []
    Task.xq.dig(n=None)
    moves = [("before", "take", "R", "T"), ("before", "bury", "T", "B"), ("late", "put", "X", "W")]
    assert seen == [(True, *move) for move in [*moves, ("before", "dig", "B", "R")]]
    for receiver in (fails, tell):
        assert moved.disconnect(receiver, sender=Task)


def test_save_with_a_word_that_no_state_has_takes_a_finished_row_out_of_the_queue(make):
    Task = make({**FEATURES, "guard": True})
    Task(name="draft", status="draft").save()
    Task.put({"name": "paid"})
    done = Task.take().ack()
    done.status = "refunded"
    done.save()
    assert [Task.stats().transition[move] for move in ("X-R", "D-X")] == [1, 1]
    assert Task.xq.check() == Task.xq.doctor() == []


def test_a_group_has_instances_as_members_and_its_block_is_part_of_a_transaction(make):
    Task = make({"groups": True})
    queue, then = Task.xq, {"name": "then", "size": 7}
    with transaction.atomic():
        with queue.group("import", then=then) as group:
            group.put(Task(name="member"))
        transaction.set_rollback(True)
    with transaction.atomic(), queue.group("import", then=then) as group:
        group.put(Task(name="member"))
        group.put_many([{"name": "member"}])
    assert group.stats()["total"] == 2
    with transaction.atomic():
        for _ in range(2):
            queue.ack(queue.take())
    assert (group.done, [(task.name, task.size) for task in queue.by_state("R")]) == (True, [("then", 7)])


MODELS = """
from django.db.models.signals import post_save, pre_save
from django.dispatch import receiver
from xq.adapters.django import moved

class Present(models.Manager):
    def get_queryset(self):
        return super().get_queryset().filter(deleted_at=None)

class Ordered(models.Manager):
    def get_queryset(self):
        return super().get_queryset().defer("deleted_at").order_by("pk")

class Base(models.Model):
    status = models.CharField(max_length=10, default="R")
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

@queue(fields={"status": "status"}, features={"keep": True})
class Order(Base):
    objects = Present()

@queue(fields={"status": "status"}, features={"keep": True})
class Letter(Base):
    objects = Ordered()

@receiver(post_save, sender=Order)
@receiver(pre_save, sender=Order)
def index(instance, **signal):
    pass

@receiver(post_save, sender=Letter)
def audit(instance, **signal):
    pass

@receiver(moved, sender="LABEL.Letter")
def follow(instance, **signal):
    pass
"""


def test_checks_name_managers_that_hide_rows_and_receivers_that_moves_pass_by(app):
    app.models(MODELS.replace("LABEL", app.label))
    hides, passes = [each for each in run_checks(tags=["xq"]) if each.id in ("xq.W011", "xq.W012")]
    assert (hides.id, hides.obj, passes.id, passes.obj) == ("xq.W011", app.Order, "xq.W012", app.Order)
    assert f"{app.label}.Order.objects hides rows" in hides.msg
    assert 'Order.xq.cancel(row, to="B")' in hides.hint
    assert f": {app.label}.models.index (pre_save), {app.label}.models.index (post_save)" in passes.msg


def test_a_queue_without_the_app_is_an_error_of_the_checks(app):
    app.others = []
    app.models(MODELS.replace("LABEL", app.label))
    (error,) = [each for each in run_checks(tags=["xq"]) if each.id == "xq.E013"]
    assert f"{app.label}.Order, {app.label}.Letter would be installed by migrate, but" in error.msg
