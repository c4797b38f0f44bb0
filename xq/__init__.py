"""xq turns a table that an application already has into a persistent queue.

The public names stand in `__init__.pyi`, for type checkers and for this module: each is imported when it is first used,
so that the command line starts at once, and PySpark is needed for `xq.spark` only.
"""

import ast
import importlib
import typing

__version__ = "0.2.0"

_loader: typing.Any = __spec__.loader  # reads also from a zip, as Spark sends xq to its workers
_stub = ast.parse(_loader.get_data(f"{__file__}i"))
_imports = [node for node in _stub.body if isinstance(node, ast.ImportFrom)]
_modules = {name.name: node.module for node in _imports for name in node.names}

__all__ = [name for name in [*_modules, "__version__"] if name != "spark"]


def __getattr__(name: str) -> typing.Any:
    module = _modules.get(name)
    if module is None:
        raise AttributeError(f"module 'xq' has no attribute {name!r}")
    found = importlib.import_module("xq.spark") if name == "spark" else getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules})
