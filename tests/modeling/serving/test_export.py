"""Exports as folders: versions, assets, warm-up requests, number formats, allowed operations."""

import json
import os
import pathlib
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from modeling.checkpoints import files
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertMultipleChoice
from modeling.serving import buckets
from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature
from modeling.serving.graph import encoder
from modeling.serving.sentences import export_sentence_model
from modeling.serving.storage import Servable

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "the", "dog"]
LENGTH = 40
LABELS = ["no", "yes", "ärger"]
TEXTS = ["a b", "", "the dog " * 30, "c", "the dog h g f e d", "é", "b " * 17]


def small(vocab_size=len(VOCAB), hidden_size=16) -> BertConfig:
    return BertConfig(
        vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=LENGTH,
        type_vocab_size=2,
    )


def randomised(model, seed=0):
    keras.utils.set_random_seed(seed)  # of what Keras draws for it
    model.build()
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.3, variable.shape))
    return model


@pytest.mark.parametrize(
    ("told", "form"),
    [
        (("int8", 40, 3, "saved_model", False), {"dtype": "int8", "branches": 3}),
        (("bfloat16", 64, 0, "saved_model", True), {"dtype": "bfloat16", "xla": True}),
        ((None, 32, 1, "tflite", False), {"format": "tflite", "branches": 1}),
    ],
)
def test_an_export_is_as_the_flags_say(told, form):
    names = "export_dtype", "max_seq_length", "export_branches", "export_format", "export_xla"
    values = types.SimpleNamespace(
        vocab_file="v.txt", export_dir=None, output_dir="out", **dict(zip(names, told, strict=True))
    )
    export = Export.from_flags(values)
    default = {"dtype": None, "branches": 0, "format": "saved_model", "xla": False}
    wanted = default | form | {"max_seq_length": told[1], "directory": "out/export"}
    assert vars(export) == wanted | {"assets": {"vocab.txt": "v.txt"}}
    values.export_dir = "served"
    export = Export.from_flags(values, "extended.txt")
    assert (export.directory, export.assets) == ("served", {"vocab.txt": "extended.txt"})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def model():
    return randomised(BertClassifier(small(), num_labels=len(LABELS)))


@pytest.fixture
def export(tmp_path) -> Export:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB))
    assets = {"vocab.txt": str(tmp_path / "vocab.txt")}
    return Export(str(tmp_path / "models/reviews"), assets, None, LENGTH)


@pytest.fixture(scope="module")
def loaded_classes(model, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("classes"))
    return tf.saved_model.load(str(export_classes(model, Export(folder, {}), tokenizer)))


def export_classes(model, export, tokenizer) -> pathlib.Path:
    def preprocess(text):
        return build_inputs(tokenizer, text, max_seq_length=LENGTH, pad_to="longest")

    return pathlib.Path(export_sentence_model(model, export, "classes", preprocess, LABELS, False))


def answers(path, signature="serving_default", **inputs) -> dict[str, np.ndarray]:
    loaded = tf.saved_model.load(str(path))
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    return {k: v.numpy() for k, v in loaded.signatures[signature](**inputs).items()}


def test_the_folder_is_what_tf_serving_loads(model, export, tokenizer):
    first = export_classes(model, export, tokenizer)
    assert first == pathlib.Path(export.directory, "1")
    before = {p: p.read_bytes() for p in first.rglob("*") if p.is_file()}
    # Versions count on from the highest, and what is no version doesn't count.
    pathlib.Path(export.directory, "7").mkdir()
    pathlib.Path(export.directory, "notes").mkdir()
    second = export_classes(model, export, tokenizer)
    assert second.name == "8"
    assert before == {p: p.read_bytes() for p in first.rglob("*") if p.is_file()}
    names = sorted(str(p.relative_to(second)) for p in second.rglob("*") if p.is_file())
    assert names == [
        *("assets.extra/tf_serving_warmup_requests", "assets/bert_config.json"),
        *("assets/labels.json", "assets/vocab.txt", "fingerprint.pb", "saved_model.pb"),
        *("variables/variables.data-00000-of-00001", "variables/variables.index"),
    ]
    assert json.loads((second / "assets/labels.json").read_text()) == LABELS
    assert (second / "assets/vocab.txt").read_text() == "\n".join(VOCAB)
    assert sorted(os.listdir(export.directory)) == ["1", "7", "8", "notes"]


