"""Words read as they are, and by their characters."""

import pytest
import torch
from tolerance import close

from seqlab.errors import RecipeError
from seqlab.models.recurrent_encoder import RecurrentEncoder

pytestmark = pytest.mark.usefixtures("double")

BATCH = {
    "tokens": torch.tensor([[2, 3, 2], [4, 0, 0]]),
    "mask": torch.tensor([[True, True, True], [True, False, False]]),
    "spellings": torch.tensor([[2, 3], [4, 0], [3, 3]]),
    "spelt": torch.tensor([[0, 1, 0], [2, 0, 0]]),
}


def encoder(**settings):
    torch.manual_seed(1)
    whole = RecurrentEncoder.Settings(kind="recurrent-encoder", width=5, **settings)
    return RecurrentEncoder(whole, vocab_size=6, alphabet_size=5).eval()


@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_characters_are_set_beside_the_words(kind):
    model = encoder(characters=kind, depth=2)
    assert model.recurrent.layers[0].input_width == 5 + model.characters.width
    states, mask, summary = model(BATCH)
    assert [part.shape for part in summary[1]] == [(2, 10)] * len(summary[1])
    assert states.shape == (2, 3, 10)
    assert mask is BATCH["mask"]
    other = {**BATCH, "spellings": torch.tensor([[2, 4], [4, 0], [3, 3]])}  # another spelling of the same token
    assert not torch.allclose(model(other).states[0], states[0])
    close(model(other).states[1, 0], states[1, 0])


def test_without_characters_spellings_are_not_looked_at():
    model = encoder()
    assert model.characters is None
    states = model({name: BATCH[name] for name in ("tokens", "mask")}).states
    assert torch.equal(states, model(BATCH).states)


def test_a_task_without_characters():
    settings = RecurrentEncoder.Settings(kind="recurrent-encoder", characters="recurrent")
    with pytest.raises(RecipeError, match=r"model\.characters: this task does not read the characters of words"):
        RecurrentEncoder(settings, vocab_size=6)
