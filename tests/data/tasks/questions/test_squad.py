"""SQuAD-format files: what is read, which answers are found again, and what is refused."""

import gzip
import json
import logging
import types

import pytest

from data.errors import DataError
from data.files.bad_rows import BadRows
from data.tasks.questions.reading import read_to_answer, tell_question_lengths
from data.tasks.questions.rows import QuestionSettings
from data.tasks.questions.squad import Answer, Question, _locate, read_squad
from data.tokenization import Tokenizer

CONTEXT = "Ada met Bob. Bob met\u00a0 Cleo in 𝔓aris."


def qa(**changes):
    fields = {"id": "q", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    return {name: value for name, value in (fields | changes).items() if value is not None}


def squad(*questions, context=CONTEXT, title="T"):
    return {
        "version": "1.1",
        "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}],
    }


def write(tmp_path, content, name="x.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(path)


def read(tmp_path, content, **options):
    return read_squad(write(tmp_path, content), **{"training": True, **options})


def refused(tmp_path, content, match, **options):
    with pytest.raises(DataError, match=match) as caught:
        read(tmp_path, content, **options)
    return str(caught.value)


def with_answers(*answers):
    """A question whose answers are (text, start)."""
    return qa(answers=[{"text": text, "answer_start": start} for text, start in answers])


def test_places_and_numbers(tmp_path):
    content = squad(qa(), qa(id=7, question="?!"))
    content["data"][0]["paragraphs"].append({"context": CONTEXT, "qas": [qa(id="r")]})
    # CMRC 2018 has ids in articles and paragraphs besides; titles may be absent.
    content["data"].append({"id": "D", "paragraphs": [{"context": "Ada", "qas": [qa(id="s")]}]})
    path = write(tmp_path, content)
    questions = read_squad(path, training=True)
    assert questions[0] == Question(
        "q", "Who?", CONTEXT, (Answer("Ada", 0),), False,
        f"{path}: data[0].paragraphs[0].qas[0]", "T", 0,
    )  # fmt: skip
    assert [q.id for q in questions] == ["q", "7", "r", "s"]
    assert [q.paragraph for q in questions] == [0, 0, 1, 2]
    assert questions[3].title == "" and questions[3].source.endswith("data[1].paragraphs[0].qas[0]")
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(content).encode()))
    assert [q.id for q in read_squad(str(packed), training=False)] == ["q", "7", "r", "s"]


@pytest.mark.parametrize(
    "text, start, found",
    [
        ("Bob", 8, "Bob@8"),
        ("Bob", 13, "Bob@13"),
        ("Bob", 9, None),  # twice in the context
        ("Bob", -1, None),
        ("Ada", -1, "Ada@0"),  # not from the end, as a slice would
        ("𝔓aris", 30, "𝔓aris@30"),
        ("𝔓aris", 31, "𝔓aris@30"),
        ("𝔓aris.", 10**30, "𝔓aris.@30"),
        ("Dan", 0, None),
        ("met Cleo", 17, "met\u00a0 Cleo@17"),
        ("met Cleo", 0, "met\u00a0 Cleo@17"),
        ("met\nBob", 3, "met Bob@4"),  # starts a blank early
        ("  Cleo\tin", 20, "Cleo in@22"),
        ("ada", 0, None),
    ],
)
def test_answers_are_found_again(tmp_path, caplog, text, start, found):
    """The other question is there so that one is left."""
    content = squad(with_answers((text, start)), qa(id="other"))
    with caplog.at_level(logging.WARNING, "absl"):
        questions = read(tmp_path, content)
    assert [q.id for q in questions] == (["q", "other"] if found else ["other"])
    if found:
        (answer,) = questions[0].answers
        assert f"{answer.text}@{answer.start}" == found
        assert CONTEXT[answer.start :].startswith(answer.text)
        moved = "1 answers aren't at their answer_start as written and were found: data[0]."
        assert (moved in caplog.text) == ((answer.text, answer.start) != (text, start))
    else:
        assert "1 questions of 2 dropped" in caplog.text
        assert "data[0].paragraphs[0].qas[0].answers[0]" in caplog.text
    # For evaluation they are as in the file.
    (first, _) = read(tmp_path, content, training=False)
    assert first.answers == (Answer(text, start),)


