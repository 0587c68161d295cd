"""Modules that remember their constructor arguments, so that a faster implementation can tell whether it applies."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn


class Part(nn.Module):
    """A module that keeps the arguments of its constructor, other than modules, in `made_with`."""

    made_with: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _remembering(cls.__init__)  # type: ignore[method-assign]


def _remembering(init: Any) -> Any:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def remembering(self: Part, *args: Any, **kwargs: Any) -> None:
        if "made_with" not in self.__dict__:  # the constructor of the most derived class comes first
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            given = list(bound.arguments.items())[1:]  # without self
            self.made_with = {name: value for name, value in given if not isinstance(value, nn.Module)}
        init(self, *args, **kwargs)

    return remembering
