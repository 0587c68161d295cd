"""The n-gram model: its numbers against formulas written out, and the contract of a language model."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerance import rounding

from seqlab.errors import DataError
from seqlab.models.ngram import NGram

SMOOTHINGS = ["counts", "add-k", "stupid-backoff", "kneser-ney", "modified-kneser-ney"]
DOCUMENTS = [[1, 2, 3, 1, 2], [2, 3, 1, 2, 2, 4], [], [1, 2, 3], [4, 1, 2, 3, 5], [1, 2, 5, 5, 5], [3]]
VOCAB = 8  # 6 and 7 are in no document

corpora = st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=12)


def joined(documents):
    return np.array([token for document in documents for token in [*document, 0]])


def fitted(smoothing, order=3, documents=DOCUMENTS, vocab_size=VOCAB, **more):
    model = NGram(NGram.Settings(order=order, smoothing=smoothing, **more), vocab_size)
    model.fit(joined(documents))
    return model


def distribution(model, context):
    """p(· | context): the tokens are read one after another after nothing."""
    tokens = torch.tensor([context], dtype=torch.long)
    output = model(tokens)
    return model.logits(output.state.rows["contexts"])[0].double().exp().numpy()


def contexts(order):
    """Some that were seen and some that were not, at the beginning of a document and within."""
    within = [c for n in range(order + 1) for c in itertools.product([1, 2, 5, 6], repeat=n)]
    return within + [(0, *c) for c in within] + [(3, 0, *c) for c in within]


class Written:
    """Kneser-Ney with dictionaries and recursion, as in the paper."""

    def __init__(self, documents, order, vocab_size, modified):
        self.vocab_size, self.order = vocab_size, order
        raw, company = defaultdict(Counter), defaultdict(lambda: defaultdict(set))
        for document in documents:
            text = [0, *document, 0]
            for end in range(1, len(text)):
                for n in range(1, min(order, end + 1) + 1):
                    gram = tuple(text[end - n + 1 : end + 1])
                    raw[n][gram] += 1
                    if end - n >= 0:
                        company[n][gram].add(text[end - n])
        self.count, self.discount = {}, {}
        for n in range(1, order + 1):
            self.count[n] = {
                gram: count if n == order or (n > 1 and gram[0] == 0) else len(company[n][gram])
                for gram, count in raw[n].items()
            }
            self.discount[n] = self.discounts(Counter(self.count[n].values()), modified)

    @staticmethod
    def discounts(n, modified):
        if not modified:
            return [n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5] * 3
        if not (n[1] and n[2] and n[3] and n[4]):
            return [0.5, 1, 1.5]
        y = n[1] / (n[1] + 2 * n[2])
        found = [1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]
        return found if min(found) > 0 else [0.5, 1, 1.5]

    def probability(self, context, word):
        if 0 in context:
            context = context[len(context) - 1 - context[::-1].index(0) :]
        context = context[len(context) - self.order + 1 :] if len(context) >= self.order else context
        return self.interpolated(tuple(context), word)

    def interpolated(self, context, word):
        lower = self.interpolated(context[1:], word) if context else 1 / self.vocab_size
        n = len(context) + 1
        following = {gram[-1]: count for gram, count in self.count[n].items() if gram[:-1] == context}
        if not following:
            return lower
        total = sum(following.values())
        discount = {word: self.discount[n][min(count, 3) - 1] for word, count in following.items()}
        own = following[word] - discount[word] if word in following else 0
        return own / total + sum(discount.values()) / total * lower


# ---------------------------------------------------------------------- numbers


def test_textbook_counts():
    """'students opened their' 1000 times, then 'books' 400 times and 'exams' 100 times: 0.4 and 0.1."""
    students, opened, their, books, exams, minds = range(1, 7)
    documents = [[students, opened, their, word] for word in [books] * 400 + [exams] * 100 + [minds] * 500]
    p = distribution(fitted("counts", order=4, documents=documents), [students, opened, their])
    assert p[[books, exams]] == pytest.approx([0.4, 0.1], abs=rounding(8))


def test_ngrams_of_a_phrase():
    """'the students opened their' has 4, 3, 2 and 1 n-grams of order 1 to 4, beside those at its two ends."""
    sizes = fitted("counts", order=4, documents=[[1, 2, 3, 4]]).sizes()
    ends = [1, 2, 2, 2]  # </s>; <s> the, their </s>; ...
    assert [size.ngrams for size in sizes] == [n + more for n, more in zip([4, 3, 2, 1], ends, strict=True)]


def test_counts_are_undefined_after_an_unseen_context():
    model = fitted("counts")
    assert distribution(model, [5, 1]).sum() == 0
    assert distribution(model, [6]).sum() == 0


def test_add_k_by_hand():
    model = fitted("add-k", order=2, documents=[[1, 2], [1, 3], [1, 2]], vocab_size=5, k=0.5)
    assert distribution(model, [1]) == pytest.approx(np.array([0.5, 0.5, 2.5, 1.5, 0.5]) / 5.5, abs=rounding(8))
    assert distribution(model, [4]) == pytest.approx([0.2] * 5, abs=rounding(8))
    assert distribution(model, []) == pytest.approx(np.array([3.5, 3.5, 2.5, 1.5, 0.5]) / 11.5, abs=rounding(8))


def test_stupid_backoff_by_hand():
    model = fitted("stupid-backoff", documents=[[1, 2], [1, 3], [1, 2]], vocab_size=5)
    word = np.array([3, 3, 2, 1, 0]) / 9
    assert distribution(model, [0, 1])[2] == pytest.approx(2 / 3, abs=rounding(8))
    assert distribution(model, [1]) == pytest.approx([0.4 * word[0], 0.4 * word[1], 2 / 3, 1 / 3, 0], abs=rounding(8))
    # an unseen context costs a step too
    assert distribution(model, [2, 1])[2] == pytest.approx(0.4 * 2 / 3, abs=rounding(8))
    assert distribution(model, [4, 4]) == pytest.approx(0.16 * word, abs=rounding(8))


@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kneser_ney_as_written_out(order, modified):
    generator = np.random.default_rng(1)
    documents = [generator.zipf(1.3, size=n).clip(max=49).tolist() for n in generator.integers(0, 9, size=200)]
    model = fitted("modified-kneser-ney" if modified else "kneser-ney", order, documents, vocab_size=51)
    written = Written(documents, order, 51, modified)
    assert [0.5, 1, 1.5] not in written.discount.values()  # all orders have discounts of their own
    for context in contexts(2):
        words = [*range(8), 20, 50]  # the last is in no document
        expected = [written.probability(list(context), word) for word in words]
        assert distribution(model, context)[words] == pytest.approx(expected, abs=rounding(8)), context


@given(corpora, st.integers(1, 5), st.booleans(), st.lists(st.integers(0, 6), max_size=6))
@settings(max_examples=60, deadline=None)
def test_kneser_ney_as_written_out_on_tiny_data(documents, order, modified, context):
    model = fitted("modified-kneser-ney" if modified else "kneser-ney", order, documents)
    written = Written(documents, order, VOCAB, modified)
    expected = [written.probability(context, word) for word in range(VOCAB)]
    assert distribution(model, context) == pytest.approx(expected, abs=rounding(8))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_sums_to_one(smoothing, order):
    model = fitted(smoothing, order)
    for context in contexts(3):
        p = distribution(model, context)
        if smoothing == "counts":
            assert p.sum() == pytest.approx(1, abs=rounding(100)) or not p.any()
        elif smoothing != "stupid-backoff":
            assert p.sum() == pytest.approx(1, abs=rounding(100))
            assert (p > 0).all()


def test_a_cut_document_has_no_end():
    model = NGram(NGram.Settings(order=2, smoothing="counts"), 4)
    model.fit(np.array([1, 2, 0, 1, 3], dtype=np.uint16))
    assert distribution(model, [1]) == pytest.approx([0, 0, 0.5, 0.5], abs=rounding(8))
    assert not distribution(model, [3]).any()


def test_uniform_before_it_is_fitted():
    assert distribution(NGram(NGram.Settings(), 4), [0, 1, 2]) == pytest.approx([0.25] * 4)


# ---------------------------------------------------------------------- the contract of a language model


@pytest.fixture(params=itertools.product(SMOOTHINGS, [1, 2, 4]), ids=lambda p: f"{p[0]}-{p[1]}")
def model(request):
    return fitted(*request.param)


TOKENS = torch.tensor([[0, 1, 2, 3, 1, 2, 0, 2, 6, 1], [0, 0, 4, 1, 2, 3, 5, 5, 5, 5], [3, 1, 2, 2, 4, 0, 1, 7, 2, 3]])


def test_losses_are_those_of_the_logits(model):
    states = model(TOKENS[:, :-1]).states
    logits = model.logits(states)
    assert logits.shape == (3, 9, VOCAB)
    assert logits.dtype == torch.float32
    expected = -logits.gather(-1, TOKENS[:, 1:, None])[..., 0]
    assert torch.equal(model.losses(states, TOKENS[:, 1:]), expected)
    flat = model.losses(states.flatten(0, 1), TOKENS[:, 1:].flatten())
    assert torch.equal(flat, expected.flatten())


def test_one_position_at_a_time(model):
    whole = model(TOKENS)
    state = model.start(rows=3)
    for position, tokens in enumerate(TOKENS.unbind(1)):
        logits, state = model.step(tokens, state)
        assert torch.equal(logits, model.logits(whole.states[:, position]))
    assert torch.equal(state.rows["contexts"], whole.state.rows["contexts"])
    assert state.lengths.tolist() == whole.state.lengths.tolist() == [10, 10, 10]


@pytest.mark.parametrize("cut", [0, 1, 4, 10])
def test_state_carried_equals_one_run(model, cut):
    first = model(TOKENS[:, :cut])
    second = model(TOKENS[:, cut:], first.state)
    assert torch.equal(torch.cat([first.states, second.states], dim=1), model(TOKENS).states)


def test_padding_is_ignored(model):
    lengths = [10, 4, 0]
    mask = torch.arange(10) < torch.tensor(lengths)[:, None]
    padded = model(TOKENS.where(mask, 7), model(TOKENS[:, :3]).state, mask).state
    assert padded.lengths.tolist() == [3 + length for length in lengths]
    for row, length in enumerate(lengths):
        alone = torch.cat([TOKENS[row, :3], TOKENS[row, :length]])[None]
        assert torch.equal(padded.rows["contexts"][row], model(alone).state.rows["contexts"][0])


def test_states_can_be_selected_and_joined(model):
    state = model(TOKENS).state
    both = state.select(torch.tensor([2, 0, 0])).join(model(TOKENS[1:2]).state)
    logits, _ = model.step(torch.tensor([1, 2, 3, 4]), both)
    for row, (source, token) in enumerate([(2, 1), (0, 2), (0, 3), (1, 4)]):
        alone = model(torch.cat([TOKENS[source], torch.tensor([token])])[None]).states[0, -1]
        assert torch.equal(logits[row], model.logits(alone))


def test_a_state_is_used_once(model):
    state = model.start()
    model(TOKENS[:1], state)
    with pytest.raises(RuntimeError, match="already been used"):
        model(TOKENS[:1], state)


def test_tables_are_saved_and_loaded(model):
    assert not list(model.parameters())
    other = NGram(model.settings, VOCAB)
    other.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert torch.equal(other.logits(other(TOKENS).states), model.logits(model(TOKENS).states))
    with pytest.raises(RuntimeError, match="size mismatch"):
        NGram(model.settings, VOCAB + 1).load_state_dict(model.state_dict())


# ---------------------------------------------------------------------- sizes and errors


def test_sizes():
    model = fitted("kneser-ney", order=2, documents=[[1, 2], [1, 2, 2]], vocab_size=5)
    words, pairs = model.sizes(np.array([1, 2, 3, 0, 2, 0]))
    assert (words.ngrams, words.possible, words.in_text, words.once) == (3, 5, 3, 0)  # 0 1 2
    assert (pairs.ngrams, pairs.possible, pairs.in_text, pairs.once) == (4, 25, 4, 1)  # 01 12 20; 22 once
    assert (words.hits, pairs.hits) == (5 / 6, 3 / 6)  # not 3; not 23 30 02
    assert words.bytes + pairs.bytes == sum(b.nbytes for n, b in model.named_buffers() if n not in ("seen", "census"))
    assert fitted("counts", order=4).sizes(np.array([1]))[3].hits is None
    assert NGram(NGram.Settings(), VOCAB).sizes()[0].in_text is None


def test_hits_of_a_text_in_pieces(monkeypatch):
    text = joined(DOCUMENTS)[::-1]
    model = fitted("counts", order=4, documents=DOCUMENTS[:4])
    whole = model.sizes(text)
    monkeypatch.setattr("seqlab.models.ngram.READ", 3)
    assert model.sizes(text) == whole


@pytest.mark.parametrize("tokens", [[], [1, 8, 0], [-1], [[1, 0]]])
def test_unusable_tokens(tokens):
    model = NGram(NGram.Settings(), VOCAB)
    with pytest.raises(DataError):
        model.fit(np.array(tokens, dtype=np.int64))


@given(
    corpora,
    st.sampled_from(SMOOTHINGS),
    st.integers(1, 5),
    st.lists(st.integers(0, 7), min_size=1, max_size=9),
)
@settings(max_examples=60, deadline=None)
def test_any_tiny_corpus(documents, smoothing, order, text):
    model = fitted(smoothing, order, documents)
    tokens = torch.tensor([text])
    states = model(tokens).states
    logits = model.logits(states)
    assert not logits.isnan().any()
    assert torch.equal(model.losses(states, tokens), -logits.gather(-1, tokens[..., None])[..., 0])
    if smoothing not in ("counts", "stupid-backoff"):
        assert torch.allclose(logits.double().exp().sum(-1), torch.ones(1, dtype=torch.double), atol=rounding(100))