def test_overlapping_occurrences_are_several():
    assert _locate("xanana", "ana", 5) is None
    assert _locate("a  b a\tb", "a b", 1) is None
    assert _locate("a  b a\tb", "a b", 5) == (5, 8)
    assert _locate("a  b a b", "a b", 2) == (5, 8)


def test_several_answers(tmp_path, caplog):
    content = squad(with_answers(("Dan", 0), ("Cleo", 0), ("Ada", 0)))
    with caplog.at_level(logging.WARNING, "absl"):
        (question,) = read(tmp_path, content)
    assert question.answers == (Answer("Cleo", 22), Answer("Ada", 0))
    assert "1 answers aren't at their answer_start, and nowhere else" in caplog.text
    assert "dropped" not in caplog.text


def test_many_are_counted_and_some_shown(tmp_path, caplog):
    questions = [qa(id=str(n), answers=[{"text": "Dan", "answer_start": n}]) for n in range(20)]
    with caplog.at_level(logging.WARNING, "absl"):
        read(tmp_path, squad(*questions, qa()))
    assert "20 questions of 21 dropped" in caplog.text
    assert "qas[4] and 15 more" in caplog.text and "qas[5]" not in caplog.text
    refused(tmp_path, squad(*questions), "none of its questions can be trained on")


def test_unanswerable_questions(tmp_path, caplog):
    impossible = qa(id="no", answers=[], is_impossible=True)
    content = squad(qa(is_impossible=False), impossible)
    for version_2 in (True, None):
        questions = read(tmp_path, content, version_2=version_2)
        assert [(q.is_impossible, len(q.answers)) for q in questions] == [(False, 1), (True, 0)]
    message = refused(tmp_path, content, "--version_2_with_negative", version_2=False)
    assert "qas[1]: this question is unanswerable, one of 1 among 2" in message
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "absl"):
        assert len(read(tmp_path, content, version_2=False, training=False)) == 2
    assert "can be predicted on, but not evaluated" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "absl"):
        for training in (True, False):
            assert len(read(tmp_path, squad(qa()), version_2=True, training=training)) == 1
        assert len(read(tmp_path, squad(qa()), version_2=False)) == 1
    assert caplog.text.count("all 1 questions are answerable, as in SQuAD 1.1") == 2


def test_marks_of_unanswerable_questions(tmp_path, caplog):
    unmarked = qa(answers=[])
    assert read(tmp_path, squad(unmarked))[0].is_impossible
    other = qa(id="other")
    assert read(tmp_path, squad(unmarked, other), training=False)[0].is_impossible
    marked = qa(id="other", answers=[], is_impossible=True)
    assert read(tmp_path, squad(unmarked, marked), training=False)[0].is_impossible
    # Where there is none at all, empty lists are in place of answers that nobody has given.
    assert not read(tmp_path, squad(unmarked), training=False)[0].is_impossible
    refused(tmp_path, squad(unmarked), "version_2_with_negative", version_2=False)
    refused(
        tmp_path, squad(qa(answers=[], is_impossible=False)), r"qas\[0\]: .*no answer, and is_imp"
    )
    blank = qa(answers=[{"text": "", "answer_start": -1}], is_impossible=True)
    for training in (True, False):
        assert read(tmp_path, squad(blank), training=training)[0].answers == ()
    both = squad(qa(is_impossible=True))
    with caplog.at_level(logging.WARNING, "absl"):
        assert read(tmp_path, both)[0].answers == ()
    assert "1 questions are marked as unanswerable: their answers aren't used" in caplog.text
    assert read(tmp_path, both, training=False)[0].answers == (Answer("Ada", 0),)


def test_files_without_answers_are_for_prediction(tmp_path, caplog):
    content = squad(qa(answers=None))
    for unknown in (content, squad(qa(answers=[]))):
        read(tmp_path, unknown, training=False, version_2=True)
    assert "are answerable" not in caplog.text
    (question,) = read(tmp_path, content, training=False, version_2=False)
    assert question.answers == () and not question.is_impossible
    refused(
        tmp_path, content, r"qas\[0\]: the key 'answers' is missing; there are 'id', 'question'"
    )
    content = squad(qa(answers=[{"text": "Ada"}]))
    assert read(tmp_path, content, training=False)[0].answers == (Answer("Ada", -1),)
    refused(tmp_path, content, r"qas\[0\].answers\[0\]: the key 'answer_start' is missing")


