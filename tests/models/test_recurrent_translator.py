"""What is the recurrent translators' own."""

import torch

from seqlab.models.recurrent_translator import RecurrentTranslator
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree


def test_at_first_deep_states_differ_from_position_to_position_as_shallow_ones_do():
    """Or nothing could be found by looking at them."""

    def differences(depth, connections="plain"):
        torch.manual_seed(0)
        settings = {"kind": "recurrent-translator", "cell": "lstm", "width": 64, "depth": depth, "both_ways": "first"}
        model = RecurrentTranslator(part_settings("model", RecipeTree({**settings, "connections": connections})), 100)
        tokens = torch.randint(1, 100, (16, 12))
        states = model.encoder({"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}).states
        return (states - states.mean(1, keepdim=True)).std().item()

    assert differences(6) > 0.8 * differences(1)
    assert 0.8 * differences(1) < differences(8, "residual") < 8 * differences(1)
