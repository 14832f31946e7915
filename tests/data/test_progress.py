"""What reading and tokenising tell of how far they are."""

import contextlib

import pyarrow.parquet
import pytest

from data import progress
from data.errors import DataError
from data.files.tables import read_table
from data.files.text_files import read_text
from data.tasks.lengths import piece_counts
from data.tasks.questions import squad
from data.tasks.questions.rows import QuestionSettings, make_question_rows
from data.tasks.sentences import glue, multiple_choice
from data.tasks.sentences import rows as sentence_rows
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.tagging.conll import TagFormat, read_conll_sentences
from data.tokenization import Tokenizer
from tests.fine_tuning.tiny_tasks import write_questions, write_tags
from tests.scripts import fail

SCRIPT = """
import runpy, sys
from data import progress
from modeling import logs
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    assert progress._show is logs.activity
"""


class Told:
    """What was told: [what, unit, total, how many are done, whether it has ended]."""

    def __init__(self):
        self.works = []

    @contextlib.contextmanager
    def __call__(self, what, unit, total):
        self.works.append(work := [what, unit, total, 0, False])

        class Shown:
            def add(self, count):
                work[3] += count

        try:
            yield Shown()
        finally:
            work[4] = True


@pytest.fixture
def told(monkeypatch):
    told = Told()
    monkeypatch.setattr(progress, "_show", told)
    return told.works


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    return Tokenizer(tmp_path / "vocab.txt")


def test_nothing_is_shown_unless_somebody_shows_it():
    assert list(progress.counted("Reading", "lines", range(9))) == [*range(9)]
    assert list(progress.portions("Tokenising", "texts", [*range(5)], 2)) == [[0, 1], [2, 3], [4]]


def test_thousands_of_items_at_a_time(told):
    assert sum(1 for _ in progress.counted("Reading", "lines", [0] * 10_000)) == 10_000
    assert sum(1 for _ in progress.counted("Reading", "rows", iter([0] * 10))) == 10
    assert told == [["Reading", "lines", 10_000, 8192, True], ["Reading", "rows", None, 0, True]]


def test_portions_add_up(told):
    assert [len(some) for some in progress.portions("Making", "rows", [0] * 25, 10)] == [10, 10, 5]
    assert told == [["Making", "rows", 25, 25, True]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "text\n" + '"a, ""b"""\n' * 5000),
        ("t.tsv", "text\n" + "a b\n" * 5000),
        ("t.jsonl", '{"text": "a"}\n' * 5001),
    ],
)
def test_rows_of_files(tmp_path, told, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert len(list(read_table(str(path)))) >= 5000
    assert told == [[f"Reading {path}", "lines", 5001, 4096, True]]


def test_what_is_refused_has_ended(tmp_path, told):
    (tmp_path / "t.csv").write_text('a,b\n1,2\n"3,4\n')
    with pytest.raises(DataError, match=r"t\.csv:3"):
        list(read_table(str(tmp_path / "t.csv")))
    assert [ended for *_, ended in told] == [True]


def test_rows_of_parquet(tmp_path, told):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 30}), tmp_path / "t.parquet")
    assert len(list(read_table(str(tmp_path / "t.parquet")))) == 30
    assert told == [[f"Reading {tmp_path / 't.parquet'}", "rows", 30, 30, True]]


def test_published_tasks(tmp_path, told):
    (tmp_path / "train.tsv").write_text("a\t1\t\ttext\n" * 5000)
    assert len(glue.get_task("cola").read(str(tmp_path), "train")) == 5000
    choice = '{"context": "a", "choices": ["b", "c"], "label": 0}\n'
    (tmp_path / "t.jsonl").write_text(choice * 3)
    task = multiple_choice.get_task("multiple_choice", str(tmp_path / "t.jsonl"))
    assert len(task.read(None, "train")) == 3
    assert told == [
        [f"Reading {tmp_path / 'train.tsv'}", "lines", 5000, 4096, True],
        [f"Reading {tmp_path / 't.jsonl'}", "lines", 3, 0, True],
    ]


def test_tags(tmp_path, told):
    write_tags(tmp_path / "t.txt", 8, 0)
    sentences = read_conll_sentences(str(tmp_path / "t.txt"), TagFormat(), labelled=True)
    lines = len(read_text(str(tmp_path / "t.txt")).rstrip("\n").split("\n"))
    assert len(sentences) == 8
    assert told[-1] == [f"Reading {tmp_path / 't.txt'}", "lines", lines, 0, True]


def test_questions(tmp_path, told, tokenizer):
    write_questions(tmp_path / "t.json", 6, 0)
    questions = squad.read_squad(str(tmp_path / "t.json"), training=True)
    make_question_rows(tokenizer, questions, QuestionSettings(32, 8, 8), training=True)
    assert told == [
        [f"Reading {tmp_path / 't.json'}", "questions", len(questions), 0, True],
        ["Tokenising", "questions", len(questions), len(questions), True],
    ]


def test_sentences(told, tokenizer):
    examples = [Example(str(n), "a b", "b", "x", f"t:{n}") for n in range(2500)]
    settings = sentence_rows.SentenceSettings(16)
    sentence_rows.tokenize_examples(tokenizer, examples, SentenceKind.CLASSES, ["x"], settings)
    piece_counts(tokenizer, ["a"] * 1500)
    assert told == [
        ["Tokenising", "texts", 2500, 2500, True],
        ["Counting pieces", "texts", 1500, 1500, True],
    ]


@pytest.mark.parametrize("script", ["run_classifier.py", "run_ner.py", "run_squad.py"])
def test_scripts_show_it(script):
    said = fail("-c", SCRIPT.replace("sys.argv[0]", repr(script)))
    assert "Flags parsing error" in said and "AssertionError" not in said
