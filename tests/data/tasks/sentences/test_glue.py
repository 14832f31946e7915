"""Task readers against what the original's processors read."""

import json

import pytest
from absl import logging

from data.errors import DataError
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.glue import XNLI_LANGUAGES, get_task, task_names

FOLDERS = {"cola": "CoLA", "mnli": "MNLI", "mrpc": "MRPC", "xnli": "XNLI"}


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_recorded_processors(name, golden):
    recorded = json.loads((golden / "glue/processors.json").read_text(encoding="utf-8"))[name]
    task = get_task(name.upper())
    assert task.labels == recorded["labels"]
    for split in ("train", "dev", "test"):
        if name == "xnli" and split == "test":
            with pytest.raises(DataError, match="train, dev"):
                task.read(str(golden / "glue/XNLI"), split)
            continue
        examples = task.read(str(golden / "glue" / FOLDERS[name]), split)
        got = [[e.guid, e.text_a, e.text_b, e.label] for e in examples]
        if split == "test":
            # The original puts its first label where there is none.
            assert all(row[3] is None for row in got)
            got = [[*row[:3], task.labels[0]] for row in got]
        assert got == recorded[split]


def test_real_sizes(shared_data):
    for name, folder, sizes in (
        ("cola", "CoLA", (8551, 1043, 1063)),
        ("sst-2", "SST-2", (67349, 872, 1821)),
        ("mrpc", "MRPC", (3668, 408, 1725)),
        ("sts-b", "STS-B", (5749, 1500, 1379)),
        ("rte", "RTE", (2490, 277, 3000)),
        ("wnli", "WNLI", (635, 71, 146)),
    ):
        task = get_task(name)
        assert tuple(task.published_size(split) for split in ("train", "dev", "test")) == sizes
        splits = [
            task.read(str(shared_data / "glue" / folder), s) for s in ("train", "dev", "test")
        ]
        assert tuple(map(len, splits)) == sizes
        for examples in splits[:2]:
            labels = {example.label for example in examples}
            if name == "sts-b":
                assert min(labels) == 0 and max(labels) == 5
            else:
                assert labels == set(task.labels)
        assert {example.label for example in splits[2]} == {None}
        assert all((example.text_b is not None) == task.pairs for example in splits[0])


def test_real_texts_keep_their_quotes(shared_data):
    """Unbalanced quotes swallow rows of any reader that interprets them."""
    lines = (shared_data / "glue/STS-B/train.tsv").read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line]
    assert any(row[7].count('"') % 2 for row in rows)
    examples = get_task("sts-b").read(str(shared_data / "glue/STS-B"), "train")
    assert [(e.text_a, e.text_b) for e in examples] == [(row[7], row[8]) for row in rows[1:]]
    assert [e.label for e in examples] == [float(row[9]) for row in rows[1:]]


def test_sst2_fields(tmp_path):
    (tmp_path / "train.tsv").write_text('sentence\tlabel\na "b c\t1\n', encoding="utf-8")
    (tmp_path / "test.tsv").write_text("index\tsentence\r\n0\tx\u2028y\r\n", encoding="utf-8")
    task = get_task("SST-2")
    path = tmp_path / "train.tsv"
    assert task.read(str(tmp_path), "train") == [
        Example("train-1", 'a "b c', None, "1", f"{path}:2")
    ]
    assert task.read(str(tmp_path), "test")[0].text_a == "x\u2028y"