def test_answers_are_the_models(model, export, tokenizer):
    path = export_classes(model, export, tokenizer)
    got = answers(path, text_a=TEXTS)
    batch = build_inputs(tokenizer, TEXTS, max_seq_length=LENGTH)
    wanted = tf.nn.softmax(model(batch)["logits"]).numpy()
    np.testing.assert_allclose(got["probabilities"], wanted, atol=2e-6)
    best = wanted.argmax(1)
    assert [label.decode() for label in got["label"]] == [LABELS[b] for b in best]
    np.testing.assert_allclose(got["score"], wanted.max(1), atol=2e-6)
    assert [[x.decode() for x in row] for row in got["labels"]] == [LABELS] * len(TEXTS)
    ids = answers(path, "tokenized", **{k: v.numpy() for k, v in batch.items()})
    np.testing.assert_allclose(ids["probabilities"], wanted, atol=2e-6)
    rows = [example(text_a=[text]) for text in TEXTS]
    of_examples = answers(path, "examples", examples=rows)
    assert of_examples["label"].tolist() == got["label"].tolist()
    np.testing.assert_allclose(of_examples["probabilities"], wanted, atol=2e-6)
    nothing = answers(path, text_a=np.array([], object).astype(str))
    assert nothing["probabilities"].shape == (0, 3) and nothing["label"].shape == (0,)


def example(**features) -> bytes:
    """A serialized tf.Example of lists of texts."""
    made = tf.train.Example()
    for name, texts in features.items():
        made.features.feature[name].bytes_list.value.extend(text.encode() for text in texts)
    return made.SerializeToString()


def test_answers_with_another_activation(tmp_path, tokenizer):
    config = small()
    config.hidden_act = "mish"
    model = randomised(BertClassifier(config, num_labels=len(LABELS)))
    path = export_classes(model, Export(str(tmp_path), {}, None, LENGTH), tokenizer)
    batch = build_inputs(tokenizer, TEXTS, max_seq_length=LENGTH)
    wanted = tf.nn.softmax(model(batch)["logits"]).numpy()
    np.testing.assert_allclose(answers(path, text_a=TEXTS)["probabilities"], wanted, atol=2e-6)


@pytest.mark.slow
def test_an_example_without_the_feature_is_refused(model, export, tokenizer):
    path = export_classes(model, export, tokenizer)
    good = example(text_a=[TEXTS[0]], id=["7"])
    answers(path, "examples", examples=[good])
    for bad in (example(), example(text_b=["a"]), example(text_a=[]), example(text_a=["a", "b"])):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1\] .*text_a"):
            answers(path, "examples", examples=[good, bad])


def test_examples_share_the_graph_of_texts(model, export, tokenizer):
    traced = []

    def call(text):
        traced.append(text)
        inputs = build_inputs(tokenizer, text, max_seq_length=LENGTH)
        return {"logits": servable(inputs)["logits"]}

    servable = export.servable(model)
    signature = Signature(call, {"text": tf.TensorSpec([None], tf.string)})
    path = export.write(servable, {"serving_default": signature})
    assert len(traced) == 1
    got = answers(path, text=TEXTS)["logits"]
    rows = [example(text=[text]) for text in TEXTS]
    np.testing.assert_array_equal(answers(path, "examples", examples=rows)["logits"], got)


