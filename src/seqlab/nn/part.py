"""Modules that know what they were made with, so that whoever computes one in another way can tell whether it may."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn


class Part(nn.Module):
    """A module that keeps the arguments of its constructor, but for modules among them, in `made_with`."""

    made_with: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _remembering(cls.__init__)  # type: ignore[method-assign]


def _remembering(init: Any) -> Any:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def remembering(self: Part, *args: Any, **kwargs: Any) -> None:
        if "made_with" not in self.__dict__:  # the outermost class speaks for those it is made of
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            given = list(bound.arguments.items())[1:]  # without self
            self.made_with = {name: value for name, value in given if not isinstance(value, nn.Module)}
        init(self, *args, **kwargs)

    return remembering
