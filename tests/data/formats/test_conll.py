"""Words in columns."""

import gzip

import pytest

from seqlab.data.reading.readers import fingerprint, read
from seqlab.errors import DataError, SeqlabError
from seqlab.recipe import DataSettings, Recipe

NEWS = (
    "-DOCSTART- -X- -X- O\n\n"
    "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n"
    "Peter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n"
)

TREEBANK = (
    "# sent_id = 1\n# text = Don't!\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\tVB\t_\t0\troot\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_\n"
    "2.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_\n"
    "3\t10 000\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_\n"
    "\n# sent_id = 2\n"
    "1\t#\t#\tSYM\t#\t_\t0\troot\t_\t_\n"
)


def records(path, roles=("text", "tags"), **settings):
    return list(read(DataSettings(train="unused", valid=str(path), **settings), "valid", roles))


def fields(path, roles=("text", "tags"), **settings):
    return [tuple(record.fields.values()) for record in records(path, roles, **settings)]


def put(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    return path


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.CONLL"])
def test_the_first_column_is_the_word_and_the_last_the_tag(tmp_path, name):
    path = put(tmp_path, name, NEWS)
    assert fields(path) == [("EU rejects", "B-ORG O"), ("Peter Blackburn", "B-PER I-PER")]
    assert [record.place for record in records(path)] == [f"{path}, line 3", f"{path}, line 7"]


def test_columns_are_chosen_by_number(tmp_path):
    path = put(tmp_path, "a.txt", NEWS)
    assert fields(path, format="conll", columns={"tags": 1})[0] == ("EU rejects", "NNP VBZ")
    assert fields(path, format="conll", columns={"text": -1, "tags": "2"})[0] == ("B-ORG O", "B-NP B-VP")
    assert fields(path, ("text",), format="conll") == [("EU rejects",), ("Peter Blackburn",)]


def test_tabs_ends_of_lines_and_packed_files(tmp_path):
    want = [("New York", "B-LOC I-LOC"), ("in", "O")]
    tabs = "New\tB-LOC\r\nYork\tI-LOC\r\n\r\nin\tO"
    assert fields(put(tmp_path, "a.conll", tabs)) == want
    (tmp_path / "a.bio.gz").write_bytes(gzip.compress(tabs.replace("\t", "  ").encode()))
    assert fields(tmp_path / "a.bio.gz") == want
    # blanks between tabs belong to a word; other blanks than that which separates do too
    assert fields(put(tmp_path, "b.conll", "10 000\tNUM\n")) == [("10␣000", "NUM")]
    assert fields(put(tmp_path, "c.conll", "10\u00a0000 NUM\n")) == [("10␣000", "NUM")]


def test_treebanks_have_lines_that_are_no_words(tmp_path):
    path = put(tmp_path, "a.conllu", TREEBANK)
    assert fields(path) == [("Do n't 10␣000", "AUX PART PUNCT"), ("#", "SYM")]
    assert fields(path, columns={"tags": 4})[0] == ("Do n't 10␣000", "VB RB .")


def test_elsewhere_a_hash_is_a_word(tmp_path):
    """As in the chunking data of CoNLL-2000, where it is the sign of a pound."""
    assert fields(put(tmp_path, "a.conll", "# B-NP\n280 I-NP\n")) == [("# 280", "B-NP I-NP")]


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("EU B-ORG\nrejects\n", {}, "line 2, column 1: 1 columns, but line 1 has 2"),
        ("a O\n\nb X O\n", {}, "line 3, column 3: 3 columns, but line 1 has 2"),
        ("EU O\n", {"columns": {"tags": 3}}, "line 1, column 3: no column 3 for 'tags': the line has 2"),
        ("EU O\n", {"columns": {"text": -3}}, "line 1, column -3: no column -3 for 'text'"),
        ("EU\tO\n\tO\n", {}, "line 2, column 0: 'text' is empty"),
        ("EU\tO\nis\t\n", {}, "line 2, column 1: 'tags' is empty"),
        (
            "EU O\n",
            {"columns": {"tags": "ner"}},
            "data.columns.tags is 'ner', but columns have no names in this format",
        ),
        ("\n\n", {}, "no records"),
    ],
)
def test_faults_name_their_place(tmp_path, text, settings, message):
    path = put(tmp_path, "a.conll", text)
    with pytest.raises(DataError) as error:
        fields(path, **settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_role_that_has_no_column(tmp_path):
    path = put(tmp_path, "a.conll", NEWS)
    with pytest.raises(DataError, match=r"set data.columns.label to a number"):
        fields(path, ("text", "label"))


def test_a_part_is_held_out(tmp_path):
    path = put(tmp_path, "a.conll", "".join(f"w{n} O\n\n" for n in range(100)))
    data = DataSettings(train=str(path))
    parts = [{record.fields["text"] for record in read(data, which)} for which in ("train", "valid")]
    assert len(parts[0] | parts[1]) == 100
    assert parts[1]
    assert not parts[0] & parts[1]


def test_columns_are_part_of_the_fingerprint(tmp_path):
    path = str(put(tmp_path, "a.conll", NEWS))
    settings = [{}, {"columns": {"tags": 1}}, {"columns": {"tags": 2}}]
    assert len({fingerprint(DataSettings(train=path, valid=path, **one), "valid") for one in settings}) == 3


def test_numbers_of_columns_in_recipes():
    recipe = Recipe.load("tagging/lstm", ["data.columns.tags=-1", "data.columns.text=word"])
    assert recipe.data.columns == {"tags": -1, "text": "word"}
    with pytest.raises(SeqlabError, match=r"'data\.columns\.tags' is \[1\]|data.columns.tags"):
        Recipe.load("tagging/lstm", ["data.columns.tags=[1]"])


def test_the_built_in_dates_are_sentences():
    train, valid = ([*read(DataSettings(train="date-parts"), which, ("text", "tags"))] for which in ("train", "valid"))
    assert len(train) + len(valid) == 8000
    assert 0.05 < len(valid) / 8000 < 0.09
    tags = {tag for record in train for tag in record.fields["tags"].split()}
    assert tags == {"day", "month", "year", "weekday", "other"}
    for record in train + valid:
        assert len(record.fields["text"].split()) == len(record.fields["tags"].split())
