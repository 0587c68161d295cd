"""SentencePiece: its files made and read, against the library itself."""

from __future__ import annotations

import io

import pytest
import sentencepiece

from seqlab.errors import DataError
from seqlab.tokenizers import load_tokenizer
from seqlab.tokenizers.sentencepiece import SentencePieceTokenizer

CORPUS = [
    "the cat sat on the mat and the dog sat on the cat",
    "the unhappiest of cats was happier than the happiest dog",
    "日本語のテキスト and naïve words, re-read 1,234 times!",
] * 20


def learn(texts=CORPUS, **options):
    return SentencePieceTokenizer.fit(texts, SentencePieceTokenizer.Settings(**options))


def somebodys_model(**options):
    """As people train them: `<unk>` 0, `<s>` 1, `</s>` 2, NFKC, a blank before the first word."""
    made = io.BytesIO()
    common = {"vocab_size": 120, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=made, **{**common, **options})
    return made.getvalue()


MODELS = {
    "plain": {},
    "bpe": {"model_type": "bpe"},
    "bytes": {"byte_fallback": True, "vocab_size": 400, "normalization_rule_name": "identity"},
    "symbols": {"pad_id": 3, "user_defined_symbols": ["<mask>", "▁▁"]},
    "no-end": {"eos_id": -1, "bos_id": -1},
}


@pytest.mark.parametrize("name", MODELS)
def test_somebodys_model_keeps_its_ids(name, multilingual, tmp_path):
    path = tmp_path / "mine.model"
    path.write_bytes(somebodys_model(**MODELS[name]))
    peer = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = SentencePieceTokenizer.fit([], SentencePieceTokenizer.Settings(model=str(path)))
    lines = [*CORPUS[:3], *multilingual[::5]]
    assert ours.encode_batch(lines) == peer.encode(lines)
    for line in lines:
        ids = peer.encode(line)
        assert ours.encode(line).ids == ids
        if peer.unk_id() not in ids:
            assert ours.decode(ids) == peer.decode(ids)
    assert ours.end_id == (peer.eos_id() if name != "no-end" else peer.get_piece_size())
    assert ours.token(ours.end_id) == ("</s>" if name != "no-end" else "<end>")
    assert ours.decode([ours.end_id]) == ""
    ours.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "sentencepiece.model").read_bytes() == path.read_bytes()
    for place in (path, tmp_path / "saved"):
        assert load_tokenizer(place).fingerprint == ours.fingerprint


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_our_model_is_the_librarys(algorithm, multilingual, tmp_path):
    """The library reads the file that was saved, and gives the same ids; all comes back, blanks and lines too."""
    learned = learn(vocab_size=500, algorithm=algorithm)
    learned.save(tmp_path)
    peer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.model"))
    texts = [*CORPUS[:3], *multilingual, " a  b \n\n c\t\r\n "]
    assert learned.encode_batch(texts) == peer.encode(texts)
    assert [learned.decode(ids) for ids in learned.encode_batch(texts)] == texts
    assert (peer.eos_id(), peer.unk_id(), learned.end_id) == (0, 1, 0)
    assert "▁the" in [peer.id_to_piece(index) for index in range(peer.get_piece_size())]


def test_the_sign_of_the_space_is_spelt():
    learned = learn(vocab_size=400)
    encoding = learned.encode("a▁b")
    assert [learned.token(index) for index in encoding.ids[1:4]] == ["<0xE2>", "<0x96>", "<0x81>"]
    assert encoding.offsets == [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert learned.decode(encoding.ids) == "a▁b"
    assert learned.encode_batch(["a▁b"]) == [encoding.ids]


def test_spans_of_bytes_are_those_of_their_character():
    encoding = learn(["ab"], vocab_size=300).encode("aé日😀b")
    assert encoding.offsets == [(0, 1), *[(1, 2)] * 2, *[(2, 3)] * 3, *[(3, 4)] * 4, (4, 5)]


def test_normalization():
    learned = learn(vocab_size=400, normalization="nmt_nfkc")
    encoding = learned.encode("  ﬁne   ½ ")
    assert learned.decode(encoding.ids) == "fine 1⁄2"
    assert encoding.offsets[-1][1] >= 9
    assert learned.processor.normalize("a") == "▁a"


def test_texts_that_the_library_would_skip_are_learnt_from():
    """Its own signs, tabs, and lines of any length."""
    for texts in ([" zebra ▅ zebra"], ["zebra\t zebra"], [" zebra\0 zebra"], [" zebra▁ zebra"], [" zebra" * 10_000]):
        assert b" zebra" in learn(texts, vocab_size=300, algorithm="bpe").pieces


def test_rare_characters_make_room():
    """No vocabulary is too small for the characters of a text."""
    learned = learn(["".join(map(chr, range(0x4E00, 0x4F00))) + "aaaa"], vocab_size=262, algorithm="bpe")
    assert learned.vocab_size <= 262
    assert b"a" in learned.pieces
    with pytest.raises(DataError, match="is too small, with"):
        learn(vocab_size=258)


def test_bad_models(tmp_path):
    path = tmp_path / "bad.model"
    for content in (b"", b"nonsense", somebodys_model()[:100]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.model: not a SentencePiece model"):
            learn(model=str(path))
    path.write_bytes(somebodys_model(treat_whitespace_as_suffix=True))
    with pytest.raises(DataError, match="after the words"):
        learn(model=str(path))
    with pytest.raises(DataError, match="no published vocabulary"):
        learn(model=str(tmp_path / "none.model"))
