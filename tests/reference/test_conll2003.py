"""Words and names of CoNLL-2003 against the counts that its makers printed.

Tjong Kim Sang & De Meulder 2003, https://aclanthology.org/W03-0419, tables 1 and 2 (whose sentences include the 946 and
216 lines that begin an article).
"""

from collections import Counter

import pytest

from seqlab.data.reading.readers import read
from seqlab.objectives.spans import scheme_of, spans
from seqlab.recipe import DataSettings

PRINTED = {
    "train": (14_987 - 946, 203_621, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
    "valid": (3466 - 216, 51_362, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
}


@pytest.mark.parametrize("part", PRINTED)
def test_counts_are_those_of_the_paper(shared_data, part):
    data = DataSettings(train="unused", valid=str(shared_data("conll2003") / f"{part}.txt"), format="conll")
    records = [record.fields for record in read(data, "valid", ("text", "tags"))]
    tagged = [record["tags"].split() for record in records]
    sentences, words, names = PRINTED[part]
    assert len(records) == sentences
    assert sum(len(record["text"].split()) for record in records) == sum(map(len, tagged)) == words
    assert Counter(span.type for tags in tagged for span in spans(tags)) == names
    assert scheme_of(tagged) == "BIO"
