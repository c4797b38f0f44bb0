"""Find xq's errors in PySpark's, which have them as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from xq.core import errors

# How a traceback shows an error: its class, its message, and the note that each xq.Error has behind it.
SHOWN = re.compile(r"xq\.core\.errors\.(\w+): ((?:(?!xq\.core\.errors\.).)*?)\n\W*Read docs/errors\.md#", re.DOTALL)


def error(exception: BaseException) -> errors.Error | None:
    """Return xq's error in an exception of PySpark's, with the class and message of Spark's worker; None without one.

    It has no other attributes.
    """
    if isinstance(exception, errors.Error):
        return exception
    for name, message in reversed(SHOWN.findall(str(exception))):
        kind = vars(errors).get(name, errors.Error)
        found: errors.Error = kind.__new__(kind)
        found.args = (message,)
        return found
    return None


@contextmanager
def raised_as_xq() -> Iterator[None]:
    """Raise xq's error, if there is one, in place of PySpark's."""
    try:
        yield
    except Exception as exception:
        if (found := error(exception)) in (None, exception):
            raise
        raise found from exception
