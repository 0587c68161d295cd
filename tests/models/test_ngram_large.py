"""N-grams of texts too large for memory: the same tables to the bit; and pruning, against formulas written out."""

import itertools
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerance import rounding

from seqlab.data.storage.scratch import Scratch
from seqlab.errors import DataError
from seqlab.models import ngram_counting
from seqlab.models.ngram import NGram
from seqlab.models.ngram_counting import Text, count_ngrams

SMOOTHINGS = ["counts", "add-k", "stupid-backoff", "kneser-ney", "modified-kneser-ney"]


def zipf_text(tokens=3000, words=40, seed=0):
    """Zipf words; id 0 is drawn too and ends documents, some of them empty."""
    return np.random.default_rng(seed).zipf(1.3, size=tokens) % words


def in_pieces(rows, folder, text, vocab_size, **chosen):
    """A model counted on disk in pieces of so many rows."""
    model = NGram(NGram.Settings(**chosen), vocab_size)
    with Scratch(rows, folder) as scratch:
        model.set_tables(model._counted(Text(text, vocab_size), scratch))
    return model


def same_tables(one, other):
    return all(torch.equal(table, other.state_dict()[name]) for name, table in one.state_dict().items())


# ---------------------------------------------------------------------- on disk


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("prune", [(), (0, 1, 2)])
def test_on_disk_equals_in_memory_to_the_bit(tmp_path, smoothing, prune):
    if prune and smoothing == "counts":
        return  # refused
    text = zipf_text(1500)
    chosen = {"order": 4, "smoothing": smoothing, "prune": prune}
    whole = NGram(NGram.Settings(**chosen), 40)
    whole.fit(text)
    for rows in (60, 1000):
        assert same_tables(in_pieces(rows, tmp_path / "scratch", text, 40, **chosen), whole)
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 9),
    st.sampled_from(SMOOTHINGS[1:]),
    st.sampled_from([(), (0, 1), (0, 0, 1), (0, 2)]),
)
@settings(max_examples=80, deadline=None)
def test_any_text_in_any_pieces(tokens, order, rows, smoothing, prune):
    text, chosen = np.array(tokens), {"order": order, "smoothing": smoothing, "prune": prune}
    whole = NGram(NGram.Settings(**chosen), 5)
    whole.fit(text)
    model = NGram(whole.settings, 5)
    model.set_tables(model._counted(Text(text, 5), Scratch(rows)))
    assert same_tables(model, whole)


@pytest.mark.parametrize("tokens", [[0], [0, 0, 0, 0], [0] * 500])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_a_vocabulary_of_one(tmp_path, tokens, order):
    text = np.array(tokens)
    model = in_pieces(3, tmp_path / "scratch", text, 1, order=order)
    assert (
        model.losses(model(torch.zeros(1, 4, dtype=torch.long)).states, torch.zeros(1, 4, dtype=torch.long)) == 0
    ).all()
    assert model.sizes()[0].ngrams == 1


def test_one_word_that_is_most_of_the_text(tmp_path):
    """No piece can hold its context, and one context cannot be cut."""
    text = np.array([*[1] * 500, 2, 1, 1, 3, *[1] * 300, 0])
    whole = NGram(NGram.Settings(order=3), 4)
    whole.fit(text)
    assert same_tables(in_pieces(20, tmp_path / "scratch", text, 4, order=3), whole)


def test_a_large_vocabulary_and_a_high_order(tmp_path):
    """A million words at order 7 make 10⁴² n-grams; the keys are still exact."""
    size = 1_000_000
    text = np.random.default_rng(0).integers(size - 50, size, size=400)
    model = in_pieces(300_000, tmp_path / "scratch", text, size, order=7)
    row = torch.as_tensor(text)
    assert model.sizes(text)[6].hits == 1
    assert (
        model.sizes()[6].ngrams == len({tuple(gram) for gram in np.lib.stride_tricks.sliding_window_view(text, 7)}) + 1
    )
    assert torch.isfinite(model.losses(model(row[None, :-1]).states[0], row[1:])).all()


