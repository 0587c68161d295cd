"""Teacher forcing, scheduled sampling and free running: one setting for recurrent nets and Transformers."""

import pytest
import torch

from seqlab.data.batching.batches import Batch
from seqlab.models.gpt import GPT
from seqlab.models.recurrent_translator import RecurrentTranslator
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.models.transformer import Transformer
from seqlab.objectives.forcing import Forcing, forced
from seqlab.objectives.next_token import NextToken

MODELS = {
    "lstm": lambda: RecurrentLanguageModel(RecurrentLanguageModel.Settings(kind="recurrent", width=16), 13),
    "gpt": lambda: GPT(GPT.Settings(kind="gpt", width=16, depth=2, heads=2, context=16), 13),
}


def test_schedules():
    for shape in ("linear", "sigmoid", "exponential"):
        forcing = Forcing(own=0.5, shape=shape, begin=0.2, end=0.7)
        shares = [forcing.share(step / 10) for step in range(11)]
        assert shares[:3] == [0.0, 0.0, 0.0]
        assert shares[7:] == pytest.approx([0.5] * 4)
        assert shares == sorted(shares)
    assert Forcing(own=1, shape="constant").share(0.0) == 1
    assert Forcing(own=1, begin=0.5, end=0.5).share(0.4) == 0
    with pytest.raises(ValueError, match="before 'begin'"):
        Forcing(begin=0.5, end=0.2)


@pytest.mark.parametrize("name", MODELS)
def test_with_as_many_passes_as_positions_it_runs_free(name):
    """Every token read is what the model itself would write after those before it."""
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    tokens = torch.randint(13, (3, 9))
    own = torch.ones(3, 9, dtype=torch.bool)
    own[:, 0] = False
    forcing = Forcing(own=1, shape="constant", passes=9, choose="best")
    found = forced(tokens, own, forcing, lambda inputs: model.logits(model(inputs).states))
    state, token = model.start(rows=3), tokens[:, 0]
    for position in range(1, 9):
        logits, state = model.step(token, state)
        token = logits.argmax(-1)
        assert torch.equal(found[:, position], token)


@pytest.mark.parametrize("name", MODELS)
def test_only_training_is_forced_and_only_by_its_share(name):
    torch.manual_seed(0)
    objective = NextToken(NextToken.Settings(kind="next-token", forcing=Forcing(own=0.5)), MODELS[name]())
    plain = NextToken(NextToken.Settings(kind="next-token"), objective.body)
    tokens = torch.randint(13, (8, 12))
    batch = Batch(tokens=tokens, targets=tokens.roll(-1, 1))
    assert torch.equal(objective.eval()(batch).sum, plain.eval()(batch).sum)
    objective.train()
    assert torch.equal(objective(batch).sum, plain(batch).sum)  # nothing is done yet
    objective.progress = 1.0
    loss = objective(batch)
    assert not torch.equal(loss.sum, plain(batch).sum)
    loss.sum.backward()
    assert all(weight.grad is not None for weight in objective.parameters())
    changed = objective._forced(batch, None)["tokens"] != tokens
    assert 0.25 < changed[:, 1:].float().mean() < 0.6  # some of its own are right by chance
    assert not changed[:, 0].any()


TRANSLATORS = {
    "recurrent": lambda: RecurrentTranslator(
        RecurrentTranslator.Settings(kind="recurrent-translator", width=16, depth=2, attention="additive"), 13
    ),
    "transformer": lambda: Transformer(Transformer.Settings(kind="transformer", width=16, depth=2, heads=2), 13),
}


def some_pairs():
    """Three targets, the second of them short, and their sources."""
    torch.manual_seed(0)
    mask = torch.arange(9) < torch.tensor([9, 4, 9])[:, None]
    source = {"source.tokens": torch.randint(13, (3, 6)), "source.mask": torch.ones(3, 6, dtype=torch.bool)}
    return Batch(source, tokens=torch.randint(13, (3, 9)), targets=torch.randint(13, (3, 9)), mask=mask)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_reads_what_it_would_write_for_its_source(name):
    batch = some_pairs()
    model = TRANSLATORS[name]().double().eval()
    forcing = Forcing(own=1, shape="constant", passes=9, choose="best")
    objective = NextToken(NextToken.Settings(kind="next-token", forcing=forcing), model)
    found = objective._forced(batch, None)["tokens"]
    state, token = model.start(batch.part("source"), 3), batch["tokens"][:, 0]
    for position in range(1, 9):
        logits, state = model.step(token, state)
        token = logits.argmax(-1)
        real = batch["mask"][:, position]
        assert torch.equal(found[real, position], token[real])


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_learn_by_scheduled_sampling(name):
    batch = some_pairs()
    settings = NextToken.Settings(kind="next-token", forcing=Forcing(own=0.5), smoothing=0.1)
    objective = NextToken(settings, TRANSLATORS[name]())
    optimizer = torch.optim.Adam(objective.parameters(), 0.02)
    losses = []
    for step in range(40):
        objective.progress = step / 40
        loss = objective(batch)
        optimizer.zero_grad()
        loss.sum.backward()
        optimizer.step()
        losses.append(float(loss.sum.detach()))
    assert int(loss.count) == 22
    assert losses[-1] < 0.8 * losses[0]


def test_streams_go_on_from_their_state():
    torch.manual_seed(0)
    forcing = Forcing(own=1, shape="constant", passes=2)
    objective = NextToken(NextToken.Settings(kind="next-token", forcing=forcing), MODELS["lstm"]())
    tokens = torch.randint(13, (4, 6))
    first = objective(Batch(tokens=tokens, targets=tokens))
    second = objective(Batch(tokens=tokens, targets=tokens), first.state)
    assert second.state.lengths.tolist() == [12] * 4
