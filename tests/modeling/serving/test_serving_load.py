"""Clients at once on small exports of this project, hostile requests among them."""

import functools

import keras
import numpy as np
import pytest

from data.tasks.questions.windows import make_windows
from data.tokenization import Tokenizer, build_inputs
from modeling.config import BertConfig
from modeling.models import BertClassifier, BertQuestionAnswering
from modeling.serving.export import Export
from modeling.serving.question_answering import export_question_answering
from modeling.serving.sentences import export_sentence_model
from tests import scripts
from tests.benchmarks.serving_load import Case, judge
from tests.modeling.serving.client import ServingError

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZE |= {"intermediate_size": 32, "max_position_embeddings": 128}
WINDOWS = {"max_seq_length": 96, "doc_stride": 64, "max_query_length": 24}


def scattered(model):
    """Weights that are large enough for answers that differ."""
    keras.utils.set_random_seed(0)
    model.build()
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return model


@pytest.fixture(scope="module")
def exports(shared_data, tmp_path_factory) -> dict[str, str]:
    vocab = shared_data / "vocab/bert-uncased-en/vocab.txt"
    tokenizer = Tokenizer(str(vocab))
    config = BertConfig(tokenizer.vocab_size, **SIZE)
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in ("sentiment", "pairs", "qa")}
    for name, pairs in (("sentiment", False), ("pairs", True)):
        export_sentence_model(
            scattered(BertClassifier(config, num_labels=2)),
            Export(folders[name], {"vocab.txt": str(vocab)}, max_seq_length=64),
            "classes",
            functools.partial(build_inputs, tokenizer, max_seq_length=64, pad_to="longest"),
            ["negative", "positive"],
            pairs,
        )
    export_question_answering(
        scattered(BertQuestionAnswering(config)),
        Export(folders["qa"], {"vocab.txt": str(vocab)}, max_seq_length=96),
        functools.partial(make_windows, tokenizer, **WINDOWS),
        n_best=5,
        max_answer_length=10,
        version_2=False,
        threshold=0.0,
    )
    return folders


@pytest.mark.slow
def test_hostile_requests_are_refused_and_good_ones_answered(exports, shared_data):
    text = scripts.succeed(
        "-m",
        "tests.benchmarks.serving_load",
        *(f"--export={name}={folder}" for name, folder in exports.items()),
        "--minutes=0.35",
        "--clients=16",
        "--cases=8",
        "--huge_rows=500",
        "--text_bytes=100000",
        "--most_megabytes=2",
        # Seconds aren't enough for memory to settle.
        "--max_growth=1.5",
        f"--sst2={shared_data}/glue/SST-2/dev.tsv",
        f"--squad={shared_data}/squad/dev-v1.1.json",
        timeout=400,
    )
    print(text)
    cells = [cell.strip() for cell in text.split("| all |")[1].split("\n")[0].split("|")]
    requests, good, refused, wrong = map(int, cells[:4])
    assert requests == good + refused
    assert wrong == 0
    assert good > 100
    assert refused > 20
    assert "requests/s" in text


RIGHT = {"label": np.array([b"a"], object), "score": np.array([1.0], np.float32)}


@pytest.mark.parametrize(
    "changed, says",
    [
        ({}, ""),
        ({"score": np.array([1.00005], np.float32)}, ""),
        ({"score": np.array([1.0002], np.float32)}, "score:"),
        ({"score": np.array([np.nan], np.float32)}, "score:"),
        ({"score": np.array([1.0], np.float64)}, "score:"),
        ({"score": np.array([1.0, 1.0], np.float32)}, "score:"),
        ({"label": np.array([b"b"], object)}, "label:"),
        ({"more": np.array([1])}, "outputs"),
    ],
)
def test_wrong_answers_are_found(changed, says):
    case = Case("real", None, lambda answer: answer, RIGHT)
    complaint = judge(case, RIGHT | changed, None)
    assert complaint.startswith(says)
    assert bool(complaint) == bool(says)


def test_wrong_refusals_are_found():
    case = Case("wrong name", None, None, None, "text_a")
    for error in (ServingError(400, "no text_a"), ServingError("INVALID_ARGUMENT", "no text_a")):
        assert judge(case, None, error) == ""
        assert judge(Case("real", None, None, RIGHT), None, error)
    for error in (
        ServingError(500, "no text_a"),
        ServingError("INTERNAL", "no text_a"),
        ServingError(400, "no"),
        ConnectionResetError("text_a"),
    ):
        assert judge(case, None, error)
    assert "where a refusal is due" in judge(case, RIGHT, None)