def test_keys_that_would_not_fit(monkeypatch):
    monkeypatch.setattr(ngram_counting, "LARGEST", 1000)
    with pytest.raises(DataError, match="exceed 64-bit keys"):
        NGram(NGram.Settings(), 40).fit(zipf_text())


@pytest.mark.parametrize("where", ["given", "system"])
def test_fit_goes_to_the_disk_by_itself(tmp_path, monkeypatch, where):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows, folder = [], tmp_path / "run" / "counts" if where == "given" else None
    enter = Scratch.__enter__
    monkeypatch.setattr(Scratch, "__enter__", lambda self: (rows.append((self.rows, self.folder)), enter(self))[1])
    text = zipf_text(8000)
    model = NGram(NGram.Settings(order=3, memory="0.4MB"), 40)
    model.fit(text, folder)
    whole = NGram(NGram.Settings(order=3), 40)
    whole.fit(text)
    assert same_tables(model, whole)
    ((many, used),) = rows
    assert many < 8000
    assert tmp_path in used.parents
    assert not used.exists()


def test_tables_that_do_not_fit(tmp_path):
    model = NGram(NGram.Settings(order=5, memory="90kB"), 40)
    with pytest.raises(DataError, match=r"tables up to order 4 .* 'model.memory' 90,000; prune"):
        model.fit(zipf_text(6000), tmp_path / "counts")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(tmp_path, monkeypatch):
    def full(self, values):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqlab.data.storage.scratch.ScratchColumn.append", full)
    with pytest.raises(DataError, match=r"counts: cannot count on disk \(No space left on device\)"):
        NGram(NGram.Settings(memory="1MB"), 40).fit(zipf_text(9000), tmp_path / "counts")
    assert list(tmp_path.iterdir()) == []


def test_a_mapped_text_does_not_stay_in_memory(tmp_path):
    text = zipf_text(2_000_000).astype(np.uint32)
    text.tofile(tmp_path / "ids")
    mapped = np.memmap(tmp_path / "ids", np.uint32, mode="r")
    read = Text(mapped, 40)
    for start in range(1, 2_000_001, 500_000):
        assert (read.read(start, start + 500_000) == text[start - 1 : start + 499_999]).all()
    if Path("/proc/self/smaps").exists():
        _, _, after = Path("/proc/self/smaps").read_text().partition(str(tmp_path / "ids"))
        resident = next(line for line in after.splitlines() if line.startswith("Rss:"))
        assert int(resident.split()[1]) < 4000  # kB; all of it is 8000


# ---------------------------------------------------------------------- pruning


class Pruned:
    """Kneser-Ney with what lmplz prunes: all n-grams count for company and discounts; what is pruned gives all it has.

    Written with dictionaries from the raw n-grams, for contexts that are tuples without <end> but at their beginning.
    """

    def __init__(self, documents, order, vocab_size, thresholds):
        self.order, self.vocab_size, self.thresholds = order, vocab_size, thresholds
        self.raw = defaultdict(Counter)
        company = defaultdict(set)
        for document in documents:
            text = (0, *document, 0)
            for start, stop in itertools.combinations(range(len(text) + 1), 2):
                gram = text[start:stop]
                if len(gram) <= order and (gram != (0,) or start > 0):
                    self.raw[len(gram)][gram] += 1
                    if start > 0:
                        company[gram].add(text[start - 1])
        self.count = {
            n: {g: c if n == order or (n > 1 and g[0] == 0) else len(company[g]) for g, c in grams.items()}
            for n, grams in self.raw.items()
        }
        self.discount = {n: self.discounts(Counter(self.count[n].values())) for n in self.count}

    @staticmethod
    def discounts(n):
        y = n[1] / (n[1] + 2 * n[2])
        return [0, 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]

    def kept(self, gram):
        return len(gram) == 1 or self.raw[len(gram)][gram] > self.thresholds[len(gram) - 1]

    def probability(self, context, word):
        lower = self.probability(context[1:], word) if context else 1 / self.vocab_size
        n = len(context) + 1
        children = {g: a for g, a in self.count.get(n, {}).items() if g[:-1] == context}
        if not children or not (len(context) == 0 or self.kept(context)):
            return lower
        total = sum(children.values())
        given = sum(self.discount[n][min(a, 3)] if self.kept(g) else a for g, a in children.items())
        own = (*context, word)
        a = children.get(own, 0) if own in children and self.kept(own) else 0
        return (a - self.discount[n][min(a, 3)]) / total + given / total * lower