@pytest.mark.slow
def test_several_labels_numbers_and_choices(export, tokenizer):
    def single(*texts):
        return build_inputs(tokenizer, *texts, max_seq_length=LENGTH, pad_to="longest")

    several = randomised(BertClassifier(small(), num_labels=3), 1)
    path = export_sentence_model(several, export, "multi_label", single, LABELS, False)
    got = answers(path, text_a=TEXTS)
    logits = several(single(TEXTS))["logits"].numpy()
    np.testing.assert_allclose(got["probabilities"], 1 / (1 + np.exp(-logits)), atol=2e-6)
    wanted = [[n if x >= 0 else "" for n, x in zip(LABELS, row, strict=True)] for row in logits]
    assert [[x.decode() for x in row] for row in got["predicted"]] == wanted
    assert {x for row in wanted for x in row} > {""}

    number = randomised(BertClassifier(small(), num_labels=1), 2)
    path = export_sentence_model(number, export, "regression", single, [], True)
    got = answers(path, text_a=TEXTS, text_b=TEXTS[::-1])
    wanted = number(single(TEXTS, TEXTS[::-1]))["logits"].numpy()[:, 0]
    np.testing.assert_allclose(got["score"], wanted, atol=2e-6)

    choosing = randomised(BertMultipleChoice(small()), 3)

    def choices(context, endings):
        return build_choice_inputs(tokenizer, context, endings, LENGTH, "longest")

    path = export_sentence_model(choosing, export, "choices", choices, [], False, temperature=2.5)
    endings = [["a", "b c d e f", "the dog"], ["h", "", "g"], ["c " * 20, "f", "b"]]
    got = answers(path, context=TEXTS[:3], choices=endings)
    wanted = tf.nn.softmax(choosing(choices(TEXTS[:3], endings))["logits"] / 2.5).numpy()
    np.testing.assert_allclose(got["probabilities"], wanted, atol=2e-6)
    assert got["probabilities"][1, 1] == 0
    best = wanted.argmax(1)
    assert got["choice"].tolist() == best.tolist()
    picked = [row[b].encode() for row, b in zip(endings, best, strict=True)]
    assert got["choice_text"].tolist() == picked
    nothing = np.zeros([0], object)
    assert answers(path, "examples", examples=nothing)["choice"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Each context needs a choice"):
        answers(path, context=["a"], choices=np.zeros([1, 0], object))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Each context needs a choice"):
        answers(path, context=TEXTS[:2], choices=[["a", "b"], ["", ""]])
    # Two bytes each, and a context to be read with each.
    with pytest.raises(tf.errors.InvalidArgumentError, match="choices of an example are"):
        answers(path, context=["a"], choices=[["a"] + [""] * 30_000])


def test_short_rows_are_not_computed_at_the_long_ones_length():
    seen, result = [], tf.zeros([5, 2])

    def call(batch):
        shape = tf.shape(batch["input_ids"])
        tf.py_function(lambda s: seen.append(s.numpy().tolist()), [shape], [])
        total = tf.reduce_sum(batch["input_ids"] * batch["input_mask"], 1)
        return {"logits": tf.cast(tf.stack([total, batch["extra"]], 1), tf.float32)}

    lengths = np.array([300, 3, 64, 65, 0])
    mask = (np.arange(300) < lengths[:, None]).astype(np.int32)
    batch = {
        "input_ids": tf.constant(mask * 2),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.zeros([5, 300], tf.int32),
        "extra": tf.range(5),
    }
    got = tf.function(lambda: in_buckets(call, batch, {"logits": result}))()["logits"].numpy()
    assert got.tolist() == [[600, 0], [6, 1], [128, 2], [130, 3], [0, 4]]
    assert seen == [[3, 64], [1, 65], [1, 300]]


def test_large_groups_are_cut(monkeypatch):
    monkeypatch.setattr(buckets, "PIECES_AT_ONCE", 200)
    lengths = np.array([30, 5, 70, 30, 7, 100, 31, 16, 512])
    mask = (np.arange(512) < lengths[:, None]).astype(np.int32)
    batch = {name: tf.constant(mask) for name in IDS}
    sizes = []

    def call(part):
        sizes.append(part["input_ids"].shape)
        return {"logits": tf.cast(tf.reduce_sum(part["input_ids"], 1, True), tf.float32)}

    # Eagerly, so that the shapes of all groups are seen.
    got = in_buckets(call, batch, {"logits": tf.zeros([9, 1])})["logits"]
    assert got.numpy()[:, 0].tolist() == lengths.tolist()
    # 3 of up to 64 pieces fit into 200, and one is always taken.
    assert sizes == [(3, 30), (3, 31), (1, 70), (1, 100), (1, 512)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [[1, 2, len(VOCAB)]]}, f"input_ids may be from 0 to {len(VOCAB) - 1}"),
        ({"input_ids": [[1, -5, 2]]}, "input_ids may be from 0"),
        ({"segment_ids": [[0, 0, 2]]}, "segment_ids may be from 0 to 1"),
        ({name: [[], []] for name in IDS}, "input_ids has the shape.*2 0.*a row has 1 to"),
        ({"input_mask": [[1, 1]]}, "input_ids has the shape.*input_mask"),
        ({"input_mask": [[1, 1, 1]] * 2}, "input_ids has.*1.*rows, but input_mask has.*2"),
        ({name: [[1] * (LENGTH + 1)] for name in IDS}, f"a row has 1 to {LENGTH} pieces"),
    ],
)
def test_wrong_ids_are_refused(loaded_classes, changes, message):
    inputs = {name: [[1, 1, 1]] for name in IDS} | changes
    inputs = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
        loaded_classes.signatures["tokenized"](**inputs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_fewer_bits(kind, tmp_path, tokenizer, monkeypatch):
    # What whole numbers round besides has tests of its own.
    monkeypatch.setattr(encoder, "can_multiply", lambda number: number < 0)
    # Wide enough that the matrices are most of it.
    wide = randomised(BertClassifier(small(4_000, 64), num_labels=3))
    sizes, got = {}, {}
    for dtype in (None, kind):
        folder = Export(str(tmp_path / str(dtype)), {}, dtype, LENGTH)
        path = export_classes(wide, folder, tokenizer)
        sizes[dtype] = (path / "variables/variables.data-00000-of-00001").stat().st_size
        got[dtype] = answers(path, text_a=TEXTS)["probabilities"]
    assert sizes[None] < 4 * wide.count_params() * 1.02
    share = {"bfloat16": 0.5, "int8": 0.25}[kind]
    assert share < sizes[kind] / sizes[None] < share + 0.04
    # The layers' matrices have 7 bits.
    assert 0 < np.abs(got[kind] - got[None]).max() < {"bfloat16": 0.05, "int8": 0.1}[kind]
    # The model itself is as it was.
    assert {layer.dtype_policy.name for layer in wide._flatten_layers()} == {"float32"}
    if kind == "int8":
        rounded = randomised(BertClassifier(small(4_000, 64), num_labels=3))
        for weight, original in zip(rounded.weights, wide.weights, strict=True):
            name = weight.path
            weight.assign(original)
            if name.endswith(("/kernel", "/word_embeddings")):
                matrix = np.asarray(weight)
                axis = 0 if name.endswith("/kernel") else 1
                # Each branch has rows, and so scales, of its own where they are joined.
                parts = []
                for part in np.split(matrix, 2 if "/output/" in name else 1):
                    scale = np.abs(part).max(axis, keepdims=True) / (
                        63 if "/layer_" in name else 127
                    )
                    parts.append(np.rint(part / scale) * scale)
                weight.assign(np.concatenate(parts))
        wanted = rounded(build_inputs(tokenizer, TEXTS, max_seq_length=LENGTH))["logits"]
        np.testing.assert_allclose(got[kind], tf.nn.softmax(wanted), atol=2e-5)


@pytest.mark.slow
def test_base_holds_little_but_its_parameters(tmp_path, shared_data):
    vocab = shared_data / "vocab/bert-uncased-en/vocab.txt"
    base = BertClassifier(BertConfig.named("base", 30_522), num_labels=3)
    base.build()
    export = Export(str(tmp_path / "base"), {"vocab.txt": str(vocab)}, None, 512)
    path = export_classes(base, export, Tokenizer(str(vocab)))
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    # What the signatures share is there once; three of them.
    assert 4 * base.count_params() < size < 1.02 * 4 * base.count_params()
    print(f"{size:,} bytes for {base.count_params():,} parameters")


@pytest.mark.slow
def test_warm_up_requests_fit_their_signatures(model, export, tokenizer):
    path = export_classes(model, export, tokenizer)
    loaded = tf.saved_model.load(str(path))
    seen, longest = set(), 0
    for record in tf.data.TFRecordDataset(str(path / "assets.extra/tf_serving_warmup_requests")):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        assert request.model_spec.name == "reviews"
        name = request.model_spec.signature_name
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        batch = {len(v) for v in inputs.values()}
        assert len(batch) == 1
        seen.add((name, *batch))
        got = loaded.signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})
        assert np.isfinite(got["probabilities"]).all()
        if name == "serving_default":
            words = [text.decode().split() for text in inputs["text_a"].tolist()]
            assert {word for text in words for word in text} <= {*VOCAB}
            longest = max(longest, *map(len, words))
    assert seen == {
        (name, size) for name in ("serving_default", "tokenized", "examples") for size in (1, 8, 32)
    }
    assert longest == int(0.9 * LENGTH)


