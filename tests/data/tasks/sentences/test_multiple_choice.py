"""Multiple choice files: what is read, under which names, and what is refused."""

import csv
import gzip
import json

import pytest

from data.errors import DataError
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.multiple_choice import get_task

HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
CODAH_ROW = "o\tHe said. He\ta\tb\tc\td\t3\n"


def write(path, text):
    path.write_bytes(text.encode("utf-8"))
    return str(path)


def refused(path, text, match, split="train"):
    """The message that reading a file of that text ends in."""
    write(path, text)
    with pytest.raises(DataError, match=match) as caught:
        files = {"train_file": str(path)} if split == "train" else {"test_file": str(path)}
        get_task("multiple_choice", **files).read(None, split)
    return str(caught.value)


def test_swag_csv(tmp_path):
    endings = ['says "no", loudly.', "runs", "eats\nand drinks", "x"]
    rows = [
        ["0", "v-1", "7", "He sits. She", "He sits.", "She", "gold", *endings, "2"],
        ["1", "v-2", "8", "A. B", "A.", "", "gen", "p", "q", "r", "s", "0"],
    ]
    for name in ("train.csv", "val.csv"):
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            file.write(HEADER + "\n")
            csv.writer(file, lineterminator="\n").writerows(rows)
    unlabelled = HEADER.removesuffix(",label") + "\r\n0,v,1,S T,S,T,gold,a,b,c,d\r\n"
    write(tmp_path / "test.csv", unlabelled)
    task = get_task("SWAG")
    assert (task.name, task.kind, task.labels) == ("swag", SentenceKind.CHOICES, [])
    assert task.metrics == ("accuracy",) and task.pairs
    train = task.read(str(tmp_path), "train")
    choices = ('She says "no", loudly.', "She runs", "She eats\nand drinks", "She x")
    path = tmp_path / "train.csv"
    assert train == [
        Example("train-1", "He sits.", None, 2, f"{path}:2", choices),
        # Its predecessor takes two lines.
        Example("train-2", "A.", None, 0, f"{path}:4", ("p", "q", "r", "s")),
    ]
    assert [e.guid for e in task.read(str(tmp_path), "dev")] == ["dev-1", "dev-2"]
    (test,) = task.read(str(tmp_path), "test")
    assert (test.label, test.choices) == (None, ("T a", "T b", "T c", "T d"))


def test_text_of_ten_megabytes(tmp_path):
    text = f'sent1,sent2,ending0,ending1,label\n"{"a" * 10_000_000}",b,c,d,1\n'
    path = write(tmp_path / "x.csv", text)
    (example,) = get_task("multiple_choice", path).read(None, "train")
    assert len(example.text_a) == 10_000_000 and example.choices == ("b c", "b d")


def test_codah_takes_quotes_as_text(tmp_path):
    write(tmp_path / "train.tsv", 'o\tHe "said. He\ta\tb"\tc\u2028c\td\t3\r\n' + CODAH_ROW)
    write(tmp_path / "test.tsv", CODAH_ROW.replace("\t3", ""))
    task = get_task("codah")
    first, second = task.read(str(tmp_path), "train")
    path = tmp_path / "train.tsv"
    choices = ("a", 'b"', "c\u2028c", "d")
    assert first == Example("train-0", 'He "said. He', None, 3, f"{path}:1", choices)
    assert (second.guid, second.source) == ("train-1", f"{path}:2")
    assert task.read(str(tmp_path), "test")[0].label is None


def test_real_codah(shared_data):
    folder = shared_data / "swag/codah/data"
    for fold in range(5):
        task = get_task("codah")
        splits = [
            task.read(str(folder / f"cv_split/fold_{fold}"), s) for s in ("train", "dev", "test")
        ]
        assert len(splits[0]) == 1665 and sum(map(len, splits)) == 2776
    examples = get_task("codah", str(folder / "full_data.tsv")).read(None, "train")
    assert [sum(e.label == label for e in examples) for label in range(4)] == [689, 684, 697, 706]
    assert {len(e.choices) for e in examples} == {4}
    assert all(e.text_a and all(e.choices) for e in examples)


