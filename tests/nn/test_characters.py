"""Words from their characters: each as if it were alone."""

import pytest
import torch
from tolerance import close

from seqlab.nn.characters import ConvolutionalCharacters, RecurrentCharacters, character_reader

pytestmark = pytest.mark.usefixtures("double")

READERS = {
    "recurrent": RecurrentCharacters.Settings(kind="recurrent", width=4, embedding=3),
    "gru": RecurrentCharacters.Settings(kind="recurrent", cell="gru", width=4, embedding=3),
    "convolutional": ConvolutionalCharacters.Settings(kind="convolutional", width=8, embedding=3),
    "wide": ConvolutionalCharacters.Settings(kind="convolutional", width=8, embedding=3, reach=3),
}
WORDS = torch.tensor([[2, 3, 4, 5], [1, 0, 0, 0], [5, 4, 0, 0]])


@pytest.fixture(params=READERS)
def reader(request):
    torch.manual_seed(0)
    return character_reader(READERS[request.param], 6)


def test_a_word_does_not_depend_on_those_beside_it(reader):
    together = reader(WORDS)
    assert together.shape == (3, reader.width)
    for row, length in enumerate([4, 1, 2]):
        close(reader(WORDS[row : row + 1, :length])[0], together[row])
    close(reader(torch.nn.functional.pad(WORDS, (0, 5))), together)


def test_the_order_of_characters_matters(reader):
    one, other = reader(torch.tensor([[2, 3, 4], [4, 3, 2]]))
    assert not torch.allclose(one, other)


def test_all_weights_learn(reader):
    reader(WORDS).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in reader.parameters())


def test_the_recurrent_one_is_the_library_s():
    torch.manual_seed(0)
    ours = character_reader(READERS["recurrent"], 6)
    library = torch.nn.LSTM(3, 4, bidirectional=True, batch_first=True)
    for suffix, cell in (("", ours.recurrent.layers[0]), ("_reverse", ours.recurrent.back[0])):
        for name, tensor in (
            ("weight_ih", cell.input.weight),
            ("weight_hh", cell.recurrent.weight),
            ("bias_ih", cell.input.bias),
            ("bias_hh", torch.zeros(16)),
        ):
            getattr(library, f"{name}_l0{suffix}").data.copy_(tensor)
    lengths = torch.tensor([4, 1, 2])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        ours.embedding(WORDS), lengths, batch_first=True, enforce_sorted=False
    )
    _, (h, _) = library(packed)
    close(ours(WORDS), torch.cat([h[0], h[1]], -1))


def test_the_convolutional_one_by_hand():
    torch.manual_seed(0)
    ours = character_reader(READERS["convolutional"], 6)
    x = torch.nn.functional.pad(ours.embedding(WORDS[0]), (0, 0, 1, 1))  # zeros around the word
    kernel, bias = ours.convolution.weight, ours.convolution.bias  # (W, E, 3)
    matches = [(kernel * x[t : t + 3].t()).sum((1, 2)) + bias for t in range(4)]
    close(ours(WORDS[:1])[0], torch.stack(matches).amax(0))
