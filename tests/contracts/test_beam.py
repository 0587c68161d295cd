"""Beam search against brute force, Viterbi, a slow beam and a worked example; and on every shipped model."""

import numpy as np
import pytest
import torch
from shipped_models import BUILDERS, exact, shipped, some_tokens
from tolerance import SMALL_NET, close, no_worse, rounding

from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import packed
from seqlab.models.language_model import LanguageModel, Output, State
from seqlab.models.ngram import NGram

PROMPTS = [some_tokens(1, length, seed=length)[0].tolist() for length in (1, 17, 33, 120)]


def search(model, prompt, *settings, **more):
    """For one prompt."""
    (found,) = beam_search(model, [prompt], *settings, **more)
    return found


def greedily(model, prompt, tokens):
    """The most likely tokens, one after the other, and the log-probability of all."""
    new = [token for (token,) in generate(model, [prompt], tokens=tokens)]
    return [token.id for token in new], sum(token.log_probability for token in new)


class Table(LanguageModel):
    """p(next | all tokens so far) from a dictionary of log-probabilities; the state is the text itself."""

    def __init__(self, vocab_size, score):
        super().__init__()
        self.vocab_size, self.score = vocab_size, score

    def start(self, source=None, rows=1):
        return State({"text": torch.zeros(rows, 0, dtype=torch.long)}, torch.zeros(rows, dtype=torch.long))

    def forward(self, tokens, state=None, mask=None):
        state = state.consume()
        lengths = torch.full((len(tokens),), tokens.shape[1]) if mask is None else mask.sum(1)
        text = state.rows["text"]
        room = torch.nn.functional.pad(text, [0, tokens.shape[1]])
        states = torch.full((*tokens.shape, self.vocab_size), -torch.inf)
        for row, (before, new) in enumerate(zip(state.lengths.tolist(), lengths.tolist(), strict=True)):
            room[row, before : before + new] = tokens[row, :new]
            for time in range(new):
                states[row, time] = self.score(tuple(room[row, : before + time + 1].tolist()))
        state.rows["text"] = room
        state.lengths = state.lengths + lengths
        return Output(states, state)

    def logits(self, states):
        return states


def random_table(vocab_size, seed):
    """A model whose every context has its own distribution."""

    def scores(text):
        generator = torch.Generator().manual_seed(hash((seed, *text)) % 2**31)
        return (torch.randn(vocab_size, generator=generator) * 1.5).log_softmax(-1)

    return Table(vocab_size, scores)


def brute_force(model, prompt, beam, tokens, stop):
    """Every sequence that ends with a stop token or is full, ranked."""
    found = []

    def grow(text, total):
        scores = model.score((*prompt, *text)).double()
        for token in range(model.vocab_size):
            new, value = (*text, token), total + scores[token].item()
            if token in stop or len(new) == tokens:
                found.append((beam.rank(value, len(new)), new, value))
            else:
                grow(new, value)

    grow((), 0.0)
    return sorted(found, reverse=True)


def test_the_worked_example_of_beam_two():
    """Cumulative log-probabilities: greedy takes 'beer' and ends at −6.28, a beam of two finds −3.04."""
    words = ["<end>", "beer", "I", "drink", "like", "wine"]
    cumulative = {
        (): {"beer": -1.82, "I": -2.11},
        ("beer",): {"drink": -6.93, "I": -5.8},
        ("I",): {"beer": -8.66, "drink": -2.87},
        ("beer", "I"): {"drink": -6.28, "like": -7.31},
        ("I", "drink"): {"beer": -3.04, "wine": -5.12},
    }

    def scores(text):
        said = tuple(words[token] for token in text[1:])
        before = cumulative[said[:-1]][said[-1]] if said else 0.0
        found = torch.full((len(words),), -torch.inf)
        for word, total in cumulative.get(said, {}).items():
            found[words.index(word)] = total - before
        rest = (1 - found.exp().sum()) / 1000  # what the example leaves open, among words too rare to be chosen
        return torch.cat([found, rest.log().expand(1000)])

    model = Table(len(words) + 1000, scores)
    greedy, total = greedily(model, [0], 3)
    assert [words[token] for token in greedy] == ["beer", "I", "drink"]
    assert total == pytest.approx(-6.28, abs=rounding(16, 7))
    best, *_ = search(model, [0], Beam(2), tokens=3)
    assert [words[token] for token in best.tokens] == ["I", "drink", "beer"]
    assert best.log_probability == pytest.approx(-3.04, abs=rounding(16, 7))


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 3.0, -0.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_all_sequences_is_exact(seed, penalty):
    """n-best and scores equal brute force, whatever ends early and however length counts."""
    model, beam, stop = random_table(4, seed), Beam(4**4, penalty), frozenset({0})
    expected = brute_force(model, (2,), beam, 4, stop)
    found = search(model, [2], beam, 4, stop)
    assert [one.tokens for one in found] == [text for _, text, _ in expected]
    near = rounding(32, 20)  # sums of four numbers, none below −20
    assert [one.log_probability for one in found] == pytest.approx([value for *_, value in expected], abs=near)
    assert [one.rank for one in found] == pytest.approx([rank for rank, *_ in expected], abs=near)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0, -0.5, -2.0])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_the_best_finished_hypothesis_is_never_lost(width, penalty):
    """A beam written the slow way, which never stops early, finds the same."""
    for seed in range(12):
        model, beam, stop = random_table(5, 100 + seed), Beam(width, penalty), frozenset({0, 3})
        live, done = [((), 0.0)], []
        for length in range(1, 7):
            grown = [
                ((*text, token), total + p)
                for text, total in live
                for token, p in enumerate(model.score((2, *text)).tolist())
            ]
            grown.sort(key=lambda one: -one[1])
            live = []
            for text, total in grown:
                if len(live) == width:
                    break
                if text[-1] in stop or length == 6:
                    done.append((beam.rank(total, length), text))
                else:
                    live.append((text, total))
        best = sorted(done, reverse=True)[:width]
        found = search(model, [2], beam, 6, stop)
        assert [one.tokens for one in found] == [text for _, text in best], f"seed {seed}"


