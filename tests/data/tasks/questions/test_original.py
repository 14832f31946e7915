"""Features, predictions and files of SQuAD compared with those of the original release."""

import json
import tracemalloc
import types

import numpy as np
import pytest

from data.errors import DataError
from data.tasks.questions import (
    original as squad_original,
)
from data.tasks.questions import (
    original_answers as squad_original_answers,
)
from data.tasks.questions.answers import AnswerFiles
from data.tasks.questions.original import build_squad_features, read_squad_examples
from data.tasks.questions.original_answers import (
    NO_ANSWER_ODDS,
    OriginalSettings,
    _BasicWords,
    _best_indexes,
    final_answer_text,
    predict_as_original,
)
from data.tasks.questions.reading import read_training_questions
from data.tasks.questions.squad import Answer, Question, read_squad
from data.tokenization.tokenizer import Tokenizer

LENGTHS = {"max_seq_length": 96, "doc_stride": 32, "max_query_length": 24}


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return Tokenizer(str(shared_data / "vocab/bert-uncased-en/vocab.txt"))


@pytest.fixture(scope="module")
def words():
    """A tokenizer whose pieces are single letters."""
    pieces = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return Tokenizer.from_vocab([*special, *pieces, *(f"##{piece}" for piece in pieces)])


def _load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def _questions(golden, version):
    return read_squad(str(golden / f"squad/synth_{version}.json"), training=False)


def _question(context, *answers, question="q", is_impossible=False, name="id"):
    return Question(
        id=name,
        question=question,
        context=context,
        answers=tuple(Answer(*answer) for answer in answers),
        is_impossible=is_impossible,
        source="dev.json",
    )


def _as_golden(feature):
    first = feature.segment_b_start
    return {
        "unique_id": feature.unique_id,
        "example_index": feature.example_index,
        "doc_span_index": feature.doc_span_index,
        "tokens": list(feature.tokens),
        "token_to_orig_map": [
            [first + number, word] for number, word in enumerate(feature.token_to_orig_map.tolist())
        ],
        "token_is_max_context": [int(best) for best in feature.token_is_max_context],
        "input_ids": feature.input_ids.tolist(),
        "num_tokens": feature.num_tokens,
        "segment_b_start": first,
        "padded_length": feature.padded_length,
        "start_position": feature.start_position,
        "end_position": feature.end_position,
        "is_impossible": feature.is_impossible,
    }


# Chunks of one example, of some, of all.
@pytest.mark.parametrize("chunk_words", [0, 700, 100_000])
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_features(golden, tokenizer, monkeypatch, version, is_training, chunk_words):
    monkeypatch.setattr(squad_original, "_CHUNK_WORDS", chunk_words)
    purpose = "train" if is_training else "predict"
    expected = _load(golden / f"squad/features_{version}_{purpose}.json")
    assert expected["params"] == LENGTHS
    examples = read_squad_examples(_questions(golden, version), is_training, version == "v2")
    found = [
        {
            "qas_id": example.id,
            "question_text": example.question,
            "doc_tokens": example.doc_tokens,
            "orig_answer_text": example.answer,
            "start_position": example.start_position,
            "end_position": example.end_position,
            "is_impossible": example.is_impossible,
        }
        for example in examples
    ]
    assert found == expected["examples"]
    features = list(build_squad_features(examples, tokenizer, is_training, **LENGTHS))
    assert [_as_golden(feature) for feature in features] == expected["features"]


@pytest.fixture(scope="module")
def windows(golden, tokenizer):
    """Examples to predict, their features, and the logits that were made up for them."""
    examples = read_squad_examples(_questions(golden, "v2"), False, True)
    features = list(build_squad_features(examples, tokenizer, False, **LENGTHS))
    with np.load(golden / "squad/logits.npz") as file:
        logits = dict(file)
    assert logits.pop("unique_ids").tolist() == [feature.unique_id for feature in features]
    return examples, features, logits


