"""Files of texts, labels, questions, tags and corpora that are damaged."""

import json

from tests.attacks import damages as d
from tests.attacks.suite import Case

UNREADABLE = (d.missing, d.empty, d.folder, d.dangling_link, d.circular_link, d.utf16)
NO_TABLE = (d.binary, d.latin1)
DEEP = "[" * 200_000 + "]" * 200_000


def own(ending: str, content: str | bytes, says: tuple[str, ...], *flags: str, code: int = 1):
    """A training file of another form."""
    name = f"own.{ending}"
    return Case(
        "classifier",
        f"sentences: {ending}",
        (f"--train_file={name}", *flags),
        {name: d.holding(content)},
        (name, *says),
        code,
    )


def json_lines(*rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


GOOD = {"text": "good film", "verdict": "good"}
BAD = {"text": "bad film", "verdict": "bad"}


def question(**fields) -> dict:
    """A file of SQuAD's form with one question."""
    asked = {"id": "q", "question": "who", "answers": [{"text": "ann", "answer_start": 6}]}
    asked = {name: value for name, value in (asked | fields).items() if value is not ...}
    return {"data": [{"paragraphs": [{"context": "it is ann", "qas": [asked]}]}]}


def many_questions(count: int, **fields) -> dict:
    """Bad ones, and more good ones."""
    asked = [question(id=f"q{number}", **fields) for number in range(count)]
    asked += [question(id=f"q{number}") for number in range(count, 3 * count)]
    return {"data": [{"paragraphs": [one["data"][0]["paragraphs"][0] for one in asked]}]}


CASES = [
    *(
        Case(job, "input files", spoil={file: how}, says=(file,))
        for job, file in (
            ("classifier", "train.tsv"),
            ("classifier", "dev.tsv"),
            ("classifier predicts", "test.tsv"),
            ("tagger", "train.txt"),
            ("tagger", "dev.txt"),
            ("tagger predicts", "dev.txt"),
            ("answerer", "train.json"),
            ("answerer", "dev.json"),
            ("answerer predicts", "dev.json"),
            ("prediction", "texts.txt"),
            ("prediction of lines", "asked.jsonl"),
            ("vectors", "texts.txt"),
            ("pretraining from text", "corpus.txt"),
            ("records", "corpus.txt"),
            ("vocabulary", "corpus.txt"),
        )
        for how in UNREADABLE
        # A text is a text, whatever stands in it.
        if not (how is d.utf16 and file in ("corpus.txt", "texts.txt"))
    ),
    *(
        Case(job, "input files", spoil={file: how}, says=(file,))
        for job, file in (
            ("classifier", "train.tsv"),
            ("classifier predicts", "test.tsv"),
            ("tagger", "train.txt"),
            ("answerer", "train.json"),
            ("prediction of lines", "asked.jsonl"),
        )
        for how in NO_TABLE
    ),
    *(
        Case(job, "input files, compressed", flags, {file: d.half_gzip}, (f"{file}.gz",))
        for job, file, flags in (
            ("classifier", "train.tsv", ("--train_file=train.tsv.gz",)),
            ("tagger", "train.txt", ("--train_file=train.txt.gz",)),
            ("answerer", "train.json", ("--train_file=train.json.gz",)),
            ("prediction", "texts.txt", ("--input_file=texts.txt.gz",)),
            ("vectors", "texts.txt", ("--input_file=texts.txt.gz",)),
            ("pretraining from text", "corpus.txt", ("--corpus_file=corpus.txt.gz",)),
            ("records", "corpus.txt", ("--input_file=corpus.txt.gz",)),
            ("vocabulary", "corpus.txt", ("--input_file=corpus.txt.gz",)),
        )
    ),
    own("tsv", "text\tverdict\n", ()),
    own("tsv", "text\tverdict\na b\tgood\nc\n", (":3",)),
    own("tsv", "text\tverdict\na b\tgood\nc\tbad\tx\n", (":3",)),
    own("tsv", "text\ttext\nx\ty\n", ("text",)),
    own("tsv", "words\tverdict\nx\ty\n", ("text",)),
    own("tsv", "text\tverdict\na\tgood\nb\t\n", (":3",)),
    own("tsv", "text\tverdict\na\tgood\nb\tgood\n", ()),
    own("tsv", "text\tverdict\na\t1\nb\tnan\n", (":3",), "--label_kind=regression"),
    own("tsv", "text\tverdict\na\t1\nb\tinf\n", (":3",), "--label_kind=regression"),
    own("tsv", "text\tverdict\na\t1\nb\t1e999\n", (":3",), "--label_kind=regression"),
    own("tsv", "text\tverdict\na\tten\nb\t2\n", (":2",), "--label_kind=regression"),
    own("csv", 'text,verdict\n"a,good\n', ("own.csv",)),
    own("csv", 'text,verdict\n"a"b,good\n', (":2",)),
    own("csv", "text,verdict\na,good\nb\n", (":3",)),
    own("csv", "text,verdict\na\0,good\n", ()),
    own("jsonl", json_lines(GOOD, BAD) + "{\n", (":3",)),
    own("jsonl", json_lines(GOOD, [1]), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": "x"}), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": 5, "verdict": "bad"}), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": None, "verdict": "bad"}), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": "x", "verdict": {}}), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": "x", "verdict": float("nan")}), (":2",)),
    own("jsonl", json_lines(GOOD, {"text": "x", "verdict": ["a", 1]}), (":2",)),
    own("jsonl", json_lines(GOOD) + f'{{"text": {DEEP}, "verdict": "bad"}}\n', (":2",)),
    own(
        "jsonl", json_lines(GOOD) + f'{{"text": "x", "verdict": "bad", "more": {DEEP}}}\n', (":2",)
    ),
    own("jsonl", json_lines(GOOD) + '{"text": "a", "text": "b", "verdict": "bad"}\n', (":2",)),
    own("parquet", d.NOISE, ()),
    own("parquet", b"PAR1" + d.NOISE + b"PAR1", ()),
    own("parquet", b"", ()),
    own("xlsx", d.NOISE, ()),
    # Twenty of fifty bad rows are named, and all can be left out.
    own(
        "tsv", "text\tverdict\n" + "a b\n" * 30 + "good\tgood\nbad\tbad\n" * 20, (":2", ":3", ":21")
    ),
    own(
        "tsv",
        "text\tverdict\n" + "a b\n" * 30 + "good\tgood\nbad\tbad\n" * 20,
        ("30",),
        "--skip_bad_rows",
        code=0,
    ),
    own("tsv", "text\tverdict\n" + "a b\n" * 50, (), "--skip_bad_rows"),
    Case(
        "tagger",
        "tags: many bad rows",
        spoil={"train.txt": d.holding("a O\nb\n\n" * 50 + "ann B-PER\n\n")},
        says=("train.txt", ":2", ":5", ":8"),
    ),
    Case(
        "tagger",
        "tags: many bad rows",
        ("--skip_bad_rows",),
        {"train.txt": d.holding("a O\nb\n\n" * 30 + "ann B-PER\nthe O\n\n" * 40)},
        ("30", "train.txt"),
        0,
    ),
    *(
        Case("tagger", "tags", flags, {"train.txt": d.holding(text)}, says)
        for text, says, flags in (
            ("a O\nb\n\n", ("train.txt:2",), ()),
            ("a X-PER\n\n", ("train.txt:1", "X-PER"), ()),
            ("a O O\nb O\n\n", ("train.txt:2",), ()),
            ("a B-\n\n", ("train.txt:1",), ()),
            ("\n\n\n", ("train.txt",), ()),
            ("-DOCSTART- -X- O\n\n", ("train.txt",), ()),
        )
    ),
    # Repaired, and said so.
    *(
        Case(
            "tagger",
            "tags",
            ("--scheme=iobes",),
            {"train.txt": d.holding("ann O S-PER\nbonn O S-LOC\n\n" * 20 + text)},
            says,
            code=0,
        )
        for text, says in (
            ("a O E-PER\n\n", ("train.txt", "E-PER", "beginning")),
            ("a O B-PER\n\n", ("train.txt", "B-PER", "end")),
        )
    ),
    *(
        Case(
            "tagger",
            "tags: JSON lines",
            ("--train_file=own.jsonl",),
            {"own.jsonl": d.holding(json_lines({"tokens": ["a"], "tags": ["O"]}, row))},
            ("own.jsonl:2",),
        )
        for row in (
            {"tokens": ["a", "b"], "tags": ["O"]},
            {"tokens": "a b", "tags": ["O", "O"]},
            {"tokens": ["a", 5], "tags": ["O", "O"]},
            {"tokens": ["a"], "tags": [None]},
            {"tokens": ["a"]},
            {"tags": ["O"]},
            {"tokens": [], "tags": ["B-PER"]},
            [1],
        )
    ),
    *(
        Case(job, "questions", spoil={file: d.holding(json.dumps(content))}, says=(file,))
        for job, file in (("answerer", "train.json"), ("answerer predicts", "dev.json"))
        for content in (
            [],
            {},
            {"data": {}},
            {"data": []},
            {"data": [5]},
            {"data": [{"paragraphs": 5}]},
            {"data": [{"paragraphs": [{"qas": []}]}]},
            question(question=5),
            question(question=""),
            question(id=...),
            question(question=...),
            {"data": question()["data"] * 2},
        )
    ),
    *(
        Case(
            "answerer",
            "questions: answers",
            spoil={"train.json": d.holding(json.dumps(question(answers=answers)))},
            says=("train.json",),
        )
        for answers in (
            ...,
            5,
            [],
            [{"text": "ann"}],
            [{"answer_start": 6}],
            [{"text": "ann", "answer_start": "6"}],
            [{"text": "ann", "answer_start": 6.5}],
            [{"text": 5, "answer_start": 6}],
            [{"text": "", "answer_start": 6}],
        )
    ),
    # Looked for, and said so.
    Case(
        "answerer",
        "questions: answers",
        spoil={"train.json": d.replaced('"answer_start": ', '"answer_start": 1000000')},
        says=("train.json", "answer_start"),
        code=0,
    ),
    Case("answerer", "questions", spoil={"train.json": d.holding(DEEP)}, says=("train.json",)),
    Case("answerer", "questions", spoil={"train.json": d.cut}, says=("train.json",)),
    Case(
        "answerer",
        "questions: many bad rows",
        spoil={"train.json": d.holding(json.dumps(many_questions(30, question="")))},
        says=("train.json", "paragraphs[0]", "paragraphs[19]"),
    ),
    Case(
        "answerer",
        "questions: many bad rows",
        ("--skip_bad_rows",),
        {"train.json": d.holding(json.dumps(many_questions(30, question="")))},
        ("30", "train.json"),
        0,
    ),
    *(
        Case(job, "corpora", flags, {name: d.holding(content)}, (name,))
        for job, flag in (
            ("records", "input_file"),
            ("vocabulary", "input_file"),
            ("pretraining from text", "corpus_file"),
        )
        for name, content in (
            ("own.txt", "\n\n\n"),
            ("own.jsonl", '{"text": "a"}\n{\n'),
            ("own.jsonl", '{"words": "a"}\n'),
            ("own.jsonl", '{"text": 5}\n'),
            ("own.jsonl", json_lines({"text": "a"}) + f'{{"text": {DEEP}}}\n'),
            ("own.parquet", d.NOISE),
            ("own.parquet", b""),
            ("own.txt.gz", d.NOISE),
            ("own.txt.zst", d.NOISE),
            ("own.txt.bz2", d.NOISE),
        )
        for flags in ((f"--{flag}={name}",),)
    ),
    *(
        Case(
            job,
            "corpora",
            spoil={"corpus.txt": d.holding("good film\nbad plot\nthe film\n")},
            says=("corpus.txt",),
        )
        for job in ("records", "pretraining from text")
    ),
    *(
        Case(
            job,
            "questions to models",
            (f"--input_file={name}",),
            {name: d.holding(content)},
            (f"{name}:{line}",),
        )
        for job, name, content, line in (
            ("prediction", "own.jsonl", '{"text_a": "a"}\n{\n', 2),
            ("prediction", "own.jsonl", "5\n", 1),
            ("prediction", "own.jsonl", '{"words": "a"}\n', 1),
            ("prediction", "own.jsonl", '{"text_a": 5}\n', 1),
            ("prediction", "own.jsonl", '{"text_a": null}\n', 1),
            ("prediction", "own.jsonl", '{"text_a": {"b64": "!"}}\n', 1),
            ("prediction", "own.jsonl", '{"text_a": ["a"]}\n', 1),
            ("prediction", "own.jsonl", f'{{"text_a": {DEEP}}}\n', 1),
            ("prediction", "own.jsonl", f'{{"text_a": "a", "more": {DEEP}}}\n', 1),
            ("prediction", "own.tsv", "words\nx\n", 1),
            ("prediction", "own.tsv", "text_a\tid\nx\n", 2),
            ("prediction", "own.csv", 'text_a,id\n"x,1\n', 2),
            ("prediction of answers", "own.jsonl", '{"question": "who"}\n', 1),
            ("prediction of answers", "own.jsonl", '{"question": 1, "context": "a"}\n', 1),
            ("prediction of answers", "own.tsv", "question\nwho\n", 1),
        )
    ),
    Case(
        "prediction",
        "questions to models",
        ("--input_file=own.parquet",),
        {"own.parquet": d.binary},
        ("own.parquet",),
    ),
]