def test_same_question_about_several_contexts(tmp_path):
    """As TriviaQA is converted: a paragraph for each document of a question."""
    articles = [
        {"paragraphs": [{"context": f"Ada {n}", "qas": [qa(id=f"{name}--{n}", question=name)]}]}
        for name in ("q1", "q2")
        for n in range(3)
    ]
    content = {"data": articles}
    assert len(read(tmp_path, content)) == 6
    questions = read(tmp_path, content, max_contexts=2)
    assert [q.id for q in questions] == ["q1--0", "q1--1", "q2--0", "q2--1"]
    assert [q.paragraph for q in questions] == [0, 1, 3, 4]
    articles[2]["paragraphs"][0]["qas"][0]["id"] = "q1--0"
    refused(tmp_path, content, r"data\[2\].*'q1--0' occurs twice", max_contexts=2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "content, match",
    [
        ([], r"x\.json: expected an object, found \[\]"),
        ({"version": "1"}, r"x\.json: the key 'data' is missing; there are 'version'"),
        ({}, "the key 'data' is missing; there are none"),
        ({"data": {}}, r"x\.json: expected an array as 'data', found {}"),
        ({"data": []}, r"x\.json has no questions"),
        ({"data": ["T"]}, r"x\.json: data\[0\]: expected an object, found 'T'"),
        ({"data": [{"title": "T"}]}, r"data\[0\]: the key 'paragraphs' is missing"),
        ({"data": [{"title": 1, "paragraphs": []}]}, r"data\[0\]: expected a text as 'title'"),
        (squad(), "has no questions"),
        (squad(qa(), context=" \n"), r"data\[0\]\.paragraphs\[0\]: the context is empty"),
        (squad(qa(), context=None), "expected a text as 'context', found null"),
        (squad(qa(), qa(id=None)), r"qas\[1\]: the key 'id' is missing"),
        (squad(qa(id=1.5)), r"qas\[0\]: expected a text as 'id', found 1\.5"),
        (squad(qa(id=True)), "expected a text as 'id', found true"),
        (squad(qa(question=None)), "the key 'question' is missing"),
        (squad(qa(question=" ")), r"qas\[0\]: the question is empty"),
        (squad(qa(is_impossible="false")), "expected true or false as 'is_impossible', found"),
        (squad(qa(answers={"text": ["Ada"]})), "expected an array as 'answers'"),
        (squad(qa(answers=["Ada"])), r"answers\[0\]: expected an object"),
        (squad(qa(answers=[{"answer_start": 0}])), r"answers\[0\]: the key 'text' is missing"),
        (squad(with_answers(("Ada", 0), (" ", 3))), r"answers\[1\]: the answer's text is empty"),
        (squad(with_answers(("Ada", True))), "expected an integer as 'answer_start', found true"),
        (squad(with_answers(("Ada", "0"))), "expected an integer as 'answer_start', found '0'"),
    ],
)
def test_files_that_are_refused(tmp_path, content, match, training):
    message = refused(tmp_path, content, match, training=training)
    assert message.startswith(str(tmp_path / "x.json"))


def test_ids_that_occur_twice(tmp_path):
    message = refused(tmp_path, squad(qa(), qa(id="r"), qa(question="And?")), "'q' occurs twice")
    assert "qas[2]: the id" in message and "qas[0]. Predictions" in message


def test_names_that_occur_twice(tmp_path):
    path = write(tmp_path, '{"data": [{"paragraphs": [{"context": "a", "context": "b"}]}]}')
    with pytest.raises(DataError, match="the name 'context' occurs twice in one object"):
        read_squad(path, training=False)