def test_real_swag(shared_data):
    path = shared_data / "swag/swag-500.jsonl"
    for name in ("swag", "multiple_choice"):
        examples = get_task(name, str(path)).read(None, "train")
        assert len(examples) == len({e.guid for e in examples}) == 500
        assert [sum(e.label == n for e in examples) for n in range(4)] == [123, 109, 144, 124]
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[499])
    last = examples[-1]
    assert (last.text_a, list(last.choices)) == (row["startphrase"], row["choices"])
    assert last.source == f"{path}:500"


def test_json_lines_with_any_number_of_choices(tmp_path):
    rows = [{"context": "c", "choices": list("abcdefg"[:n]), "label": n - 1} for n in (2, 7, 3)]
    text = "\n\n".join(json.dumps(row) for row in rows)
    examples = get_task("multiple_choice", write(tmp_path / "x.jsonl", text)).read(None, "train")
    assert [len(e.choices) for e in examples] == [2, 7, 3]
    assert [e.label for e in examples] == [1, 6, 2]
    assert [e.guid for e in examples] == ["train-0", "train-1", "train-2"]
    assert examples[2].source.endswith(":5")
    test = '\ufeff{"context": "c", "choices": ["a", "b"]}\n'
    packed = tmp_path / "t.ndjson.gz"
    packed.write_bytes(gzip.compress(test.encode("utf-8")))
    for path in (write(tmp_path / "t.json", test), str(packed)):
        (example,) = get_task("multiple_choice", test_file=path).read(None, "test")
        assert (example.label, example.source) == (None, f"{path}:1")


