"""What all tests share: a cache of their own, one thread, and the shared data where it is there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1] / "../shared/data"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Token stores of tests go to a folder that is thrown away."""
    before = os.environ.get("SEQLAB_CACHE")
    os.environ["SEQLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["SEQLAB_CACHE"]
    else:
        os.environ["SEQLAB_CACHE"] = before


@pytest.fixture(autouse=True)
def _one_thread():
    """Small tensors on one thread: no slower, and the same whoever else is at work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """`shared_data("ptb")` is that folder or file of the shared data; the test is skipped where it is missing."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"the shared data has no {name} here")
        return path.resolve()

    return find
