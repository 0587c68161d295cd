"""Requests that come, go and are cancelled at any step: each finds what it would find alone, to the bit."""

import copy
import random
from functools import cache

import numpy as np
import pytest
import shipped_models
import shipped_translators
import torch
from tolerance import SMALL_NET, rounding

from seqlab.decoding.beam import Beam, Search, beam_search
from seqlab.decoding.choose import Greedy, Sample
from seqlab.decoding.compiled import library
from seqlab.decoding.engine import Engine
from seqlab.decoding.generate import Writing, generate
from seqlab.decoding.logits import Temperature, TopK
from seqlab.decoding.packing import packed
from seqlab.errors import RunError
from seqlab.models.ngram import NGram

pytestmark = pytest.mark.numeric

MODELS = [
    "gpt",
    "gpt-llama",
    "gpt-alibi",
    "gpt-sparse",
    "lstm",
    "convolutional",
    "ngram-modified-kneser-ney",
    "mixture",
]
TRANSLATORS = [
    "transformer",
    "transformer-rotary",
    "transformer-quiet-buckets",
    "transformer-six-heads",
    "v2",
    "v6",
    "convolutional",
    "coverage",
]
MIXES, POOL, STOP = 13, 40, frozenset({0, 4})  # 16 models: 208 mixes
LENGTHS = [1 + 7 * number % 33 if number % 10 else 190 + number for number in range(POOL)]
SOURCES = shipped_translators.some_sources(LENGTHS, seed=3)


@cache
def model_of(name):
    kind, name = name.split("/")
    return packed((shipped_models if kind == "lm" else shipped_translators).shipped(name))


def source_of(name, numbers):
    if name.startswith("lm/"):
        return None
    width = max(LENGTHS[number] for number in numbers)
    return {key: tensor[list(numbers), :width] for key, tensor in SOURCES.items()}


def request(name, number):
    """The request with this number: its kind, prompt and limit are always the same."""
    draw = random.Random(number)
    translates = not name.startswith("lm/")
    longest = 3 if translates else 100
    vocabulary = model_of(name).vocab_size
    prompt = [draw.randrange(1, vocabulary) for _ in range(draw.randint(1, longest))]
    limit, kind = draw.randint(1, 45), number % 4
    if kind == 0:
        return Writing(prompt, Greedy(), limit, STOP, number)
    if kind == 1:
        return Writing(prompt, Sample(Temperature(0.9), TopK(12), seed=number % 3), limit, STOP, number)
    if kind == 2:
        covers = 0.2 if translates and name != "mt/convolutional" and number % 8 == 2 else 0.0
        beam = Beam(draw.randint(1, 5), 0.6, covers, shortest=draw.randint(0, 3))
        return Search(prompt, beam, limit, STOP, LENGTHS[number])
    return Writing(prompt, SHARED, limit, STOP, number)


SHARED = Sample(Temperature(1.2), seed=7)
"""Of several requests, which are then drawn together."""


def result(request):
    if isinstance(request, Search):
        return [(one.tokens, one.log_probability, one.rank) for one in request.found]
    return list(zip(request.tokens, request.log_probabilities, strict=True))


@cache
def alone(name, number):
    one, engine = request(name, number), Engine(model_of(name))
    engine.admit([one], source_of(name, [number]))
    while engine.step():
        pass
    return result(one)


def same(found, expected, name):
    """To the bit; where nothing can be compiled, some attention multiplies by the library: up to rounding errors."""
    if library() is not None or name in ("lm/lstm", "lm/convolutional", "lm/ngram-modified-kneser-ney"):
        return found == expected
    near = 60 * rounding(SMALL_NET, 10)
    pairs = zip(found, expected, strict=True)
    return all(a[0] == b[0] and a[1:] == pytest.approx(b[1:], abs=near) for a, b in pairs)


