"""Built-in sets whose documents have several fields: dates in two languages, talks, reports, docstrings, letters."""

import inspect
import re
import subprocess
import sys
import textwrap
from collections import Counter, defaultdict
from datetime import date, timedelta

import pytest
from babel.dates import format_date, parse_date

from seqlab.data.builtin.date_pairs import APART, FORMATS, LOCALES, UNSEEN, date_pairs, readable, written
from seqlab.data.builtin.sets import content_hash, documents
from seqlab.data.builtin.weather import Day, report
from seqlab.data.reading.readers import fingerprint, read
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

FIELDS = {
    "dates:3000": ("source", "target", "language"),
    "dates-unseen:2000": ("source", "target", "language"),
    "docstrings": ("source", "target"),
    "dialogue:3000": ("history", "question", "target"),
    "weather:3000": ("measurements", "target"),
    "reverse:6:3000": ("source", "target"),
    "sort:6:3000": ("source", "target"),
}


def parts(name):
    """Those for training, validation and tests."""
    base, colon, numbers = name.partition(":")
    return [
        *(list(documents(name, which)) for which in ("train", "valid")),
        list(documents(f"{base}-test{colon}{numbers}", "valid")),
    ]


@pytest.mark.parametrize("name", FIELDS)
def test_three_parts_that_share_no_key(name):
    found = parts(name)
    sizes = [len(part) for part in found]
    assert 0.02 < sizes[1] / sum(sizes) < 0.09
    assert 0.02 < sizes[2] / sum(sizes) < 0.09
    keys = [{one.key or one.name for one in part} for part in found]
    assert not keys[0] & keys[1] | keys[0] & keys[2] | keys[1] & keys[2]
    asked = [{tuple(one.fields.values())[:-1] for one in part} for part in found]
    assert not asked[0] & (asked[1] | asked[2])
    for one in (document for part in found for document in part):
        assert tuple(one.fields) == FIELDS[name]
        assert all(value and value == " ".join(value.split()) for value in one.fields.values())
    if ":" in name:
        assert sum(sizes) == int(name.rpartition(":")[2])


@pytest.mark.parametrize("name", FIELDS)
def test_the_reader_gives_the_fields_that_are_asked_for(name):
    data = DataSettings(train=name)
    records = list(read(data, "valid", FIELDS[name]))
    assert [record.fields for record in records] == [dict(one.fields) for one in documents(name, "valid")]
    assert records[0].file.startswith(f"{name}:")
    some = list(read(data, "valid", FIELDS[name][-1:]))
    assert [list(record.fields.values()) for record in some] == [[*record.fields.values()][-1:] for record in records]


@pytest.mark.parametrize("name", ["dates", "reverse:8", "dialogue", "weather"])
def test_a_larger_set_holds_out_what_a_smaller_one_does(name):
    small, large = ([{one.name for one in part} for part in parts(f"{name}:{many}")] for many in (1000, 2000))
    assert all(few < more for few, more in zip(small, large, strict=True))


def test_the_same_in_every_process():
    names = ["dates:1000", "dialogue:1000", "weather:1000", "reverse:5:1000"]
    code = f"from seqlab.data.builtin.sets import content_hash; print(*map(content_hash, {names}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == [content_hash(name) for name in names]
    assert len({fingerprint(DataSettings(train=name), "train") for name in [*names, "dates:1001"]}) == 5


@pytest.mark.parametrize("name", ["dates:999", "dates:1000:2", "docstrings:5", "reverse:3", "sort:5:x", "weather:0"])
def test_bad_numbers_are_refused(name):
    with pytest.raises(DataError, match=name):
        documents(name, "train")


# ---------------------------------------------------------------------- columns


def test_fields_of_built_in_sets_are_chosen_by_columns():
    data = DataSettings(train="python-topics", columns={"topic": "label", "target": "text"})
    found = [(one.fields["topic"], one.fields["target"]) for one in read(data, "valid", ("topic", "target"))]
    assert found == [(one.fields["label"], one.fields["text"]) for one in documents("python-topics", "valid")]
    back = DataSettings(train="reverse:5:1000", columns={"source": "target", "target": "source"})
    assert all(one.fields["source"] for one in read(back, "valid", ("source", "target")))
    texts = list(read(DataSettings(train="dates:1000", columns={"text": "target"}), "valid"))
    assert [one.fields["text"] for one in texts] == [one.fields["target"] for one in documents("dates:1000", "valid")]


@pytest.mark.parametrize(
    ("columns", "roles", "message"),
    [
        (
            {},
            ("text",),
            r"'reverse:5:1000' does not provide text; it has source, target: choose one with data\.columns\.text",
        ),
        ({}, ("source", "language"), r"does not provide source and language; .*data\.columns\.language"),
        ({"source": "de"}, ("source", "target"), r"does not provide source and target; .*data\.columns\.source"),
        ({"text": "de"}, ("text",), r"does not provide text; .*data\.columns\.text"),
    ],
)
def test_fields_that_a_set_does_not_have(columns, roles, message):
    with pytest.raises(DataError, match=message):
        list(read(DataSettings(train="reverse:5:1000", columns=columns), "valid", roles))


# ---------------------------------------------------------------------- dates


def test_no_text_that_is_read_has_two_answers():
    """Two years day by day, and every 97th day of the others. Once, it was all days from 1900 to 2099."""
    days = [date(2023, 1, 1) + timedelta(number) for number in range(731)]
    days += [date(1900, 1, 1) + timedelta(97 * number) for number in range(753)]
    meanings = defaultdict(set)
    for format in FORMATS:
        for locale in LOCALES:
            if readable(locale, format):
                for day in days:
                    meanings[written(day, locale, format)].add((day, format))
    assert [text for text, meant in meanings.items() if len(meant) > 1] == []