def test_splits_and_files(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("one.jsonl", "two.jsonl", "b/two.jsonl"):
        row = {"context": name, "choices": ["a", "b"], "label": 0}
        write(tmp_path / name, json.dumps(row))
    absolute = str(tmp_path / "b/two.jsonl")
    task = get_task("swag", dev_files=["one.jsonl", "two.jsonl", absolute])
    assert task.splits("train") == ("train",) and task.splits("test") == ("test",)
    assert task.splits("dev") == ("dev", "dev_two", "dev_two_2")
    read = [task.read(str(tmp_path), split)[0] for split in task.splits("dev")]
    assert [e.text_a for e in read] == ["one.jsonl", "two.jsonl", "b/two.jsonl"]
    assert read[1].guid == "dev_two-0"
    own = get_task("multiple_choice", "x.tsv")
    assert own.splits("train") == ("train",) and own.splits("dev") == own.splits("test") == ()
    assert get_task("codah").splits("dev") == ("dev",)
    with pytest.raises(DataError, match="no 'test' split; it has train"):
        own.read(None, "test")
    with pytest.raises(DataError, match="codah, multiple_choice, swag"):
        get_task("copa")


@pytest.mark.parametrize("name", ["x.tsv", "x.jsonl", "x.csv"])
def test_labels_that_are_refused(name, tmp_path):
    rows = {
        "x.tsv": ("", "o\tp\ta\tb\tc\td\t{}\n"),
        "x.jsonl": ("", '{{"context": "p", "choices": ["a", "b", "c", "d"], "label": "{}"}}\n'),
        "x.csv": ("sent1,sent2,ending0,ending1,ending2,ending3,label\n", "p,q,a,b,c,d,{}\n"),
    }
    header, row = rows[name]
    line = 3 if header else 2
    for label, match in (
        ("4", "out of range for 4 choices; they count from 0 to 3"),
        ("-1", "out of range"),
        ("1.0", "'1.0', which is not an integer"),
        ("b", "not an integer"),
    ):
        message = refused(tmp_path / name, header + row.format(0) + row.format(label), match)
        assert f"{name}:{line}: " in message


def test_labels_that_are_kept_back(tmp_path):
    """Test files of other libraries' data sets have −1 there."""
    path = write(tmp_path / "t.csv", "sent1,sent2,ending0,ending1,label\np,q,a,b,-1\n")
    (example,) = get_task("multiple_choice", test_file=path).read(None, "test")
    assert example.label is None
    path = write(tmp_path / "t.jsonl", '{"context": "p", "choices": ["a", "b"], "label": -1}')
    (example,) = get_task("multiple_choice", test_file=path).read(None, "test")
    assert example.label is None


def test_an_empty_ending_is_no_choice(tmp_path):
    """It would be what all endings share, alone."""
    text = "sent1,sent2,ending0,ending1,ending2,label\nHe ran.,He,fell,won, ,1\n"
    refused(tmp_path / "x.csv", text, r"x.csv:2: choice 2 \(from 0 on\) is empty")


def test_labels_of_json_types(tmp_path):
    row = '{{"context": "p", "choices": ["a", "b"], "label": {}}}'
    for label in ("true", "1.0", "[1]"):
        refused(tmp_path / "x.jsonl", row.format(label), "x.jsonl:1: .*not an integer")
    refused(tmp_path / "x.jsonl", row.format("null"), "x.jsonl:1: there is no label; the train")
    refused(tmp_path / "x.tsv", "o\tp\ta\tb\tc\td\n", "x.tsv:1: there is no label")


def test_columns_without_a_name_may_be_several(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(",sent1,sent2,ending0,ending1,label,\n0,p,q,a,b,0,\n", "utf-8")
    (example,) = get_task("multiple_choice", train_file=str(path)).read(None, "train")
    assert example.choices == ("q a", "q b")


def test_files_that_are_refused(tmp_path):
    header = "sent1,sent2,ending0,ending1,label\n"
    for name, text, match in (
        ("x.tsv", CODAH_ROW + "o\tp\ta\tb\t1\n", "x.tsv:2: this row has 5 tab-separated columns"),
        ("x.tsv", CODAH_ROW + "\to" + CODAH_ROW, "x.tsv:2: this row has 8"),
        (
            "x.csv",
            header + 'p,q,"a\n\nb",b,0\np,q,a,1\n',
            "x.csv:5: this row has 4 comma-separated columns",
        ),
        ("x.csv", header + 'p,q,a,b,0\np,q,"a,b,1\np,q,a,b,1\n', "x.csv:3: the row .* isn't CSV"),
        ("x.csv", "sent1,ending0,ending1,label\n", "x.csv:1: .*too few columns, sent2 missing"),
        ("x.csv", "sent1,sent2,ending0,label\n", "x.csv:1: .*ending0, ending1 and so on missing"),
        ("x.csv", "sent1,sent2,ending0,ending1,ending1,label\n", "name twice: 'ending1'"),
        ("x.csv", header, "x.csv has no examples"),
        ("x.csv", "", "x.csv has no examples"),
        ("x.tsv", "", "x.tsv has no examples"),
        ("x.jsonl", "\n", "x.jsonl has no examples"),
        ("x.jsonl", '{"context": "p", "choices": ["a"], "label": 0}', "x.jsonl:1: found 1 choices"),
        ("x.jsonl", '\n{"context": "p"', "x.jsonl:2: this line isn't JSON"),
        ("x.jsonl", '["a"]', "x.jsonl:1: expected an object"),
        ("x.jsonl", '{"context": 5, "choices": ["a", "b"]}', "x.jsonl:1: expected an object"),
        ("x.jsonl", '{"context": "p", "choices": ["a", 1]}', "x.jsonl:1: expected an object"),
        ("x.jsonl", '{"context": "p", "choices": "ab"}', "x.jsonl:1: expected an object"),
        ("x.parquet", "", "files may end in .csv, .tsv, .jsonl"),
    ):
        refused(tmp_path / name, text, match)
    refused(tmp_path / "x.jsonl", '{"context": "p", "choices": []}', "found 0 choices", "test")
    empty = '{"context": "p", "choices": ["a", ""], "label": 0}'
    refused(tmp_path / "x.jsonl", empty, "x.jsonl:1: choice 1 .from 0 on. is empty")
    (tmp_path / "x.tsv").write_bytes(CODAH_ROW.encode() + b"\xff\xfe")
    with pytest.raises(DataError, match=r"x\.tsv:2: found the bytes"):
        get_task("codah", "x.tsv").read(str(tmp_path), "train")
    with pytest.raises(DataError, match=r"val\.csv can't be read \(NotFoundError\)"):
        get_task("swag").read(str(tmp_path), "dev")
