"""What decoding promises, for every shipped model: above all that a text does not depend on its neighbours."""

import itertools
import math

import numpy as np
import pytest
import torch
from shipped_models import BUILDERS, CONTEXT, exact, shipped, some_tokens
from tolerance import SMALL_NET, close, no_worse, rounding

from seqlab.decoding.choose import Greedy, Sample, gumbel
from seqlab.decoding.compiled import library
from seqlab.decoding.generate import generate
from seqlab.decoding.logits import Temperature, TopK, TopP
from seqlab.decoding.packing import packed
from seqlab.decoding.reading import read
from seqlab.decoding.scoring import score
from seqlab.errors import SeqlabError
from seqlab.models.gpt import GPT
from seqlab.models.language_model import LanguageModel, Output, State
from seqlab.models.ngram import NGram
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.nn.cells import LSTM, Elman

LENGTHS = (1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 90, 100, 120)
PROMPTS = [some_tokens(1, length, seed=length)[0].tolist() for length in LENGTHS]
PROMPTS += [some_tokens(1, 1 + 7 * row, seed=200 + row)[0].tolist() for row in range(16)]  # 33 in all
CHOICES = {"greedy": Greedy(), "sampling": Sample(Temperature(0.9), TopK(15), TopP(0.95), seed=3)}


def texts(model, prompts, choose=CHOICES["greedy"], tokens=12, stop=frozenset(), requests=None):
    """The new tokens of each prompt, each with its log-probability."""
    found = [[] for _ in prompts]
    for step in generate(model, prompts, choose, tokens, stop, requests=requests):
        for token in step:
            found[token.row].append((token.id, token.log_probability))
    return found


def batches(sizes):
    """Rows of PROMPTS in batches of each size, so that every prompt meets several neighbours."""
    for size in sizes:
        for start in range(0, len(PROMPTS), size):
            yield list(range(start, min(start + size, len(PROMPTS))))


# -------------------------------------------------------------------- neighbours


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", BUILDERS)
def test_a_text_is_the_same_alone_and_in_any_batch(name, choice):
    """The same tokens and the same log-probabilities, bit for bit; rows end early, and GPT's context is passed.

    Attention that is no plain softmax multiplies by the library where nothing can be compiled, whose last bits depend
    on the rows: then up to rounding errors.
    """
    to_the_bit = library() is not None or name not in ("gpt-quiet", "gpt-sparse")
    model, choose = packed(shipped(name)), CHOICES[choice]
    stop = frozenset({4, 9})
    alone = [texts(model, [prompt], choose, 24, stop, [row])[0] for row, prompt in enumerate(PROMPTS)]
    if choice == "sampling":
        assert len({len(text) for text in alone}) > 1, "no row ended early: the test tests too little"
    for rows in batches((33, 17, 8, 5, 4, 3, 2)):
        together = texts(model, [PROMPTS[row] for row in rows], choose, 24, stop, rows)
        for row, text in zip(rows, together, strict=True):
            where = f"prompt of {len(PROMPTS[row])} among {len(rows)}"
            if to_the_bit:
                assert text == alone[row], where
                continue
            assert [token for token, _ in text] == [token for token, _ in alone[row]], where
            near = rounding(SMALL_NET, 10)
            assert [p for _, p in text] == pytest.approx([p for _, p in alone[row]], abs=near), where


def _gpt(width, heads, context, vocab_size):
    return GPT(GPT.Settings(kind="gpt", width=width, depth=2, heads=heads, context=context), vocab_size)


def _recurrent(cell, width, depth, vocab_size):
    settings = RecurrentLanguageModel.Settings(kind="recurrent", cell=cell, width=width, depth=depth)
    return RecurrentLanguageModel(settings, vocab_size)


SHAPES = {
    "gpt-192": lambda: _gpt(192, 4, 128, 512),
    "gpt-100": lambda: _gpt(100, 2, 70, 50),
    "gpt-36": lambda: _gpt(36, 3, 33, 1001),
    "lstm-256": lambda: _recurrent(LSTM.Settings(kind="lstm"), 256, 1, 512),
    "lstm-37": lambda: _recurrent(LSTM.Settings(kind="lstm"), 37, 2, 50),
    "elman-sigmoid-50": lambda: _recurrent(Elman.Settings(kind="elman", activation="sigmoid"), 50, 1, 33),
}


@pytest.mark.parametrize("name", SHAPES)
def test_no_shape_makes_neighbours_matter(name):
    """Widths, heads and vocabularies that are no multiples of anything take other paths through the kernels."""
    torch.manual_seed(0)
    model = SHAPES[name]().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(5.0 if name.startswith("gpt") and weight.dim() > 1 else 1.0)
    model = packed(model)
    longest = model.context or 120
    prompts = [[token % model.vocab_size for token in prompt[:longest]] for prompt in PROMPTS[:17]]
    choose = CHOICES["sampling"]
    alone = [texts(model, [prompt], choose, 20, requests=[row])[0] for row, prompt in enumerate(prompts)]
    for size in (17, 4, 3, 2):
        for start in range(0, 17, size):
            rows = list(range(start, min(start + size, 17)))
            assert texts(model, [prompts[row] for row in rows], choose, 20, requests=rows) == [alone[r] for r in rows]