def test_unknown_task_lists_names():
    with pytest.raises(
        DataError, match="cola, diagnostic, mnli, mrpc, qnli, qqp, rte, sst-2, sts-b, wnli, xnli"
    ):
        get_task("sts")


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("sentence\tlabel\ngood\t1\nbad\n", 3, ["1 tab-separated", "2 are needed", "bad"]),
        ("sentence\tlabel\nfine\tpositive\n", 2, ["'positive'", "0, 1"]),
        ("sentence\tlabel\na\t1\tb\n", 2, ["has 3 tab-separated", "the first line has 2"]),
    ],
)
def test_bad_rows_are_named(rows, line, words, tmp_path):
    (tmp_path / "dev.tsv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError) as error:
        get_task("sst-2").read(str(tmp_path), "dev")
    for word in [f"{tmp_path}/dev.tsv:{line}:", *words]:
        assert word in str(error.value)


def test_empty_columns_behind_the_last_and_a_blank_first_line(tmp_path):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine\t1\t\t\n", encoding="utf-8")
    assert [e.text_a for e in get_task("sst-2").read(str(tmp_path), "dev")] == ["fine"]
    (tmp_path / "train.tsv").write_text("\nx\t1\t\tfine\n", encoding="utf-8")
    assert [e.text_a for e in get_task("cola").read(str(tmp_path), "train")] == ["fine"]


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"train\.tsv"):
        get_task("cola").read(str(tmp_path), "train")
    (tmp_path / "train.tsv").write_bytes(b"x\t1\t\tfine\nx\t1\t\tcaf\xe9\n")
    with pytest.raises(DataError, match=r"train\.tsv:2: .*UTF-8"):
        get_task("cola").read(str(tmp_path), "train")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n", encoding="utf-8")
    with pytest.raises(DataError, match="no examples"):
        get_task("sst-2").read(str(tmp_path), "dev")
    with pytest.raises(DataError, match="train, dev, test"):
        get_task("sst-2").read(str(tmp_path), "eval")


def _write(folder, file, *rows):
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _texts(examples):
    return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


@pytest.fixture
def warnings(monkeypatch):
    said = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: said.append(text % args))
    return said


def test_every_task():
    official = {
        "cola": ("matthews",),
        "diagnostic": ("matthews",),
        "mrpc": ("f1", "accuracy"),
        "qqp": ("f1", "accuracy"),
        "sts-b": ("spearman", "pearson"),
    }
    assert len(task_names()) == 9 + 2 + 15
    for name in task_names():
        task = get_task(name)
        assert task.name == name
        assert task.metrics == official.get(name, ("accuracy",))
        assert task.kind is (SentenceKind.REGRESSION if name == "sts-b" else SentenceKind.CLASSES)
        assert bool(task.labels) == (name != "sts-b")
        assert task.pairs == (name not in ("cola", "sst-2"))
        if name not in ("mnli", "diagnostic"):
            assert [task.splits(p) for p in ("train", "dev", "test")] == [
                ("train",),
                ("dev",),
                ("test",),
            ]
    mnli = get_task("mnli")
    assert mnli.splits("dev") == ("dev", "dev_mismatched")
    assert mnli.splits("test") == ("test", "test_mismatched", "diagnostic")
    assert get_task("diagnostic").splits("train") == ()
    with pytest.raises(ValueError, match="train, dev, test"):
        mnli.splits("predict")
    assert get_task("RTE").labels == get_task("qnli").labels == ["entailment", "not_entailment"]


def test_qnli_and_qqp_layouts(tmp_path, warnings):
    _write(
        tmp_path,
        "dev.tsv",
        ["index", "question", "sentence", "label"],
        ["7", 'Who said "x?', "He.", "not_entailment"],
    )
    _write(tmp_path, "test.tsv", ["index", "question", "sentence"], ["0", "Who?", "She."])
    qnli = get_task("QNLI")
    assert _texts(qnli.read(str(tmp_path), "dev")) == [
        ("dev-1", 'Who said "x?', "He.", "not_entailment")
    ]
    assert _texts(qnli.read(str(tmp_path), "test")) == [("test-1", "Who?", "She.", None)]

    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    path = _write(
        tmp_path,
        "train.tsv",
        header,
        ["4", "1", "2", 'a "b', "c", "1"],
        ["5", "3", "4", "How is", "this"],
        ["", "broken?", "0"],
        ["6", "5", "6", "d", "", "0"],
    )
    _write(tmp_path, "test.tsv", ["id", "question1", "question2"], ["0", "a", "b"], ["1", "a"])
    qqp = get_task("qqp")
    assert _texts(qqp.read(str(tmp_path), "train")) == [
        ("train-1", 'a "b', "c", "1"),
        ("train-4", "d", "", "0"),
    ]
    # Said, and where; nothing may be left out of a test set, whose rows are numbered.
    [warning] = warnings
    assert "left out 2 rows" in warning and f"the first at {path}:3" in warning
    with pytest.raises(DataError, match=r"test\.tsv:3: .* 2 tab-separated columns, 3 are needed"):
        qqp.read(str(tmp_path), "test")


