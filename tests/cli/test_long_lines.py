"""A very long line is read at the speed of training, and says how far it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tolerance import SMALL_NET, rounding

import seqlab as api
from seqlab.data.progress import shown_by
from seqlab.decoding import suggest as suggesting
from seqlab.nn.cells.lstm import LSTM

LINE = "the old man walked to the river. " * 200


def test_a_recurrent_net_scores_without_a_call_for_every_token(runs, monkeypatch):
    """One call of the cell a token, from Python, made a line of 2 MB take minutes."""
    run, calls, step = api.load(runs["lstm"]), [], LSTM.step

    def counted(self, *given):
        calls.append(1)
        return step(self, *given)

    monkeypatch.setattr(LSTM, "step", counted)
    [found] = run.score([LINE])
    assert found.tokens == len(LINE) + 1
    assert len(calls) < found.tokens / 20


@pytest.mark.parametrize("kind", ["ngram", "lstm", "gpt"])
def test_scores_are_those_of_the_form_that_decodes(kind, runs):
    from seqlab.decoding.scoring import score

    run = api.load(runs[kind])
    [ids] = run.tokenizer.encode_batch([LINE])
    ids = [*ids, run.tokenizer.end_id]
    [expected] = score(run.decoder, [ids], run.tokenizer.end_id, getattr(run.recipe.task, "window", None))
    [found] = run.score([LINE])
    assert found.tokens == expected.tokens
    assert found.log_probability == pytest.approx(expected.log_probability, rel=rounding(SMALL_NET))


@pytest.mark.parametrize("kind", ["ngram", "lstm", "gpt"])
def test_scoring_says_how_far_it_is(kind, runs):
    seen: list[int] = []
    told = []
    display = SimpleNamespace(begin=lambda what, total: told.append((what, total)), advance=seen.append, end=told.clear)
    texts = [LINE, "a bird found the café!"]
    with shown_by(display):
        api.load(runs[kind]).score(texts)
    size = sum(len(text.encode()) for text in texts)
    assert seen == sorted(seen)
    assert len(seen) > 2
    assert seen[-1] == size
    assert told == []


def test_suggesting_after_a_long_line_decodes_only_its_end(runs, monkeypatch):
    run, longest = api.load(runs["lstm"]), [0]
    decode, expected = run.tokenizer.decode, run.suggest("the old man walked to", 3)
    assert expected

    def watched(ids):
        longest[0] = max(longest[0], len(ids))
        return decode(ids)

    monkeypatch.setattr(run.tokenizer, "decode", watched)
    found = run.suggest(f"{LINE}the old man walked to", 3)
    assert len(found) == 3
    assert longest[0] <= suggesting.NEAR + suggesting.LONGEST