@pytest.mark.parametrize("name", BUILDERS)
def test_scores_do_not_depend_on_neighbours(name):
    model = packed(shipped(name))
    alone = [score(model, [prompt], end=0)[0] for prompt in PROMPTS]
    assert score(model, PROMPTS, end=0) == alone
    assert score(model, PROMPTS[::-1], end=0) == alone[::-1]


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_a_score_begins_after_the_end_of_the_vocabulary_at_hand(name):
    model, text = exact(name), PROMPTS[5]
    for end in (0, 7):
        with torch.no_grad():
            output = model(torch.tensor([[end, *text[:-1]]]))
            expected = -model.losses(output.states[0], torch.tensor(text)).sum().item()
        assert score(model, [text], end)[0].log_probability == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", BUILDERS)
def test_packed_equals_unpacked(name):
    before = {key: tensor.clone() for key, tensor in shipped(name).state_dict().items()}
    model = packed(shipped(name))
    after = shipped(name).state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())
    as_near(name, model, lambda one: torch.tensor([own.log_probability for own in score(one, PROMPTS, end=0)]))
    for prompt in PROMPTS[:8]:
        text = [token for token, _ in texts(model, [prompt])[0]]
        as_near(name, model, lambda one, prompt=prompt, text=text: step_by_step(one, prompt, text))


def as_near(name, packed, computed):
    """What is computed of a packed model is as near to double precision as that of the plain one. Where there is no
    double precision (n-grams look up, a mixture holds bits), it is near the plain one."""
    found, plain = computed(packed).float(), computed(shipped(name)).float()
    if exact(name) is shipped(name):
        close(found, plain, steps=SMALL_NET)
    else:
        no_worse(found, plain, computed(exact(name)).double())


@torch.no_grad()
def step_by_step(model, prompt, text):
    """Log-probabilities of all tokens at every step of a text: a model may choose another where two are near a tie."""
    reading = read(model, [prompt])
    logits, state = [reading.logits], reading.state
    for token in text[:-1]:
        more, state = model.step(torch.tensor([token]), state)
        logits.append(more)
    return torch.cat(logits).log_softmax(-1)


@pytest.mark.parametrize("name", BUILDERS)
def test_log_probabilities_are_those_of_one_long_reading(name):
    """Decoding step by step scores its text as the training path does."""
    twin, prompt = packed(shipped(name)), PROMPTS[5]
    new = texts(twin, [prompt], CHOICES["sampling"], 30)[0]
    text = torch.tensor([[*prompt, *(token for token, _ in new)]])

    @torch.no_grad()
    def chances(one):
        if one is twin:
            return torch.tensor([p for _, p in new])
        scores = one.logits(one(text).states).log_softmax(-1)[0, len(prompt) - 1 : -1]
        return scores.gather(1, text[0, len(prompt) :, None])[:, 0]

    as_near(name, twin, chances)


