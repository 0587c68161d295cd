"""seqlab: one toolkit for every neural sequence model.

Public names are imported on first use, so `import seqlab` itself is cheap.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError("seqlab needs POSIX file locks: on Windows, run it inside WSL")

_PUBLIC = {
    "Recipe": "seqlab.recipe",
    "Replace": "seqlab.nn.interventions",
    "Run": "seqlab.runs.run",
    "Scale": "seqlab.nn.interventions",
    "SeqlabError": "seqlab.errors",
    "Set": "seqlab.nn.interventions",
    "average": "seqlab.runs.averaging",
    "back_translate": "seqlab.runs.back_translation",
    "compare": "seqlab.runs.comparison",
    "intervene": "seqlab.nn.interventions",
    "load": "seqlab.runs.run",
    "mix": "seqlab.runs.mixing",
    "record": "seqlab.nn.recording",
    "register": "seqlab.registry",
    "train": "seqlab.runs.launch",
}

if TYPE_CHECKING:
    from seqlab.errors import SeqlabError
    from seqlab.nn.interventions import Replace, Scale, Set, intervene
    from seqlab.nn.recording import record
    from seqlab.recipe import Recipe
    from seqlab.registry import register
    from seqlab.runs.averaging import average
    from seqlab.runs.back_translation import back_translate
    from seqlab.runs.comparison import compare
    from seqlab.runs.launch import train
    from seqlab.runs.mixing import mix
    from seqlab.runs.run import Run, load

__all__ = [
    "Recipe",
    "Replace",
    "Run",
    "Scale",
    "SeqlabError",
    "Set",
    "average",
    "back_translate",
    "compare",
    "intervene",
    "load",
    "mix",
    "record",
    "register",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'seqlab' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