def test_mnli_label_column_and_no_majority(tmp_path, warnings):
    names = ["index", "promptID", "pairID", "genre", *"abcd", "sentence1", "sentence2"]
    row = ["x"] * 7 + ["a", "b"]
    _write(
        tmp_path,
        "train.tsv",
        [*names, "label1", "gold_label"],
        ["10", *row, "neutral", "entailment"],
        ["11", *row, "neutral", "-"],
        ["12", *row, "neutral", "neutral"],
    )
    five = [f"label{number}" for number in range(1, 6)]
    path = _write(
        tmp_path,
        "dev_mismatched.tsv",
        [*names, *five, "gold_label"],
        ["0", *row, *["neutral"] * 5, "contradiction"],
        # Cut short: what is last isn't the gold label.
        ["1", *row, *["neutral"] * 4],
    )
    _write(tmp_path, "test_mismatched.tsv", names, ["9", *row])
    mnli = get_task("mnli")
    assert _texts(mnli.read(str(tmp_path), "train")) == [
        ("train-10", "a", "b", "entailment"),
        ("train-12", "a", "b", "neutral"),
    ]
    assert len(warnings) == 1 and "train.tsv:3" in warnings[0] and "left out 1 rows" in warnings[0]
    with pytest.raises(DataError, match=r"tsv:3: .* 14 tab-separated columns, 16 are needed"):
        mnli.read(str(tmp_path), "dev_mismatched")
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    _write(tmp_path, "dev_mismatched.tsv", *rows[:2])
    assert _texts(mnli.read(str(tmp_path), "dev_mismatched")) == [
        ("dev_mismatched-0", "a", "b", "contradiction")
    ]
    assert _texts(mnli.read(str(tmp_path), "test_mismatched")) == [
        ("test_mismatched-9", "a", "b", None)
    ]
    assert mnli.exists(str(tmp_path), "test_mismatched")
    assert not mnli.exists(str(tmp_path), "test") and not mnli.exists(str(tmp_path), "other")


def test_diagnostic_set(tmp_path):
    mnli = get_task("mnli")
    assert not mnli.exists(str(tmp_path), "diagnostic")
    with pytest.raises(DataError, match=r"diagnostic\.tsv can't be read .* it has none"):
        mnli.read(str(tmp_path), "diagnostic")
    _write(tmp_path, "diagnostic.tsv", ["index", "sentence1", "sentence2"], ["0", "a", "b"])
    assert mnli.exists(str(tmp_path), "diagnostic")
    assert _texts(mnli.read(str(tmp_path), "diagnostic")) == [("diagnostic-1", "a", "b", None)]
    (tmp_path / "diagnostic.tsv").unlink()
    semantics = ["Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge"]
    _write(
        tmp_path,
        "diagnostic-full.tsv",
        [*semantics, "Domain", "Premise", "Hypothesis", "Label"],
        ["", "", "Negation", "", "News", "a", "b", "contradiction"],
    )
    full = [("diagnostic-1", "a", "b", "contradiction")]
    assert mnli.exists(str(tmp_path), "diagnostic")
    assert _texts(mnli.read(str(tmp_path), "diagnostic")) == full
    assert _texts(get_task("diagnostic").read(str(tmp_path), "dev")) == full
    with pytest.raises(DataError, match="no 'train' split; it has dev, test"):
        get_task("diagnostic").read(str(tmp_path), "train")


def test_xnli_languages(tmp_path, shared_data):
    """The published file holds all languages; real texts, put into its layout."""
    header = ["language", "gold_label", "a", "b", "c", "d", "sentence1", "sentence2", "promptID"]
    rows = {}
    for language in ("de", "ar", "th"):
        lines = (shared_data / f"xnli/dev-{language}.tsv").read_text(encoding="utf-8")
        rows[language] = [line.split("\t") for line in lines.split("\n") if line]
    table = [
        [language, label, "", "", "", "", a, b, "1"]
        for language, those in rows.items()
        for a, b, label in those
    ]
    _write(tmp_path, "xnli.dev.tsv", header, *table)
    _write(tmp_path, "xnli.test.tsv", header, *table[:3])
    _write(
        tmp_path,
        "multinli/multinli.train.ar.tsv",
        ["premise", "hypo", "label"],
        ["x", "y", "contradictory"],
    )
    assert len(XNLI_LANGUAGES) == 15
    for language, those in rows.items():
        examples = get_task(f"XNLI-{language}").read(str(tmp_path), "dev")
        assert [[e.text_a, e.text_b, e.label] for e in examples] == those
        assert len(examples) == 2490
    assert len(get_task("xnli-de").read(str(tmp_path), "test")) == 3
    assert get_task("xnli-ar").read(str(tmp_path), "train")[0].label == "contradiction"
    with pytest.raises(DataError, match="no examples for task xnli-fr"):
        get_task("xnli-fr").read(str(tmp_path), "dev")
    with pytest.raises(DataError, match=r"train\.de\.tsv can't be read"):
        get_task("xnli-de").read(str(tmp_path), "train")


