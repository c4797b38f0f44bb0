"""What is done for django-tasks and django-q2, which look it up by its path. Imported when Django is set up."""

from django_tasks import task

from benchmarks.peer_workers import calls


@task()  # type: ignore[untyped-decorator]
def work(payload: str) -> None:
    """Do nothing."""


def nothing(payload: str) -> None:
    """Do nothing."""


@task()  # type: ignore[untyped-decorator]
def counted(payload: str) -> None:
    """Do nothing, and be counted."""
    calls(payload)