@pytest.mark.parametrize(
    ("folder", "ties", "settings"),
    [
        ("pred_v1", "", OriginalSettings()),
        ("pred_v1_ties", "_ties", OriginalSettings()),
        ("pred_v1_nbest3_len5", "", OriginalSettings(3, 5)),
        ("pred_v2", "", OriginalSettings(version_2_with_negative=True)),
        ("pred_v2_ties", "_ties", OriginalSettings(version_2_with_negative=True)),
        ("pred_v2_thr+5", "", OriginalSettings(20, 30, True, 5.0)),
        ("pred_v2_thr-3", "", OriginalSettings(20, 30, True, -3.0)),
    ],
)
def test_predictions(golden, tokenizer, windows, tmp_path, folder, ties, settings):
    examples, features, logits = windows
    triples = zip(features, logits["start" + ties], logits["end" + ties], strict=True)
    predictions = list(predict_as_original(examples, triples, tokenizer, settings))
    version_2 = settings.version_2_with_negative
    with AnswerFiles(str(tmp_path), version_2) as files:
        for one in predictions:
            files.add(one.id, one.n_best(), one.best_text, one.null_odds or 0.0)
        texts = files.finish(settings.null_score_diff_threshold)
    odds = files.null_odds
    expected = sorted((golden / "squad" / folder).iterdir())
    assert [path.name for path in expected] == sorted(path.name for path in tmp_path.iterdir())
    assert texts == {prediction.id: prediction.text for prediction in predictions}
    for path in expected:
        written, wanted = _load(tmp_path / path.name), _load(path)
        if path.name == "nbest_predictions.json":
            assert list(written) == list(wanted)
            for name, nbest in wanted.items():
                assert [list(entry) for entry in written[name]] == [list(e) for e in nbest]
                assert [entry.pop("text") for entry in written[name]] == [
                    entry.pop("text") for entry in nbest
                ]
                assert np.array([list(entry.values()) for entry in written[name]]) == (
                    pytest.approx(np.array([list(e.values()) for e in nbest]), rel=0, abs=1e-6)
                )
        elif path.name == "null_odds.json":
            assert written == odds == pytest.approx(wanted, rel=0, abs=1e-6)
            assert list(written) == list(wanted)
        else:
            assert list(written.items()) == list(wanted.items())
        # Exponentials may differ in the last digit elsewhere; all else is the same to the byte.
        if path.name != "nbest_predictions.json":
            assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_final_text(golden, tokenizer):
    cased = Tokenizer.from_vocab(tokenizer.vocab, do_lower_case=False)
    basics = {True: _BasicWords(tokenizer), False: _BasicWords(cased)}
    for predicted, original, lower, expected in _load(golden / "squad/get_final_text.json"):
        basic = basics[lower].join(original.split(" "))
        assert final_answer_text(predicted, original, basic) == expected, (
            predicted,
            original,
            lower,
        )
    for predicted, original, expected in _load(golden / "squad/get_final_text_spans.json"):
        assert (
            final_answer_text(predicted, original, basics[True].join(original.split(" ")))
            == expected
        )


def test_basic_words_are_those_of_the_whole_text(golden, tokenizer, monkeypatch):
    monkeypatch.setattr(squad_original_answers, "_REMEMBERED", 50)
    basic = _BasicWords(tokenizer)
    for example in read_squad_examples(_questions(golden, "v1"), False, False):
        whole = " ".join(example.doc_tokens)
        expected = [word.decode() for word in tokenizer.split_words(whole).numpy()]
        assert basic.join(example.doc_tokens) == " ".join(expected)
    assert basic.join(["a", "\u200b", "b.", "\ud800"]) == "a b ."
    assert basic.join([]) == ""


def test_best_indexes(golden):
    for logits, expected, count in _load(golden / "squad/get_best_indexes.json"):
        assert _best_indexes(logits, count).tolist() == expected
    # Python's own sort is stable as well.
    logits = np.random.default_rng(0).integers(-9, 9, (20, 300)).astype(np.float32)
    for row, found in zip(logits.tolist(), _best_indexes(logits, 20).tolist(), strict=True):
        assert found == sorted(range(300), key=row.__getitem__, reverse=True)[:20]