def test_a_text_beyond_the_context_goes_on_from_half_of_it():
    """GPT looks at its last half context when it is full: the same as a prompt of that half."""
    model, prompt = packed(shipped("gpt")), PROMPTS[14]
    text = [*prompt, *(token for token, _ in texts(model, [prompt], tokens=CONTEXT)[0])]
    assert len(text) > CONTEXT + 20
    # the position after the full context is predicted from the second half of it and all that followed
    at = CONTEXT + 10
    with torch.no_grad():
        reread = torch.tensor([text[CONTEXT + 1 - CONTEXT // 2 : at]])
        assert int(model.logits(model(reread).states)[0, -1].argmax()) == text[at]
    with pytest.raises(SeqlabError, match="longer than"):
        texts(model, [[1] * (CONTEXT + 1)])


def test_unseen_contexts_of_an_unsmoothed_model_are_said():
    model = NGram(NGram.Settings(kind="ngram", order=2, smoothing="counts"), 5)
    model.fit(np.array([1, 2, 1, 2, 0]))
    with pytest.raises(SeqlabError, match="never seen this context"):
        texts(model, [[4]])


# -------------------------------------------------------------------- streaming


class Counting(LanguageModel):
    """Always the token that follows, and how often it was asked."""

    vocab_size = 10

    def __init__(self):
        super().__init__()
        self.calls = 0

    def start(self, source=None, rows=1):
        return State({}, torch.zeros(rows, dtype=torch.long))

    def forward(self, tokens, state=None, mask=None):
        self.calls += 1
        state = state.consume()
        state.lengths = state.lengths + (tokens.shape[1] if mask is None else mask.sum(1))
        return Output(torch.nn.functional.one_hot((tokens + 1) % 10, 10).float(), state)

    def logits(self, states):
        return states


def test_tokens_come_as_they_are_made():
    model = Counting()
    steps = generate(model, [[3], [5]], tokens=100)
    assert model.calls == 0
    for done in range(1, 6):
        assert [token.id for token in next(steps)] == [3 + done, (5 + done) % 10]
        assert model.calls == done  # the prompt, then one call for each token that was asked for
    steps.close()


def test_a_finished_row_stops_and_costs_nothing():
    model = Counting()
    found = texts(model, [[3], [5], [8]], stop=frozenset({7}), tokens=6)
    assert [[token for token, _ in text] for text in found] == [[4, 5, 6, 7], [6, 7], [9, 0, 1, 2, 3, 4]]
    assert model.calls == 6


# -------------------------------------------------------------------- choosing


def test_temperature_divides():
    logits = torch.randn(3, 9, dtype=torch.float64)
    close(Temperature(0.5)(logits).softmax(-1), (logits * 2).softmax(-1))
    assert Temperature(1e-300)(logits).softmax(-1).amax(-1).eq(1).all()


@pytest.mark.parametrize("k", [1, 3, 9, 50])
def test_top_k_keeps_the_k_most_likely(k):
    logits = torch.randn(20, 9)
    kept = TopK(k)(logits)
    assert (kept.isfinite().sum(-1) == min(k, 9)).all()
    assert torch.equal(kept.argmax(-1), logits.argmax(-1))
    assert (logits[kept == -torch.inf] <= logits.max()).all()
    tied = TopK(2)(torch.tensor([[1.0, 3.0, 1.0, 1.0]]))
    assert tied.isfinite().tolist() == [[True, True, True, True]]  # ties at the border stay


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.9, 1.0])
def test_top_p_keeps_the_fewest_that_reach_p(p):
    logits = torch.randn(50, 12) * 2
    kept = TopP(p)(logits)
    for before, after in zip(logits.double().softmax(-1), kept.isfinite(), strict=True):
        mass = before[after].sum()
        assert mass >= p - rounding(12)  # a sum of twelve in float32
        assert mass - before[after].min() < p + rounding(12)  # without the least of them it would be too little
        assert before[after].min() >= before[~after].max() if not after.all() else True


def test_filters_compose_in_order():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    hot = TopP(0.8)(Temperature(2.0)(logits))
    cold = TopP(0.8)(Temperature(0.5)(logits))
    assert hot.isfinite().sum() == 3
    assert cold.isfinite().sum() == 1
    both = Sample(Temperature(2.0), TopK(2), seed=1)
    drawn = both(logits.expand(4000, 4), torch.arange(4000), torch.zeros(4000, dtype=torch.long))
    assert set(drawn.tolist()) == {0, 1}
    share = (drawn == 0).float().mean().item()
    assert share == pytest.approx(1 / (1 + math.exp(-0.5)), abs=0.03)


def test_sampling_draws_from_the_softmax():
    """Chi-square over 200,000 draws: requests, positions and seeds are all independent draws."""
    logits = torch.tensor([1.5, 0.0, -1.0, 2.0, -3.0, 0.5, 0.5, -0.2])
    expected = logits.double().softmax(-1) * 200_000
    count = torch.arange(200_000)
    ways = {
        "requests": (0, count, torch.zeros_like(count)),
        "positions": (7, torch.zeros_like(count), count),
        "both": (1, count % 447, count // 447),
    }
    for name, (seed, requests, positions) in ways.items():
        drawn = Sample(seed=seed)(logits.expand(200_000, 8), requests, positions)
        observed = torch.bincount(drawn, minlength=8).double()
        chi_square = ((observed - expected) ** 2 / expected).sum().item()
        assert chi_square < 24.3, f"{name}: {chi_square:.1f}"  # p = 0.001 with 7 degrees of freedom


def test_noise_is_a_function_of_seed_request_and_position_alone():
    requests, positions = torch.tensor([3, 8, 3]), torch.tensor([5, 5, 6])
    noise = gumbel(11, requests, positions, 40)
    for row in range(3):
        assert torch.equal(gumbel(11, requests[row : row + 1], positions[row : row + 1], 40)[0], noise[row])
    rows = [noise[0], noise[1], noise[2], gumbel(12, requests, positions, 40)[0]]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(rows, 2))
    assert torch.equal(gumbel(11, requests, positions, 30), noise[:, :30])


def test_noise_is_finite():
    """Where the uniform number is the largest there is, it must not round to 1: infinite noise would choose alone."""
    largest = gumbel(0, torch.tensor([399]), torch.tensor([0]), 12_320)[0, 12_319]
    assert 15 < largest < 17
    noise = gumbel(1, torch.arange(100), torch.zeros(100, dtype=torch.long), 50_000)
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.002)  # Euler's constant


def test_a_filtered_token_is_never_drawn():
    logits = TopK(3)(torch.randn(1, 1000)).expand(5_000, 1000)
    drawn = Sample(seed=5)(logits, torch.arange(5_000), torch.zeros(5_000, dtype=torch.long))
    assert len(set(drawn.tolist())) == 3


def test_every_prompt_needs_a_token():
    with pytest.raises(ValueError, match="at least one token"):
        texts(shipped("lstm"), [[1], []])