@pytest.mark.parametrize("mix", range(MIXES))
@pytest.mark.parametrize("name", [*(f"lm/{one}" for one in MODELS), *(f"mt/{one}" for one in TRANSLATORS)])
def test_a_request_finds_what_it_finds_alone(name, mix):
    draw = random.Random(f"{name} {mix}")
    model, engine = model_of(name), Engine(model_of(name))
    left = draw.sample(range(POOL), draw.randint(1, 32))
    here, done, cancelled, most = {}, {}, set(), 0
    while left or here:
        if left and (not here or draw.random() < 0.4):
            count = draw.randint(1, min(8, len(left)))
            new, left = left[:count], left[count:]
            requests = [request(name, number) for number in new]
            engine.admit(requests, source_of(name, new))
            here |= dict(zip(new, requests, strict=True))
        if here and draw.random() < 0.1:
            number = draw.choice(sorted(here))
            engine.leave(here.pop(number))
            cancelled.add(number)
        engine.step()
        most = max(most, bounded(engine))
        going = engine.requests
        for number in [number for number, one in here.items() if not any(one is other for other in going)]:
            done[number] = here.pop(number)
    assert not engine.step()
    assert engine.reading is None
    for number, one in done.items():
        assert same(result(one), alone(name, number), name), f"request {number}"
    assert len(done) + len(cancelled) > 0
    assert model.training is False


def bounded(engine):
    """Room is in proportion to what is in use."""
    if engine.reading is None:
        return 0
    state = engine.reading.state
    for pages in state.pages.values():
        pages.peak = max(getattr(pages, "peak", 0), len(pages.used()))
        assert len(pages.pages) <= 2 * pages.peak + len(pages.lengths)
    if state.shared is not None:
        sources = len(next(iter(state.shared.values())))
        assert sources <= len(state.owner)
    return len(state)


@pytest.mark.parametrize("name", ["lm/gpt", "mt/transformer"])
def test_requests_that_leave_before_they_were_read(name):
    engine = Engine(model_of(name))
    requests = [request(name, number) for number in (0, 4, 8)]
    engine.admit(requests, source_of(name, [0, 4, 8]))
    engine.leave(requests[1])
    while engine.step():
        pass
    assert not requests[1].tokens
    for one, number in ((requests[0], 0), (requests[2], 8)):
        assert same(result(one), alone(name, number), name)
    engine.admit([requests[1]], source_of(name, [4]))
    engine.leave(requests[1])
    assert engine.step() == []


def test_generate_and_beam_search_are_clients():
    """The same requests through the engine and through the functions."""
    model, prompts = model_of("lm/gpt"), [[3, 5], [7], [2, 2, 2]]
    texts = [[] for _ in prompts]
    for step in generate(model, prompts, SHARED, [9, 4, 12], requests=[5, 6, 7]):
        for token in step:
            texts[token.row].append(token.id)
    assert [len(text) for text in texts] == [9, 4, 12]
    engine = Engine(model)
    each = [Writing(prompt, SHARED, 9, number=number) for prompt, number in zip(prompts, (5, 6, 7), strict=True)]
    searches = [Search(prompt, Beam(3), 6, STOP) for prompt in prompts]
    engine.admit([*each, *searches])
    while engine.step():
        pass
    assert [one.tokens for one in each] == [texts[0], *[(one.tokens) for one in each[1:]]]
    assert each[1].tokens[:4] == texts[1]
    assert each[2].tokens == texts[2][:9]
    if library() is not None:
        assert [one.found for one in searches] == beam_search(model, prompts, Beam(3), 6, STOP)


def test_a_model_is_read_from_only_when_a_step_is_asked_for():
    model = model_of("lm/gpt")
    engine = Engine(model)
    with torch.no_grad():
        engine.admit([Writing([1], limit=3)])
        assert engine.reading is None
        assert [len(engine.step()) for _ in range(4)] == [1, 1, 1, 0]


class Refusing(Greedy):
    def __call__(self, logits, requests, positions):
        raise RuntimeError("refused")