def test_training_answers_by_words():
    context = " ab\u00a0cd\u202fef gh."
    for answer, start, end in (
        (("ef", 7), 1, 1),
        (("f g", 8), 1, 2),  # parts of words
        (("h", 11), 2, 2),
        ((" ef", 6), 0, 1),  # white space belongs to the word before it
        (("f", 7), 1, 1),  # not quite the place, but the word around it
        (("", 0), -1, 2),  # no word before it; its last character is the context's last
    ):
        (example,) = read_squad_examples([_question(context, answer)], True, False)
        assert (example.start_position, example.end_position) == (start, end)
        assert example.doc_tokens == ["ab\u00a0cd", "ef", "gh."]
    left_out = [
        ("gh", 7),
        ("ab\u00a0cd", 1),  # the answer is split at U+00A0, the context is not
        ("ef", 1),
        ("ef", 100),
        ("gh. and more", 10),
    ]
    answers = [*left_out, ("ab", 1)]
    examples = read_squad_examples([_question(context, answer) for answer in answers], True, False)
    assert [example.answer for example in examples] == ["ab"]
    for empty in ("", " \n"):
        assert not read_squad_examples([_question(empty, (" ", 0))], True, False)


def test_answers_are_narrowed_to_their_pieces(words):
    context = "x (ab-c) japanese ab"
    for answer, expected in (
        (("ab", 3), "a ##b"),
        (("c", 6), "c"),
        (("japan", 9), "j ##a ##p ##a ##n"),
        (("ese", 14), "j ##a ##p ##a ##n ##e ##s ##e"),  # no such pieces: the whole word
        (("ab", 18), "a ##b"),
    ):
        examples = read_squad_examples([_question(context, answer)], True, False)
        (feature,) = build_squad_features(examples, words, True, 64, 8, 8)
        found = feature.tokens[feature.start_position : feature.end_position + 1]
        assert " ".join(found) == expected
        word = feature.token_to_orig_map[feature.start_position - feature.segment_b_start]
        assert word == context.count(" ", 0, answer[1])


def test_what_training_needs():
    read_squad_examples([_question("a b")], False, False)
    with pytest.raises(DataError, match=r"dev.json: question id has 0 answers.*--version_2"):
        read_squad_examples([_question("a b", is_impossible=True)], True, False)
    with pytest.raises(DataError, match="has 2 answers"):
        read_squad_examples([_question("a b", ("a", 0), ("b", 2))], True, True)
    (example,) = read_squad_examples([_question("a b", is_impossible=True)], True, True)
    assert (example.start_position, example.end_position, example.answer) == (-1, -1, "")


def training_splits(folder, tokenizer, context, answer, **given):
    """Of three questions about a context, the answer to all of which begins at `answer`."""
    answers = [{"text": "h", "answer_start": answer}]
    questions = [{"id": str(n), "question": "c", "answers": answers} for n in range(3)]
    path = folder / "train.json"
    content = {"context": context, "qas": questions}
    path.write_text(json.dumps({"data": [{"paragraphs": [content]}]}), "utf-8")
    values = {"version_2_with_negative": False, "original_postprocessing": True}
    values |= {"max_seq_length": 16, "doc_stride": 4, "max_query_length": 4, "max_contexts": 0}
    values |= {"train_file": [str(path)], "num_train_epochs": [1.0], "max_train_examples": 0}
    values |= {"epochs_per_file": [], "skip_bad_rows": False, "original_step_count": True}
    return read_training_questions(types.SimpleNamespace(**values | given), tokenizer)


def test_nothing_to_train_on_is_told(tmp_path, words):
    with pytest.raises(DataError, match=r"train.json: none of its 3 questions can be trained on"):
        training_splits(tmp_path, words, "a h", 0)


@pytest.mark.parametrize("as_original", [False, True])
def test_steps_are_counted_by_questions_as_the_original_does(tmp_path, words, as_original):
    """Or by windows, of which each of these questions has several: a pass is one over them all."""
    given = {"original_postprocessing": as_original}
    context = " ".join("abcdefgh"[n % 8] for n in range(40))
    (split,) = training_splits(tmp_path, words, context, len(context) - 1, **given)
    assert split.steps_per_epoch(2) == 3 / 2
    given["original_step_count"] = False
    (split,) = training_splits(tmp_path, words, context, len(context) - 1, **given)
    assert split.steps_per_epoch(2) == len(split.features) / 2 >= 6


