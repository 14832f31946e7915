"""The exported model's answers against prediction's: two ways through the same parts."""

import functools
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from data import batching
from data.tasks.questions.answers import read_answers
from data.tasks.questions.rows import QuestionSettings, make_question_rows
from data.tasks.questions.squad import Question
from data.tasks.questions.windows import make_windows
from data.tokenization import Tokenizer
from modeling.answers.spans import SpanSearch, merge_span_arrays
from modeling.config import BertConfig
from modeling.models import BertQuestionAnswering
from modeling.serving.export import Export
from modeling.serving.question_answering import export_question_answering
from modeling.training.engine.evaluation import ReplicaPredictor

LETTERS = [*"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
ODD = ["漢", "字", "한", "각", "é", "e\u0301", "😀", "x", "ß", "...", "\u200b", "fed", "abcdefgh"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, "漢", "字", ".", "ᄒ", "##ᅡ", "##ᆫ"]
SETTINGS = {"max_seq_length": 24, "doc_stride": 7, "max_query_length": 6}
N_BEST = 6
LONGEST = 5
NOTHING = "\u200b \u0301"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def model() -> BertQuestionAnswering:
    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
        type_vocab_size=2,
    )
    model = BertQuestionAnswering(config)
    model.build()
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.7, variable.shape))
    return model


def text(draw: random.Random, words: int) -> str:
    parts = draw.choices([*"abcdefgh", *ODD], k=words)
    return "".join(part + draw.choice([" ", " ", "", "\u00a0", "\n"]) for part in parts)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    draw = random.Random(5)
    pairs = [(text(draw, draw.randrange(12)), text(draw, draw.randrange(1, 70))) for _ in range(60)]
    pairs += [("", "a b c"), ("", ""), ("a", ""), ("a", NOTHING), ("?" * 9, "漢"), ("a", " 한")]
    return [Question(str(n), *pair, (), False, f"f: {n}") for n, pair in enumerate(pairs)]


def predicted(models, tokenizer, questions, version_2):
    """As run_squad.py does it."""
    rows = make_question_rows(tokenizer, questions, QuestionSettings(**SETTINGS), training=False)
    predictor = ReplicaPredictor(SpanSearch(models, N_BEST, LONGEST), "spans")
    shape = batching.Batching(8, batching.batching_length_buckets(24))
    spans = predictor(batching.batches(rows.features, shape, False))
    return list(read_answers(questions, rows, merge_span_arrays(spans, rows.counts), version_2))


def exported(model, tokenizer, folder, version_2=False, threshold=0.0, max_windows=0):
    path = export_question_answering(
        model,
        Export(str(folder), {}),
        functools.partial(make_windows, tokenizer, **SETTINGS),
        n_best=N_BEST,
        max_answer_length=LONGEST,
        version_2=version_2,
        threshold=threshold,
        max_windows=max_windows,
    )
    return tf.saved_model.load(path)


def ask(loaded, questions, signature="serving_default") -> dict[str, np.ndarray]:
    asked = {
        name: tf.constant([getattr(question, name) for question in questions], tf.string)
        for name in ("question", "context")
    }
    return {name: value.numpy() for name, value in loaded.signatures[signature](**asked).items()}


@pytest.fixture(scope="module")
def first_version(model, tokenizer, tmp_path_factory):
    return exported(model, tokenizer, tmp_path_factory.mktemp("v1"))


