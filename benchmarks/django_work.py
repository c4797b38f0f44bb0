"""A task for django-tasks, which looks tasks up by the path of their module. Imported when Django is set up."""

from django_tasks import task


@task()  # type: ignore[untyped-decorator]
def work(payload: str) -> None:
    """Do nothing."""