def test_lengths_are_checked(words):
    with pytest.raises(DataError, match="max_seq_length is 67"):
        build_squad_features([], words, False, 67, 128, 64)
    with pytest.raises(DataError, match="doc_stride 0"):
        build_squad_features([], words, False, 68, 0, 64)
    with pytest.raises(DataError, match="n_best_size is 0"):
        OriginalSettings(n_best_size=0)
    assert list(build_squad_features([], words, False, 68, 1, 64)) == []


def test_windows_of_a_stride_above_the_length_leave_nothing_out(words):
    examples = read_squad_examples([_question("a b c d e f g", question="q r s")], False, False)
    features = list(build_squad_features(examples, words, False, 9, 100, 2))
    assert [feature.tokens[1:4] for feature in features] == [("q", "r", "[SEP]")] * 2
    assert [feature.token_to_orig_map.tolist() for feature in features] == [[0, 1, 2, 3], [4, 5, 6]]


def test_a_long_context(words):
    context = "ab " * 100_000
    examples = read_squad_examples([_question(context, ("ab", 150_000))], True, False)
    features = list(build_squad_features(examples, words, True, 384, 128, 64))
    best = np.concatenate([feature.token_is_max_context for feature in features])
    assert best.sum() == 200_000
    held = [feature for feature in features if feature.start_position]
    # The answer's first piece; the question and two special tokens stand before the context.
    assert len(held) >= 2
    for feature in held:
        assert feature.token_to_orig_map[feature.start_position - 3] == 50_000


def _logits(features, peaks, length=16):
    logits = np.zeros((len(features), length), np.float32)
    for position, value in peaks.items():
        logits[:, position] = value
    return logits


@pytest.mark.parametrize("threshold", [0.0, 1e9])
def test_no_span_is_left(words, threshold):
    contexts = ["a b c", "", "\u200b", "d"]
    examples = read_squad_examples(
        [_question(text, name=str(number)) for number, text in enumerate(contexts)], False, True
    )
    features = list(build_squad_features(examples, words, False, 16, 8, 4))
    assert [feature.example_index for feature in features] == [0, 3]
    # [CLS] and the question only.
    logits = _logits(features, {0: 3, 1: 2})
    logits[1, 3] = 5
    triples = list(zip(features, logits, logits, strict=True))
    settings = OriginalSettings(2, 30, True, threshold)
    predictions = list(predict_as_original(examples, triples, words, settings))
    assert [prediction.text for prediction in predictions] == ["", "", "", "d"]
    assert [len(prediction.nbest) for prediction in predictions] == [1, 1, 1, 2]
    assert [prediction.null_odds for prediction in predictions] == [NO_ANSWER_ODDS] * 3 + [-4]
    assert predictions[0].nbest[0] == ("", 1.0, 3.0, 3.0)
    predictions = list(predict_as_original(examples, triples, words, OriginalSettings(2)))
    assert [prediction.text for prediction in predictions] == ["empty"] * 3 + ["d"]
    assert predictions[0].nbest == predictions[1].nbest == [("empty", 1.0, 0.0, 0.0)]
    assert predictions[0].null_odds is None


def test_windows_out_of_order(words):
    examples = read_squad_examples([_question("a b"), _question("c d")], False, False)
    features = list(build_squad_features(examples, words, False, 16, 8, 4))
    logits = _logits(features, {})
    triples = list(zip(features, logits, logits, strict=True))
    with pytest.raises(ValueError, match="Window 1000000000 of example 0"):
        list(predict_as_original(examples, triples[::-1], words, OriginalSettings()))
    with pytest.raises(ValueError, match="Window 1000000001"):
        list(predict_as_original(examples[:1], triples, words, OriginalSettings()))


def test_predictions_are_streamed(words):
    """Windows are taken as predictions are, and memory does not grow with their number."""
    examples = read_squad_examples(
        [_question("a b c", name=str(number)) for number in range(400)], False, True
    )
    features = list(build_squad_features(examples, words, False, 16, 8, 4))
    taken = []

    def windows():
        for feature in features:
            taken.append(feature)
            logits = np.zeros(100_000, np.float32)
            yield feature, logits, logits

    tracemalloc.start()
    for number, _ in enumerate(predict_as_original(examples, windows(), words, OriginalSettings())):
        assert len(taken) <= number + 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 399 and peak < 20e6