def test_same_answers_as_prediction(first_version, model, tokenizer, questions):
    answered = predicted([model], tokenizer, questions, version_2=False)
    got = ask(first_version, questions)
    assert [answer.decode() for answer in got["answer"]] == [one.text() for one in answered]
    assert sum(one.text() == "" for one in answered) == 3
    assert len({one.text() for one in answered}) > 25
    for number, (question, one) in enumerate(zip(questions, answered, strict=True)):
        names = ("start", "end", "start_byte", "end_byte", "score", "probability")
        start, end, start_byte, end_byte, score, probability = (got[n][number] for n in names)
        if one.text() == "":
            assert (start, end, start_byte, end_byte) == (-1, -1, -1, -1)
            assert score == probability == 0
            continue
        best = one.candidates[0]
        assert (start, end) == (best.start, best.end)
        assert question.context[start:end] == best.text
        assert question.context.encode()[start_byte:end_byte].decode() == best.text
        assert score == pytest.approx(best.score, abs=1e-4)
        assert probability == pytest.approx(one.n_best()[0]["probability"], abs=1e-4)


def test_n_best_lists(first_version, model, tokenizer, questions):
    answered = predicted([model], tokenizer, questions, version_2=False)
    got = ask(first_version, questions, "n_best")
    assert got["answers"].shape == (len(questions), N_BEST)
    short = 0
    for number, one in enumerate(answered):
        wanted = [(c.text, c.start, c.end) for c in one.candidates if c.text]
        lacking = N_BEST - len(wanted)
        found = zip(
            (answer.decode() for answer in got["answers"][number]),
            got["starts"][number],
            got["ends"][number],
            strict=True,
        )
        assert list(found) == [*wanted, *([("", -1, -1)] * lacking)]
        shares = [entry["probability"] for entry in one.n_best()] if wanted else []
        np.testing.assert_allclose(
            got["probabilities"][number], [*shares, *([0.0] * lacking)], atol=1e-4
        )
        context = one.question.context.encode()
        places = zip(got["start_bytes"][number], got["end_bytes"][number], strict=True)
        texts = [context[max(a, 0) : max(b, 0)] for a, b in places]
        assert texts == got["answers"][number].tolist()
        short += lacking > 0
    assert short > 3


def test_any_batch(first_version, questions):
    together = ask(first_version, questions)
    some = [*range(0, 60, 15), *range(60, len(questions))]
    for number in some:
        alone = ask(first_version, questions[number : number + 1])
        for name, value in alone.items():
            if value.dtype == np.float32:
                np.testing.assert_allclose(value[0], together[name][number], atol=1e-4)
            else:
                assert value[0] == together[name][number], (number, name)


def test_bytes_that_are_not_utf8(first_version, questions):
    broken = [b"\xff\xfe\xff", b"a \xe4\xbd b\xff c \xe6\xbc\xa2", b"\x80a\xcc b \xed\xa0\x80 d"]
    contexts = [*broken, *(question.context.encode() for question in questions[:4])]
    asked = [b"a\xff", b"\xc3", b"b", *(question.question.encode() for question in questions[:4])]
    arguments = {"question": tf.constant(asked), "context": tf.constant(contexts)}
    for signature in ("serving_default", "n_best"):
        got = {k: v.numpy() for k, v in first_version.signatures[signature](**arguments).items()}
        ends = "s" if signature == "n_best" else ""
        parts = [got[f"answer{ends}"], got[f"start_byte{ends}"], got[f"end_byte{ends}"]]
        answers, starts, stops = (np.reshape(part, [len(contexts), -1]) for part in parts)
        for row, context in enumerate(contexts):
            for answer, start, stop in zip(answers[row], starts[row], stops[row], strict=True):
                assert answer == (context[start:stop] if start >= 0 else b"")
        assert answers[1, 0] and answers[2, 0]
    got = first_version.signatures["serving_default"](**arguments)["answer"].numpy()[3:]
    assert got.tolist() == ask(first_version, questions[:4])["answer"].tolist()


