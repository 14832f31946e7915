"""JSON lines as a corpus, and how a file's format is told."""

import gzip
import html
import json
import re

import pytest

from data.errors import DataError
from data.pretraining.corpus import formats, read_documents


def write(path, *records):
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def read(path, **options):
    return [(d.sentences, d.source) for d in read_documents([str(path)], **options)]


def test_each_object_is_a_document(tmp_path):
    path = write(
        tmp_path / "a.json",
        "\ufeff",
        {"id": 1, "text": "Dr. Smith came. He left.\r\n\n \nA heading\nLast words! 終わり。次。"},
        "",
        {"text": " \n"},
        {"text": "Ü\u2028x"},
    )
    assert read(path) == [
        (
            ["Dr. Smith came.", "He left.", "A heading", "Last words!", "終わり。", "次。"],
            f"{path}:2",
        ),
        (["Ü\u2028x"], f"{path}:5"),
    ]


def test_gzip_and_another_field(tmp_path):
    path = tmp_path / "a.gz"
    records = [{"body": f"Number {i}.", "text": 5} for i in range(3)]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    documents = [sentences for sentences, _ in read(path, text_field="body")]
    assert documents == [["Number 0."], ["Number 1."], ["Number 2."]]


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    path = write(tmp_path / "a", r'{"text": "a\ud800b \ud83d\ude00"}')
    assert read(path)[0][0] == ["a\ufffdb \U0001f600"]


@pytest.mark.parametrize(
    "line",
    ['He said {"text"}.', "[1] A note.", '"{}"', "{ curly } braces", "<document>", "{{cite}}"],
)
def test_prose_stays_prose(tmp_path, line):
    path = write(tmp_path / "a", line, '{"text": "Not JSON lines: the first line tells."}')
    assert read(path) == [
        ([line, '{"text": "Not JSON lines: the first line tells."}'], f"{path}:1")
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"text": "cut of', r"a\.jsonl:3: this line isn't JSON \(Unterminated string"),
        ("Prose.", r"a\.jsonl:3: this line isn't JSON"),
        ('{"text": "a"} {"text": "b"}', r"a\.jsonl:3: this line isn't JSON \(Extra data"),
        ('{"text": ' + "[" * 200_000, r"a\.jsonl:3: this line isn't JSON"),
        ('{"n": ' + "1" * 5000 + "}", r"a\.jsonl:3: this line isn't JSON"),
        ('["text"]', r"a\.jsonl:3: this line holds an array, not an object"),
        ('{"body": "x", "title": "y"}', r"no field 'text'; its fields: 'body', 'title'\. .*_field"),
        ("{}", r"no field 'text'; its fields: none"),
        ('{"text": null}', r"a\.jsonl:3: the field 'text' holds null; a string"),
        ('{"text": 1.5}', r"holds a number"),
        ('{"text": true}', r"holds true"),
        ('{"text": {"a": 1}}', r"holds an object"),
    ],
)
def test_bad_lines_are_named(tmp_path, bad, message):
    path = write(tmp_path / "a.jsonl", {"text": "Fine."}, "", bad)
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize("first", ["{", '[{"text": "An array."}]'])
def test_json_that_is_not_one_object_a_line_is_no_prose(tmp_path, first):
    with pytest.raises(DataError, match=r"a:1: this line .*object"):
        read(write(tmp_path / "a", first, '"text": "x"', "}"))


def test_endless_document(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_DOCUMENT_CHARACTERS", 1000)
    with pytest.raises(DataError, match=r"a:1: the document"):
        read(write(tmp_path / "a", {"text": "x" * 1001}))


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ('id="1" title="A title of more than six words, you see"', None),
        ("title='A title of more than six words, you see' id='2'", None),
        ('title="A &quot;title&quot; of more than six words &amp; signs" ', None),
        ('title="A "title" of more than six words as it is"', None),
        ('title="The title of more than six words?" url="x"', None),
        ('title="-30- and more than these six words here"', None),
        ('url="x"', "A short heading"),
    ],
)
def test_titles_of_articles_are_dropped(tmp_path, attributes, line):
    if line is None:
        quoted = re.search(r"""title=(["'])(.*)\1""", attributes.split(" id=")[0].split(" url")[0])
        line = html.unescape(quoted[2])
    longer = "A paragraph that is longer than a heading."
    text = f"<doc {attributes}>\n{line}\n\nSection.\n{longer} Yes.\n</doc>\n"
    path = tmp_path / "a"
    path.write_text(
        text + "<doc>\nAnother article's only paragraph, and it's long.\n</doc>", "utf-8"
    )
    assert read(path) == [
        ([longer, "Yes."], f"{path}:1"),
        (["Another article's only paragraph, and it's long."], f"{path}:7"),
    ]