def test_dates_are_those_of_babel_in_one_format():
    for one in date_pairs(400):
        locale, language = one.name.split("/")[0].split("-")
        format, day = one.name.split("/")[1], date.fromisoformat(one.key)
        assert one.fields["language"] == language != locale
        for field, written_in in (("source", locale), ("target", language)):
            expected = day.isoformat() if written_in == "iso" else format_date(day, format, written_in)
            assert one.fields[field] == " ".join(expected.split())


def test_pairs_of_languages_that_are_not_seen():
    assert sorted(" ".join(UNSEEN).split()) == list(LOCALES)
    seen, unseen = (
        {frozenset(one.name.split("/")[0].split("-")) for one in documents(name, "train")}
        for name in ("dates:5000", "dates-unseen:1000")
    )
    assert unseen == APART
    assert not seen & unseen
    assert len(seen) == 190 - 10 + 20
    directions = {one.name.split("/")[0] for one in documents("dates-unseen:1000", "train")}
    assert len(directions) == 20


def test_texts_of_unseen_pairs_are_of_one_language_only():
    for one in date_pairs(300, unseen=True):
        locale, format, day = one.name[:2], one.name.split("/")[1], date.fromisoformat(one.key)
        others = [other for other in LOCALES if other != locale and readable(other, format)]
        assert one.fields["source"] not in [written(day, other, format) for other in others]


def test_figures_mean_the_day_they_should():
    assert parse_date(written(date(2015, 3, 5), "de", "medium"), locale="de") == date(2015, 3, 5)
    assert written(date(2015, 3, 5), "iso", "full") == "2015-03-05"


# ---------------------------------------------------------------------- made-up texts


def test_letters_reversed_and_sorted():
    for name, answer in (("reverse:7:1000", lambda some: some[::-1]), ("sort:7:1000", sorted)):
        for one in documents(name, "train"):
            source, target = one.fields["source"].split(), one.fields["target"].split()
            assert 4 <= len(source) <= 7
            assert target == answer(source)


TOLD = (
    r"(?P<name>[A-Z]\w+) goes to (?P<place>\w+) on (?P<day>\w+)\. It will (?P<weather>[\w ]+) there\.",
    r"On (?P<day>\w+) (?P<name>\w+) goes to (?P<place>\w+), where it will (?P<weather>[\w ]+)\.",
    r"They say it will (?P<weather>[\w ]+) in (?P<place>\w+), where (?P<name>\w+) goes on (?P<day>\w+)\.",
)
WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def answered(history: str, question: str) -> str:
    """By who reads what was said with regular expressions."""
    journeys = [found.groupdict() for told in TOLD for found in re.finditer(told, history)]
    assert 2 <= len(journeys) <= 4
    about = next((one for one in journeys if re.search(rf"\b({one['name']}|{one['place']})\b", question)), None)
    kind = question.split()[0]
    if kind == "And":
        kind = [asked.split()[0] for asked in re.findall(r": ([^:.]+\?)", history) if not asked.startswith("And")][-1]
    if "earliest" in question:
        about = min(journeys, key=lambda one: WEEK.index(one["day"]))
        return f"{about['name']} does, on {about['day']}."
    return {
        "Where": "To {place}.",
        "When": "On {day}.",
        "What": "It will {weather}.",
        "Does": ("Yes" if about["weather"] == "rain" else "No") + ", it will {weather} in {place}.",
        "Who": "{name} does.",
    }[kind].format(**about)


def test_answers_follow_from_what_was_said():
    kinds = Counter()
    for one in documents("dialogue:2000", "train"):
        history, question, target = one.fields.values()
        assert target == answered(history, question), history
        kinds[question.split()[0]] += 1
    assert kinds.keys() == {"Where", "When", "What", "Does", "Who", "And"}
    assert kinds["And"] > 200


@pytest.mark.parametrize(
    ("day", "said"),
    [
        (
            Day(-2.4, 6.3, 45, 262, 994, 88, 3.5),
            "Mostly cloudy with rain and sleet. Cool, up to 6 degrees, with frost at night. "
            "A strong wind from the west. Low pressure of 994 hPa: it stays unsettled.",
        ),
        (Day(0.5, 1.4, 5, 0, 1013, 59, 0.0), "Partly cloudy. Cold, up to 1 degree."),
        (
            Day(18.5, 30.0, 6, 338, 1026, 19, 0.0),
            "Hot, 19 to 30 degrees. Sunny. A light breeze from the north. High pressure of 1026 hPa: it stays fair.",
        ),
        (
            Day(3.0, 9.9, 62, 22, 1000, 95, 12.0),
            "A storm from the north. Overcast with heavy rain. Cool, 3 to 10 degrees.",
        ),
        (
            Day(-16.0, -11.5, 0, 10, 1025, 60, 0.1),
            "Bitterly cold, -16 to -11 degrees. Mostly cloudy with a little snow.",
        ),
    ],
)
def test_reports(day, said):
    assert report(day) == said


def test_docstrings_have_their_first_line_as_target():
    every = [one for part in parts("docstrings") for one in part]
    assert len(every) > 1500
    for field in ("source", "target"):
        assert len({one.fields[field] for one in every}) == len(every)
    bodies = {one.fields["target"]: one.fields["source"] for one in every if one.key == "textwrap.py"}
    summary, _, body = inspect.getdoc(textwrap.wrap).partition("\n")
    assert bodies[summary] == " ".join(body.split())
