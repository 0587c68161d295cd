"""The contracts share `shipped_models` and others, which are imported by name, and a run of each task that answers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, _own_cache):
    """Each task's run, trained when it is first asked for."""
    made = {}

    def train(name):
        if name not in made:
            from answering_tasks import recipe

            import seqlab

            folder = tmp_path_factory.mktemp("answers")
            made[name] = seqlab.train(recipe(name, folder), out=folder / "run").folder
        return made[name]

    return train