def test_broken_json(tmp_path):
    text = json.dumps(squad(qa()), indent=1)
    lines = text.split("\n")
    broken = next(n for n, line in enumerate(lines) if '"question"' in line)
    lines[broken] = lines[broken].replace(":", " ")
    column = lines[broken].index('"Who?"') + 1
    message = refused(tmp_path, "\n".join(lines), "isn't JSON")
    assert f"x.json:{broken + 1}:{column}: " in message and "Who?" in message
    last = text.count("\n", 0, len(text) - 20) + 1
    refused(tmp_path, text[:-20], rf"x\.json:{last}:\d+: the file isn't JSON")
    refused(tmp_path, "", r"x\.json:1:1: ")
    refused(tmp_path, '{"data": []}\n{"data": []}', r"x\.json:2:1: .*not one per line")
    refused(tmp_path, "[" * 100_000, "x.json: the file isn't JSON")
    with pytest.raises(DataError, match=r"none\.json can't be read"):
        read_squad(str(tmp_path / "none.json"), training=True)


def test_halves_of_surrogate_pairs(tmp_path):
    content = squad(with_answers(("x\ud800", 1)), context="\U0001f600x\ud800 y\U0001f600")
    (question,) = read(tmp_path, content)
    assert question.context == "\U0001f600x\ufffd y\U0001f600"
    assert question.answers == (Answer("x\ufffd", 1),)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_verbose_logging_names_every_answer_that_is_elsewhere(tmp_path, caplog, level):
    """--verbose_logging is that level; without it a few are named."""
    caplog.set_level(level, "absl")
    asked = [qa(id=str(n), answers=[{"text": "far", "answer_start": 0}]) for n in range(30)]
    read(tmp_path, squad(*asked, context="not here but far"))
    named = [f"qas[{n}]" in caplog.text for n in range(30)]
    assert named[0] and all(named) == (level == logging.DEBUG)


def test_context_of_a_hundred_thousand_words(tmp_path):
    context = "word  " * 100_000 + "needle in\na haystack"
    texts = [("needle in a", 0), ("word", 6), ("word", 5), ("word word", -1), ("nowhere here", 9)]
    questions = [
        qa(id=str(n), answers=[{"text": text, "answer_start": start}])
        for n, (text, start) in enumerate(texts * 10)
    ]
    read_ones = read(tmp_path, squad(*questions, context=context))
    assert [q.answers[0].start for q in read_ones[:3]] == [600_000, 6, 6]
    assert len(read_ones) == 30 and read_ones[0].answers[0].text == "needle in\na"


def test_real_dev_files(shared_data, caplog):
    folder = shared_data / "squad"
    for name, version_2, count, impossible, titles in (
        ("dev-v1.1.json", False, 10_570, 0, 48),
        ("dev-v2.0.json", True, 11_873, 5_945, 35),
    ):
        for training in (False, True):
            questions = read_squad(str(folder / name), version_2=version_2, training=training)
            assert len(questions) == count
            assert sum(q.is_impossible for q in questions) == impossible
            assert sum(not q.answers for q in questions) == impossible
            assert len({q.title for q in questions}) == titles
            contexts = {q.paragraph: q.context for q in questions}
            assert all(q.context is contexts[q.paragraph] for q in questions)
            for q in questions:
                assert all(q.context[a.start :].startswith(a.text) for a in q.answers)
    assert not caplog.records
    with pytest.raises(DataError, match="one of 5945 among 11873 in the file"):
        read_squad(str(folder / "dev-v2.0.json"), version_2=False, training=True)


@pytest.mark.hours
@pytest.mark.slow
def test_real_training_file(shared_data, caplog):
    path = str(shared_data / "squad/train-v1.1.json")
    questions = read_squad(path, version_2=False, training=True)
    assert len(questions) == 87_599 and not caplog.records
    assert all(q.context[q.answers[0].start :].startswith(q.answers[0].text) for q in questions)
    # Were every offset unknown, those answers would be placed that occur once.
    found = [_locate(q.context, q.answers[0].text, -1) for q in questions]
    once = [_occurrences(q.context, q.answers[0].text) == 1 for q in questions]
    assert [span is not None for span in found] == once
    pairs = zip(questions, found, strict=True)
    assert all(span[0] == q.answers[0].start for q, span in pairs if span)
    assert sum(once) == 78_161


def _occurrences(context, text):
    return sum(context.startswith(text, n) for n in range(len(context)))


