"""A translator that is trained once for all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests share `small_translations`, which is imported by name


@pytest.fixture(scope="session")
def reverser(_own_cache, tmp_path_factory):
    """A run that has learnt to say words backwards."""
    import torch
    from small_translations import recipe, reversals

    import seqlab

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("reverser")
    model = {"kind": "recurrent-translator", "width": 48, "attention": "dot", "both_ways": "first"}
    settings = recipe(folder, reversals(), model=model, learning_rate=0.01, schedule={"kind": "cosine", "warmup": 20})
    return seqlab.train(settings.changed({"training.steps": 400}), out=folder / "run")