@pytest.mark.slow
def test_thresholds(model, tokenizer, questions, tmp_path):
    answered = predicted([model], tokenizer, questions, version_2=True)
    odds = sorted(one.null_odds for one in answered if one.null_odds < 1e8)
    # In the middle of the widest gap about half-way, which rounding can't reach.
    low, high = max(itertools.pairwise(odds[20:45]), key=lambda pair: pair[1] - pair[0])
    threshold = (low + high) / 2
    loaded = exported(model, tokenizer, tmp_path, True, threshold)
    got = ask(loaded, questions)
    wanted = [one.text(threshold) for one in answered]
    assert [answer.decode() for answer in got["answer"]] == wanted
    assert 15 < wanted.count("") < 55
    for number, one in enumerate(answered):
        null = next(c for c in one.candidates if not c.text)
        assert got["null_score"][number] == pytest.approx(null.score, abs=1e-4)
        if not wanted[number]:
            assert got["start"][number] == got["end_byte"][number] == -1
            assert got["score"][number] == got["probability"][number] == 0
    # n_best has them whatever the null score, which is among the probabilities' sum.
    several = ask(loaded, questions, "n_best")
    for number, one in enumerate(answered):
        texts = [candidate.text for candidate in one.candidates if candidate.text]
        found = [answer.decode() for answer in several["answers"][number]]
        assert found == texts + [""] * (N_BEST - len(texts))
        shares = [entry["probability"] for entry in one.n_best() if entry["text"]]
        np.testing.assert_allclose(
            several["probabilities"][number], shares + [0] * (N_BEST - len(shares)), atol=1e-4
        )


class Fixed:
    """In place of a model: the same logits for every row, [CLS] [SEP] a [SEP]."""

    weights = ()

    def __init__(self, start, end):
        self.logits = tf.constant([start, end], tf.float32)

    def __call__(self, batch, **_):
        rows = tf.shape(batch["input_ids"])[0]
        start, end = (tf.tile(logits[tf.newaxis], [rows, 1]) for logits in tf.unstack(self.logits))
        return {"start_logits": start, "end_logits": end}


def test_no_question_at_all(first_version):
    for signature in ("serving_default", "n_best"):
        got = ask(first_version, [], signature)
        assert {len(value) for value in got.values()} == {0}


@pytest.mark.slow
def test_odds_that_float32_calls_equal_to_the_threshold(tokenizer, tmp_path):
    little = 2.0**-20
    fixed = Fixed([16.0, 0.0, 1.0, 0.0], [little, 0.0, 1.0, 0.0])
    one = [Question("0", "", "a", (), False, "f")]
    rows = make_question_rows(tokenizer, one, QuestionSettings(**SETTINGS), training=False)
    spans = SpanSearch([fixed], N_BEST, LONGEST)(
        {
            "input_ids": tf.constant([rows.features.ids]),
            "input_mask": tf.ones([1, 4], tf.int32),
            "segment_ids": tf.constant([[0, 0, 1, 1]]),
            "start_range": tf.constant(rows.features.extra["start_range"]),
        }
    )["spans"]
    merged = merge_span_arrays(spans.numpy(), rows.counts)
    answered = next(read_answers(one, rows, merged, True))
    assert answered.null_odds == 14 + little and np.float32(14 + little - 14) == little
    for threshold, answer in ((14.0, ""), (14 + little, "a")):
        assert answered.text(threshold) == answer
        loaded = exported(fixed, tokenizer, tmp_path, True, threshold)
        assert ask(loaded, one)["answer"].tolist() == [answer.encode()]


@pytest.mark.slow
def test_too_long_a_context_is_refused(model, tokenizer, tmp_path):
    loaded = exported(model, tokenizer, tmp_path, max_windows=3)
    # A question of one piece: windows of 24 - 4 pieces, 7 apart.
    for words, fits in ((34, True), (35, False)):
        asked = {
            "question": tf.constant(["a", "a"]),
            "context": tf.constant(["b", " ".join(["b"] * words)]),
        }
        for name in ("serving_default", "n_best"):
            if fits:
                loaded.signatures[name](**asked)
                continue
            with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                loaded.signatures[name](**asked)
            for part in ("A context makes", "4", "3 at most", "--export_max_windows"):
                assert part in str(raised.value)