@pytest.mark.parametrize("prune", [(0, 0, 1), (0, 1), (0, 1, 2, 5)])
def test_pruned_kneser_ney_as_written_out(prune):
    generator = np.random.default_rng(2)
    documents = [generator.zipf(1.3, size=n).clip(max=59).tolist() for n in generator.integers(0, 9, size=300)]
    model = NGram(NGram.Settings(order=4, prune=prune), 61)
    model.fit(np.array([token for document in documents for token in [*document, 0]]))
    written = Pruned(documents, 4, 61, model.settings.thresholds)
    assert min(min(found[1:]) for found in written.discount.values()) > 0
    for size in model.sizes():
        grams = written.raw[size.order]
        assert size.in_text == len(grams)
        assert size.ngrams == sum(map(written.kept, grams)) <= len(grams)
    for context in [(), (1,), (2, 1), (1, 1, 1), (3, 59), (7, 8, 9), (0,), (0, 1), (0, 2, 1)]:
        state = model(torch.tensor([context], dtype=torch.long)).state if context else model.start()
        p = model.logits(state.rows["contexts"])[0].double().exp()
        assert p.sum().item() == pytest.approx(1, abs=rounding(61))
        assert p.tolist() == pytest.approx([written.probability(context, word) for word in range(61)], abs=rounding(8))


@pytest.mark.parametrize("smoothing", ["add-k", "kneser-ney", "modified-kneser-ney"])
def test_pruned_models_sum_to_one(smoothing):
    model = NGram(NGram.Settings(order=3, smoothing=smoothing, prune=[0, 1, 3]), 41)
    text = zipf_text()
    model.fit(text)
    p = model.logits(model(torch.as_tensor(text[None, :200])).states).double().exp()
    assert torch.allclose(p.sum(-1), torch.ones(1, dtype=torch.double), atol=rounding(41))
    assert (p > 0).all()


def test_thresholds():
    assert NGram.Settings(order=4).thresholds == [0, 0, 0, 0]
    assert NGram.Settings(order=4, prune=[0, 1]).thresholds == [0, 1, 1, 1]
    assert NGram.Settings(order=2, prune=[0, 0, 1]).thresholds == [0, 0]


@pytest.mark.parametrize("wrong", [{"prune": [1]}, {"prune": [0, 2, 1]}, {"prune": [0, 1], "smoothing": "counts"}])
def test_pruning_that_makes_no_sense(wrong):
    with pytest.raises(ValueError, match="prune"):
        NGram.Settings(**wrong)


@pytest.mark.parametrize(
    ("written", "meant"), [("2GB", 2 * 10**9), ("1.5 MB", 1_500_000), (4096, 4096), ("1GiB", 2**30)]
)
def test_memory_is_a_size(written, meant):
    assert NGram.Settings(memory=written).memory == meant


def test_what_is_loaded_is_not_copied():
    """The tables of a checkpoint are mapped: a copy would bring all of them into memory."""
    model = NGram(NGram.Settings(order=3), 40)
    model.fit(zipf_text())
    saved = {name: table.clone() for name, table in model.state_dict().items()}
    other = NGram(model.settings, 40)
    other.load_state_dict(saved)
    assert other.table("keys", 3).data_ptr() == saved["keys_3"].data_ptr()
    assert same_tables(other, model)


def test_levels_are_counted_as_they_are_asked_for():
    """So that tables which will not fit are found out before the higher orders are counted."""
    levels = count_ngrams(Text(zipf_text(), 40), [0] * 5, Scratch(sys.maxsize))
    assert [len(level) for level in itertools.islice(levels, 3)][:2] == [1, 40]
    assert math.isfinite(len(next(levels)))