def test_bigrams_equal_viterbi():
    """The most probable text of a bigram model, by dynamic programming."""
    generator = np.random.default_rng(0)
    for trial in range(5):
        model = NGram(NGram.Settings(kind="ngram", order=2, smoothing="add-k", k=0.1), 6)
        model.fit(np.append(generator.integers(0, 6, 60), 0))
        table = model.logits(model(torch.arange(6)[:, None]).states[:, 0]).double()
        best, back = table[3].clone(), []  # after the prompt [3]
        for _ in range(7):
            reached = best[:, None] + table
            back.append(reached.argmax(0))
            best = reached.max(0).values
        path = [int(best.argmax())]
        for step in reversed(back):
            path.append(int(step[path[-1]]))
        found, *_ = search(model, [3], Beam(6 * 6), 8)
        assert found.log_probability == pytest.approx(best.max().item(), abs=rounding(32, 20)), f"trial {trial}"
        assert list(found.tokens) == path[::-1]


@pytest.mark.parametrize("name", BUILDERS)
def test_a_beam_of_one_without_stop_is_greedy(name):
    model = packed(shipped(name))
    for prompt in PROMPTS:
        greedy, total = greedily(model, prompt, 15)
        (found,) = search(model, prompt, Beam(1), 15)
        assert list(found.tokens) == greedy
        assert found.log_probability == pytest.approx(total, abs=15 * rounding(4, 20))  # log p of logits of size 20


@pytest.mark.parametrize("name", BUILDERS)
def test_hypotheses_are_scored_as_their_text_is(name):
    prompt = PROMPTS[1]
    found = search(packed(shipped(name)), prompt, Beam(4, 0.6), 10, frozenset({0}))

    @torch.no_grad()
    def totals(model):
        texts = [torch.tensor([[*prompt, *one.tokens]]) for one in found]
        scores = [model.logits(model(text).states).log_softmax(-1)[0, len(prompt) - 1 : -1] for text in texts]
        each = zip(scores, texts, strict=True)
        return torch.stack([own.gather(1, text[0, len(prompt) :, None]).sum() for own, text in each])

    own, plain, best = torch.tensor([one.log_probability for one in found]), totals(shipped(name)), totals(exact(name))
    no_worse(own, plain, best) if best.dtype == torch.float64 else close(own, plain, steps=SMALL_NET)
    for one in found:
        assert one.rank == pytest.approx(one.log_probability / ((5 + len(one.tokens)) / 6) ** 0.6)


def test_ties_fall_to_the_earlier_hypothesis_and_the_smaller_token():
    even = Table(3, lambda text: torch.zeros(3).log_softmax(-1))
    found = search(even, [0], Beam(4), 3)
    assert [one.tokens for one in found] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]
    assert search(even, [0], Beam(4), 3) == found


def test_a_beam_passes_the_context_of_a_gpt():
    model = packed(shipped("gpt"))
    found = search(model, PROMPTS[3], Beam(3), 40)
    assert len(found) == 3
    assert all(len(one.tokens) == 40 for one in found)
    assert found[0].log_probability >= found[1].log_probability >= found[2].log_probability