def test_what_was_interrupted_is_removed(model, export, tokenizer):
    folder = pathlib.Path(export.directory)
    folder.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = folder / f".saving-{files._HOST}-{ended.pid}-1"
    left.mkdir()
    (left / "saved_model.pb").write_text("half")
    alive = folder / f".saving-{files._HOST}-{os.getppid()}-1"
    alive.mkdir()
    export_classes(model, export, tokenizer)
    assert sorted(p.name for p in folder.iterdir()) == [alive.name, "1"]


@pytest.mark.slow
def test_bad_exports(model, tokenizer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelingError, match=r"can't be written to .*file/x"):
        export_classes(model, Export(str(tmp_path / "file/x"), {}), tokenizer)
    with pytest.raises(ModelingError, match="float32, bfloat16, int8; got 'int4'"):
        export_classes(model, Export(str(tmp_path), {}, "int4"), tokenizer)

    def with_python(**inputs):
        length = tf.py_function(lambda x: x, [inputs["input_ids"]], tf.int32)
        return {"y": tf.ensure_shape(length, [None, None])}

    with pytest.raises(ModelingError, match=r"signature serving_default .* EagerPyFunc"):
        Export(str(tmp_path / "m"), {}).write(
            Servable(keras.Sequential([])), {"serving_default": Signature(with_python, IDS)}
        )
    assert not (tmp_path / "m").exists()

    def with_the_model(**inputs):
        return {"y": model(inputs)["logits"]}

    with pytest.raises(ModelingError, match=r"call what Export.servable gives, not the model"):
        Export(str(tmp_path / "m"), {}).write(
            Servable(model), {"serving_default": Signature(with_the_model, IDS)}
        )


def test_flags_need_no_tensorflow():
    """A script's --help is printed without waiting for it."""
    code = "import sys; sys.modules |= {'tensorflow': None, 'keras': None}; "
    code += "from modeling.serving import flags; flags.define_export_flags()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_groups_of_long_texts_are_few_rows():
    """Scores of attention grow with the square of the length."""
    lengths = tf.constant([4096] * 9 + [400] * 40 + [20000] * 2)
    batch = {"input_mask": tf.ones([51, 1], tf.int32)}
    order, begins = buckets._groups(lengths, batch, None)
    groups = np.split(np.asarray(lengths)[order.numpy()], begins.numpy()[1:-1])
    assert [(len(group), int(group[0])) for group in groups] == [
        *((32, 400), (8, 400)),
        *((4, 4096), (4, 4096), (1, 4096)),
        *((1, 20000), (1, 20000)),
    ]