FAULTS = {
    "a chooser": ("lm/gpt", lambda: Writing([3], Refusing(), 5), None, "refused"),
    "an unseen context": ("counts", lambda: Writing([22, 22], limit=5), None, "never seen this context"),
    "a search that has seen nothing": ("counts", lambda: Search([22, 22], Beam(2), 5), None, "never seen"),
    "a word that is not in the vocabulary": ("mt/transformer", lambda: Writing([0], limit=5), 999, "index"),
    "more tokens than positions": ("short", lambda: Writing([0], limit=30), 3, "does not fit"),
}


@pytest.mark.parametrize("when", [0, 3], ids=["together", "later"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_leaves_and_the_others_go_on(fault, when):
    name, made, word, message = FAULTS[fault]
    model = SPECIAL[name]() if name in SPECIAL else model_of(name)
    good = [Writing([0], limit=12), Search([0], Beam(3), 9)]
    bad = made()

    def source(words):
        tokens = torch.tensor(words)[:, None]
        return None if word is None else {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}

    expected = []
    for prompt in ([0], [0]):
        one, engine = (Writing(prompt, limit=12) if not expected else Search(prompt, Beam(3), 9)), Engine(model)
        engine.admit([one], source([5]))
        while engine.step():
            pass
        expected.append(result(one))
    engine = Engine(model)
    engine.admit(good if when else [*good, bad], source([5, 5] if when else [5, 5, word or 0]))
    failed, steps = [], 0
    while moved := engine.step():
        steps += 1
        failed += [one for one in moved if one.error is not None]
        if steps == when:
            engine.admit([bad], source([word or 0]))
    assert failed == [bad]
    assert message in str(bad.error)
    for one, right in zip(good, expected, strict=True):
        assert same(result(one), right, name)
    assert engine.reading is None


def short_positions():
    return packed(shipped_translators._transformer(position={"kind": "learned", "length": 20}).eval())


def counts():
    """Bigrams, in which the last word of the vocabulary never occurs."""
    model = NGram(NGram.Settings(kind="ngram", order=2, smoothing="counts"), 23)
    model.fit(np.random.default_rng(0).integers(0, 22, 5_000))
    return model


SPECIAL = {"short": short_positions, "counts": counts}


def test_what_cannot_be_admitted_is_refused_at_once():
    engine = Engine(model_of("mt/transformer"))
    engine.admit([])
    assert engine.step() == []
    with pytest.raises(ValueError, match="1 requests, and a source"):
        engine.admit([Writing([0])], shipped_translators.some_sources([2, 3]))
    with pytest.raises(ValueError, match="token 99 of a prompt"):
        engine.admit([Writing([99])])
    with pytest.raises(RunError, match="no attention"):
        Engine(model_of("mt/v1")).admit([Search([0], Beam(2, coverage_penalty=0.1), 5, source_length=3)])
    for kind in (lambda: Writing([0], limit=0), lambda: Search([0], Beam(2), 0)):
        with pytest.raises(ValueError, match="at least one"):
            kind()
    assert engine.step() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("made", [packed, copy.deepcopy], ids=["packed", "plain"])
def test_a_model_that_diverged(made, value):
    model = copy.deepcopy(shipped_models.shipped("gpt"))
    with torch.no_grad():
        model.embedding.weight.fill_(value)
    for one in (Writing([1], limit=3), Search([1], Beam(2), 3)):
        engine = Engine(made(model))
        engine.admit([one])
        assert engine.step() == [one]
        assert "its training diverged" in str(one.error)


def test_samples_share_a_source_also_when_one_of_them_leaves_at_once():
    model, source = model_of("mt/transformer"), shipped_translators.some_sources([5, 9])
    each = [Writing([0], SHARED, 8, number=number) for number in range(6)]  # three of each source
    engine = Engine(model)
    engine.admit(each, source)
    engine.leave(each[1])
    while engine.step():
        pass
    for number in (0, 2, 3, 4, 5):
        one, engine = Writing([0], SHARED, 8, number=number), Engine(model)
        engine.admit([one], shipped_translators.row_of(source, number // 3))
        while engine.step():
            pass
        assert same(result(each[number]), result(one), "mt/transformer")