def test_stsb_scores(tmp_path):
    def read(score):
        _write(
            tmp_path,
            "dev.tsv",
            ["index", *"abcdef", "sentence1", "sentence2", "score"],
            ["0", *"xxxxxx", "a", "b", "3.250"],
            ["1", *"xxxxxx", 'a "', "b", score],
        )
        return get_task("STS-B").read(str(tmp_path), "dev")

    assert _texts(read("0")) == [("dev-1", "a", "b", 3.25), ("dev-2", 'a "', "b", 0.0)]
    for wrong in ("good", "", "nan", "inf", "5.1", "-1"):
        with pytest.raises(DataError, match=rf"dev\.tsv:3: the score is '{wrong}'.* 0 to 5"):
            read(wrong)


def test_columns_are_found_by_name(tmp_path, warnings):
    header = ["label", "sentence2", "sentence1"]
    path = _write(tmp_path, "dev.tsv", header, ["entailment", "b", "a"], ["entailment", "b", "a"])
    # There is no index, so nothing that might not repeat.
    assert _texts(get_task("rte").read(str(tmp_path), "dev"))[1] == (
        "dev-2",
        "a",
        "b",
        "entailment",
    )
    _write(tmp_path, "dev.tsv", ["index", "sentence1", "sentence3", "label"], ["0", "a", "b", "x"])
    with pytest.raises(DataError, match=rf"{path}:1: the header has no column 'sentence2'"):
        get_task("rte").read(str(tmp_path), "dev")
    assert not warnings
    _write(tmp_path, "dev.tsv", ["0", "a", "b", "entailment"], ["1", "c", "d", "entailment"])
    assert _texts(get_task("rte").read(str(tmp_path), "dev")) == [("dev-1", "c", "d", "entailment")]
    assert "dev.tsv:1: this line is taken for a header" in warnings[0]


def test_duplicate_index_names_both_lines(tmp_path):
    header = ["index", "sentence1", "sentence2", "label"]
    rows = [["3", "a", "b", "0"], ["4", "a", "b", "1"], ["3", "c", "d", "0"]]
    path = _write(tmp_path, "dev.tsv", header, *rows)
    with pytest.raises(DataError) as error:
        get_task("wnli").read(str(tmp_path), "dev")
    assert f"{path}:4: the index '3' is that of {path}:2 too" in str(error.value)


def test_mrpc_cut_rows(tmp_path, shared_data, warnings):
    """The byte order mark; a missing row is said, one cut short is an error."""
    data = (shared_data / "glue/MRPC/dev.tsv").read_bytes()
    lines = data.rstrip(b"\n").split(b"\n")
    assert data.startswith(b"\xef\xbb\xbf")
    mrpc = get_task("mrpc")
    (tmp_path / "dev.tsv").write_bytes(data)
    assert len(mrpc.read(str(tmp_path), "dev")) == 408
    assert not warnings
    (tmp_path / "dev.tsv").write_bytes(b"\n".join(lines[:-1]))
    assert len(mrpc.read(str(tmp_path), "dev")) == 407
    assert "has 407 examples, mrpc as published has 408" in warnings[0]
    (tmp_path / "dev.tsv").write_bytes(b"\n".join([*lines[:-1], b"1\t2\t3\tonly one"]))
    with pytest.raises(DataError, match=r"dev\.tsv:409: .* 4 tab-separated columns, 5 are needed"):
        mrpc.read(str(tmp_path), "dev")
    with pytest.raises(DataError, match="No data_dir"):
        mrpc.read(None, "dev")
