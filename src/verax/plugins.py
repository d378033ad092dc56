"""Parts that users bring: objects named as `module:name`, found by importing the module.

A rule, an aggregator, a reporting, a reward or a task can be written outside the package. Python
code gives the object itself; a command line, a plan or `terms.toml` gives its name. The name may
stand for the object itself or for a class or function that returns it when called without
arguments. The current folder is searched as well, as `python -m` would do.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_reference(text: str) -> bool:
    """Whether a text has the form `module:name`."""
    return _REFERENCE.fullmatch(text) is not None


def load(text: str, what: str, *methods: str) -> Any:
    """The object that `module:name` stands for.

    Args:
        text: the name.
        what: the kind of object, for error messages.
        methods: what the object must be able to do; a class without them as attributes of its
            instances is refused.
    """
    if not is_reference(text):
        raise ValueError(f"{what} is {text!r}, must be a built-in name or module:name")
    module_name, _, name = text.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        part: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"{what} {text!r}: the module cannot be imported ({error})") from None
    for step in name.split("."):
        if not hasattr(part, step):
            raise ValueError(f"{what} {text!r}: {module_name} has no {name}")
        part = getattr(part, step)
    complete = all(hasattr(part, method) for method in methods)
    if isinstance(part, type) or (callable(part) and not complete):
        try:
            part = part()
        except TypeError as error:
            raise ValueError(
                f"{what} {text!r} must be an object, or a class or function that needs no "
                f"arguments ({error})"
            ) from None
    missing = [method for method in methods if not hasattr(part, method)]
    if missing:
        raise ValueError(f"{what} {text!r} has no {missing[0]!r}; see docs/how-to/extend.md")
    return part


def reference(thing: Any, what: str) -> str:
    """The name `module:name` by which `load` finds an object again.

    The object must be an attribute of a module, or equal what its class returns when called without
    arguments; otherwise another process could not find it.
    """
    kind: Any = thing if isinstance(thing, type) or hasattr(thing, "__qualname__") else type(thing)
    module = sys.modules.get(kind.__module__)
    for name, value in vars(module).items() if module is not None else ():
        if value is thing:
            return f"{kind.__module__}:{name}"
    text = f"{kind.__module__}:{kind.__qualname__}"
    try:
        if is_reference(text) and load(text, what) == thing:
            return text
    except ValueError:
        pass
    raise ValueError(
        f"{what} {thing!r} cannot be found again by name; assign it to a name at the top level of "
        f"its module, {kind.__module__}"
    )
