"""The exported encoder: vectors of texts, pieces and words, against the library's own."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from data.batching import Batching
from data.tokenization import Tokenizer
from data.vectors.array_batches import array_batches
from data.vectors.serving_inputs import vector_serving_inputs
from data.vectors.texts import VectorTextSettings, read_vector_texts
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.serving.export import Export
from modeling.serving.vectors import export_embeddings
from modeling.vectors.extraction import Extractor
from modeling.vectors.vector_models import BertVectors
from tests.reference import numpy_bert

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##a", "##b", "##c", "漢", "."]
LIMIT = 12
CONFIG = {
    "vocab_size": len(VOCAB),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": LIMIT,
    "type_vocab_size": 2,
}
LAYERS = [-1, -2]


def make_model(pooling="none", normalize=False) -> BertVectors:
    model = BertVectors(BertConfig(**CONFIG), LAYERS, pooling, normalize)
    weights = numpy_bert.random_weights(CONFIG, seed=5)
    for name, variable in checkpoints.weights_by_name(model).items():
        variable.assign(weights[name])
    return model


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "vocab.txt").write_text("\n".join(VOCAB))
    pieces = functools.partial(vector_serving_inputs, tokenizer, LIMIT)
    path = export_embeddings(
        make_model(), Export(str(folder), {"vocab.txt": str(folder / "vocab.txt")}), pieces, "mean"
    )
    assert path == str(folder / "1") and (folder / "1/assets/vocab.txt").exists()
    return tf.saved_model.load(path)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(2)
    words = ["a", "abc", "ab.c", "e\u0301", "漢漢", "x", "\u200b", "ba", "😀"]
    some = [" ".join(draw.choices(words, k=draw.randrange(14))) for _ in range(30)]
    return ["", "\u200b", "a", "a " * 30, "a\u3000b", "ab" * 30, *some]


def ask(exported, signature, texts) -> dict[str, np.ndarray]:
    got = exported.signatures[signature](text=tf.constant(texts, tf.string))
    return {name: value.numpy() for name, value in got.items()}


def of_file(tokenizer, texts, tmp_path, model, word_pooling=None):
    """As the command computes them."""
    (tmp_path / "input.txt").write_text("\n".join(texts) + "\n")
    settings = VectorTextSettings(LIMIT, 0, word_pooling)
    (chunk,) = read_vector_texts(str(tmp_path / "input.txt"), tokenizer, settings)
    batches = array_batches(chunk.features, Batching(4, [4, 8]))
    return list(chunk.rows(Extractor(model)(batches, chunk.features.lengths)))


@pytest.mark.slow
def test_texts(exported, tokenizer, texts, tmp_path):
    got = ask(exported, "serving_default", texts)["embedding"]
    assert got.shape == (len(texts), 16)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    rows = of_file(tokenizer, texts, tmp_path, make_model("mean"))
    flat = np.concatenate([row.vectors for row in rows]).reshape(len(texts), 16)
    np.testing.assert_allclose(got, flat / np.linalg.norm(flat, axis=1, keepdims=True), atol=1e-5)
    for place in range(0, len(texts), 7):
        alone = ask(exported, "serving_default", texts[place : place + 1])["embedding"]
        np.testing.assert_allclose(alone[0], got[place], atol=1e-5)


def test_pieces(exported, tokenizer, texts, tmp_path):
    got = ask(exported, "pieces", texts)
    for number, row in enumerate(of_file(tokenizer, texts, tmp_path, make_model())):
        size = len(row.tokens)
        assert [token.decode() for token in got["tokens"][number, :size]] == row.tokens
        np.testing.assert_allclose(
            got["vectors"][number, :size], row.vectors.reshape(size, 16), atol=1e-5
        )
        assert not got["vectors"][number, size:].any() and not any(got["tokens"][number, size:])
        starts, ends = got["starts"][number], got["ends"][number]
        assert {*starts[[0, size - 1]], *starts[size:], *ends[size:], ends[0]} == {-1}
        for token, start, end in list(zip(row.tokens, starts, ends, strict=False))[1 : size - 1]:
            part = texts[number][start:end]
            assert part and (token == "[UNK]" or part[0] == token.removeprefix("##")[0])


def test_words(exported, tokenizer, texts, tmp_path):
    got = ask(exported, "words", texts)
    rows = of_file(tokenizer, texts, tmp_path, make_model(), "mean")
    # A line loses its outer white space on the way; offsets are of the line as it is.
    for number, row in enumerate(rows):
        size = len(row.tokens)
        assert [word.decode() for word in got["words"][number, :size]] == row.tokens
        spans = np.stack([got["starts"][number], got["ends"][number]], 1)
        assert spans[:size].tolist() == row.spans.tolist()
        vectors = row.vectors.reshape(size, 16)
        np.testing.assert_allclose(got["vectors"][number, :size], vectors, atol=1e-5)
        assert not got["vectors"][number, size:].any() and (spans[size:] == -1).all()
    assert max(len(row.tokens) for row in rows) == got["words"].shape[1]


def test_no_texts_and_broken_bytes(exported):
    for signature in ("serving_default", "pieces", "words"):
        for value in ask(exported, signature, []).values():
            assert value.shape[0] == 0
        broken = ask(exported, signature, [b"\xff", b"a\xff \xe3\x80b"])
        assert all(value.shape[0] == 2 for value in broken.values())


def test_contradictions(tokenizer, tmp_path):
    pieces = functools.partial(vector_serving_inputs, tokenizer, LIMIT)
    for model, pooling in (
        (make_model(), "none"),
        (make_model("mean"), "mean"),
        (make_model(normalize=True), "cls"),
    ):
        with pytest.raises(ModelingError, match="pools by itself"):
            export_embeddings(model, Export(str(tmp_path), {}), pieces, pooling)