def test_golden_files(golden, caplog):
    with caplog.at_level(logging.WARNING, "absl"):
        path = str(golden / "squad/synth_v1.json")
        questions = read_squad(path, version_2=False, training=True)
    assert len(questions) == 59 and "1 questions of 60 dropped" in caplog.text
    assert len(read_squad(path, version_2=False, training=False)) == 60
    version_2 = read_squad(str(golden / "squad/synth_v2.json"), version_2=True, training=True)
    assert len(version_2) == 60 and sum(q.is_impossible for q in version_2) == 12


def test_bad_questions_are_told_together_or_left_out(tmp_path, caplog):
    """As the published trial file of CMRC 2018, which has two empty questions."""
    content = squad(*(qa(id=str(n), question="" if n in (1, 3) else "Who?") for n in range(6)))
    for training in (True, False):
        message = refused(tmp_path, content, "the question is empty", training=training)
        for part in ("qas[1]: the question is empty", "The same at", "qas[3]", "2 of 6 questions"):
            assert part in message
        bad_rows = BadRows(skip=True)
        questions = read(tmp_path, content, training=training, bad_rows=bad_rows)
        assert [question.id for question in questions] == ["0", "2", "4", "5"]
        assert bad_rows.skipped == {str(tmp_path / "x.json"): 2}
    assert "Left out 2 of 6 questions" in caplog.text
    # All questions of an empty context, one that isn't an object, and an id that occurs twice.
    content["data"][0]["paragraphs"] += [
        {"context": " ", "qas": [qa(id="a"), qa(id="b")]},
        {
            "context": CONTEXT,
            "qas": [7, qa(id="5"), qa(id="c"), qa(id="d"), qa(id="e"), qa(id="f")],
        },
    ]
    message = refused(tmp_path, content, "the question is empty")
    for part in ("paragraphs[1]: the context", "2].qas[0]: expected an object", "occurs twice"):
        assert part in message
    assert "6 of 14 questions" in message
    questions = read(tmp_path, content, bad_rows=BadRows(skip=True))
    assert [question.id for question in questions] == [*"0245", *"cdef"]
    assert {question.paragraph for question in questions} == {0, 2}


def test_what_is_left_out_is_said_with_the_score(tmp_path):
    content = squad(qa(id="a"), qa(id="b", question=" "), qa(id="c"))
    values = {"predict_file": write(tmp_path, content), "version_2_with_negative": False}
    values |= {"max_seq_length": 16, "doc_stride": 4, "max_query_length": 4}
    values |= {"max_eval_examples": 0}
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    split = read_to_answer(types.SimpleNamespace(**values, skip_bad_rows=True), "test", tokenizer)
    assert split.left_out == {"skipped_rows": 1}
    whole = squad(qa(id="a"), qa(id="c"))
    values["predict_file"] = write(tmp_path, whole, "y.json")
    good = read_to_answer(types.SimpleNamespace(**values, skip_bad_rows=False), "test", tokenizer)
    assert good.left_out == {} and good.fingerprint == split.fingerprint
    values["max_eval_examples"] = 1
    first = read_to_answer(types.SimpleNamespace(**values, skip_bad_rows=False), "test", tokenizer)
    assert [question.id for question in first.examples] == ["a"]
    assert first.fingerprint != good.fingerprint


def test_how_long_they_are_is_said(tmp_path, caplog):
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    questions = [
        Question(str(n), "a " * n, "a " * (10 if n % 2 else 40), (), True, f"f:{n}")
        for n in range(1, 9)
    ]
    settings = QuestionSettings(24, 4, 6)
    tell_question_lengths("x.json", tokenizer, questions, settings, 32)
    assert "x.json: 2 of 8 questions are cut" in caplog.text
    assert "--max_query_length=16 would hold 100.0 % of them" in caplog.text
    # Questions with [CLS] and two [SEP], and 40 pieces.
    assert "4 of 8 questions with their contexts are read in several windows" in caplog.text
    assert "--doc_stride=4 apart, since" in caplog.text and "longest has 49 pieces" in caplog.text
    assert "--max_seq_length=32, the most that the model takes, would hold 50.0 %" in caplog.text
