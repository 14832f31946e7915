"""Students: what they compute, what they keep of their teacher, and that they come out the same."""

import shutil

import numpy as np
import pytest

import modeling
from modeling import checkpoints
from modeling.checkpoints.students.making import make_student
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQuestionAnswering,
    BertTagger,
)
from tests.reference import numpy_bert
from tests.scripts import run

CONFIG = BertConfig(
    vocab_size=23,
    hidden_size=12,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
    type_vocab_size=2,
)
MODELS = {
    "classes": lambda config: BertClassifier(config, 3),
    "regression": lambda config: BertClassifier(config, 1, numbers=True),
    "tags": lambda config: BertTagger(config, 5),
    "spans": BertQuestionAnswering,
    "choices": BertMultipleChoice,
    "pretraining": BertPretrainer,
}
LABELS = {"classes": ["a", "b", "c"], "tags": ["O", "B-X", "I-X", "B-Y", "I-Y"]}


@pytest.fixture(scope="module", params=MODELS)
def head(request):
    return request.param


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, head):
    return written_teacher(tmp_path_factory.mktemp(head), head)


def written_teacher(folder, head):
    """A folder with a teacher whose weights are far from those of a new model."""
    model = MODELS[head](CONFIG.with_head(head, LABELS.get(head, ())))
    rng = np.random.default_rng(1)
    for variable in checkpoints.weights_by_name(model).values():
        values = rng.normal(size=variable.shape, scale=0.3)
        variable.assign(1 + values if variable.path.endswith("gamma") else values)
    words = folder / "words.txt"
    words.write_text(
        "".join(f"{token}\n" for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    )
    checkpoints.save(model, folder / "teacher", words, folding=TextFolding(False))
    return folder / "teacher"


def weights_in(folder):
    held = checkpoints.open_contents(folder)
    return {name: held.read(name) for name in held.shapes}


def answers(path, head):
    """All that a model computes for the same inputs, by name."""
    model = modeling.from_pretrained(path).model
    rng = np.random.default_rng(2)
    shape = (2, 3, 7) if head == "choices" else (2, 7)
    inputs = {
        "input_ids": rng.integers(0, 23, shape).astype(np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": rng.integers(0, 2, shape).astype(np.int32),
    }
    inputs["input_mask"][..., 5:] = 0
    if head == "pretraining":
        inputs["masked_lm_positions"] = np.array([[1, 3], [2, 0]], np.int32)
    outputs = model(inputs)
    hidden = outputs.pop("encoder_outputs", [])
    return {**outputs, **{f"layer {i}": x for i, x in enumerate(hidden)}}


def test_all_layers_are_the_teacher_itself(teacher, head, tmp_path):
    config, _ = make_student(teacher, tmp_path, [0, 1, 2, 3])
    assert config == BertConfig.from_json_file(teacher / "bert_config.json")
    want, got = answers(teacher, head), answers(tmp_path, head)
    assert want.keys() == got.keys() and len(want) > 1
    for name in want:
        assert np.asarray(got[name]).tobytes() == np.asarray(want[name]).tobytes(), name


@pytest.mark.parametrize("layers", [[0, 2], [3], [1, 2, 3]])
def test_layers_by_hand(teacher, tmp_path, layers):
    """By another route: the NumPy model with the layers renamed one by one."""
    config, _ = make_student(teacher, tmp_path, layers)
    assert config.num_hidden_layers == len(layers)
    theirs, ours = weights_in(teacher), weights_in(tmp_path)
    by_hand = {name: w for name, w in theirs.items() if "/layer_" not in name}
    for new, old in enumerate(layers):
        for name in theirs:
            if f"/layer_{old}/" in name:
                by_hand[name.replace(f"/layer_{old}/", f"/layer_{new}/")] = theirs[name]
    assert by_hand.keys() == ours.keys()
    values = config.encoder_dict()
    inputs = numpy_bert.random_inputs(values, batch=2, length=8, predictions=1, seed=0)
    if "output_bias" not in by_hand:  # of choices, which the NumPy model hasn't
        by_hand["output_bias"] = ours["output_bias"] = np.zeros(1, np.float32)
    want, got = (numpy_bert.forward(w, values, inputs) for w in (by_hand, ours))
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert got[name].tobytes() == want[name].tobytes()
    model = modeling.from_pretrained(tmp_path).model
    encoded = model.encoder({key: inputs[key] for key in ("input_ids", "input_mask")})
    plain = {key: inputs[key] for key in ("input_ids", "input_mask")}
    want = numpy_bert.forward(by_hand, values, plain)["sequence_output"]
    np.testing.assert_allclose(np.asarray(encoded["sequence_output"]), want, rtol=0, atol=1e-5)


def test_what_is_the_teacher_s_besides_weights(teacher, head, tmp_path):
    kept = {"labels.json": '{"labels": ["a"]}', "reading.json": '{"max_seq_length": 9}'}
    source = shutil.copytree(teacher, tmp_path / "source")
    for name, text in kept.items():
        (source / name).write_text(text)
    make_student(source, tmp_path / "student", [0, 3], 8)
    for name, text in kept.items():
        assert (tmp_path / "student" / name).read_text() == text
    found = modeling.from_pretrained(tmp_path / "student")
    assert (found.config.head, found.config.labels) == (head, LABELS.get(head))
    assert (found.tokenizer.do_lower_case, found.tokenizer.vocab[:2]) == (False, ["[PAD]", "[UNK]"])
    for name in ("vocab.txt", "tokenizer_config.json"):
        assert (tmp_path / "student" / name).read_bytes() == (teacher / name).read_bytes()


@pytest.mark.parametrize("projection", ["best", "random"])
def test_narrower(teacher, head, tmp_path, projection):
    config, lines = make_student(teacher, tmp_path, [0, 2, 3], 8, projection)
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    assert [getattr(config, name) for name in fields] == [3, 8, 2, 13]
    model = modeling.from_pretrained(tmp_path).model
    heads = {"tags": 5, "classes": 3, "choices": 1}
    shapes = numpy_bert.variable_shapes(
        config.encoder_dict(),
        {"pretraining": ["pretraining"], "spans": ["squad"]}.get(head, ["classifier"]),
        heads.get(head, 1),
    )
    ours = weights_in(tmp_path)
    assert {name: w.shape for name, w in ours.items() if name != "output_bias"} == {
        name: shape for name, shape in shapes.items() if name != "output_bias"
    }
    assert f"Parameters: {sum(w.size for w in weights_in(teacher).values()):,}" in lines[1]
    assert f"{sum(w.size for w in ours.values()):,}." in lines[1]
    assert all(np.isfinite(np.asarray(x)).all() for x in answers(tmp_path, head).values())
    assert model.config.hidden_size == 8


def test_the_same_bytes_every_time(tmp_path):
    teacher = written_teacher(tmp_path, "classes")
    for case in ({}, {"hidden_size": 8}, {"hidden_size": 8, "projection": "random", "seed": 3}):
        folders = [tmp_path / f"{len(case)} {i}" for i in range(2)]
        for folder in folders:
            make_student(teacher, folder, [0, 3], **case)
        files = sorted(path.name for path in folders[0].iterdir())
        assert "bert_model.ckpt.index" in files and "vocab.txt" in files
        for name in files:
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    other = tmp_path / "other"
    make_student(teacher, other, [0, 3], 8, "random", seed=4)
    index = "bert_model.ckpt.index"
    assert (other / index).read_bytes() != (folders[0] / index).read_bytes()


def test_random_weights_are_a_new_model_s(tmp_path):
    teacher = written_teacher(tmp_path, "classes")
    make_student(teacher, tmp_path / "student", [0, 1], 8, "random")
    for name, weight in weights_in(tmp_path / "student").items():
        if name.endswith(("bias", "beta", "gamma")):
            assert (weight == name.endswith("gamma")).all(), name
        else:
            assert 0 < np.abs(weight).max() <= 0.04 and len(np.unique(weight)) > 0.9 * weight.size


def test_idle_parts_are_left_out(tmp_path):
    """Dimensions that hold zeros, and heads and neurons that write nothing, are left out."""
    teacher = written_teacher(tmp_path, "classes")
    weights = weights_in(teacher)
    kept = [0, 1, 3, 4, 6, 7, 9, 10]
    idle = [2, 5, 8, 11]
    values = CONFIG.with_head("classes", LABELS["classes"])
    for name, weight in weights.items():
        if weight.shape[-1:] == (12,) and "attention/self" not in name:
            weight[..., idle] = 0
        if "attention/self/value/" in name:
            weight[..., :4] = 0  # the first of three heads
        if "intermediate" in name:
            weight[..., 13:] = 0
    checkpoints.write_checkpoint(teacher, weights, values, teacher / "vocab.txt")
    make_student(teacher, tmp_path / "student", [0, 1, 2, 3], 8)
    theirs, ours = weights, weights_in(tmp_path / "student")
    np.testing.assert_array_equal(
        ours["bert/embeddings/word_embeddings"],
        theirs["bert/embeddings/word_embeddings"][:, kept],
    )
    name = "bert/encoder/layer_1/attention/self/query/kernel"
    np.testing.assert_array_equal(ours[name], theirs[name][kept, 4:])
    name = "bert/encoder/layer_2/output/dense/kernel"
    np.testing.assert_array_equal(ours[name], theirs[name][:13, kept])
    name = "bert/encoder/layer_3/attention/output/LayerNorm/gamma"
    np.testing.assert_array_equal(ours[name], theirs[name][kept] * np.float32(12 / 8))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([0, 4],), "has 4 layers and no layer 4"),
        (([],), "--student_layers is empty"),
        (([0], 5), "its heads are 4.*one of 4, 8;"),
        (([0], 12), "12; the teacher is 12 wide"),
        (([0], 0), "--student_hidden_size is 0"),
        (([0], 8, "svd"), "'svd'; expected one of best, random"),
    ],
)
def test_what_cannot_be_made_leaves_nothing(tmp_path, arguments, message):
    teacher = written_teacher(tmp_path, "classes")
    with pytest.raises(ModelingError, match=message):
        make_student(teacher, tmp_path / "student", *arguments)
    assert not (tmp_path / "student").exists()


def test_weights_that_are_not_bert_s(tmp_path):
    """They stay at full width; nobody knows how to make them narrower."""
    teacher = written_teacher(tmp_path, "classes")
    weights = weights_in(teacher) | {"bilstm/forward/kernel": np.ones((12, 8), np.float32)}
    config = BertConfig.from_json_file(teacher / "bert_config.json")
    checkpoints.write_checkpoint(teacher, weights, config)
    make_student(teacher, tmp_path / "student", [0])
    assert "bilstm/forward/kernel" in weights_in(tmp_path / "student")
    with pytest.raises(ModelingError, match=r"bilstm/forward/kernel \[12, 8\]"):
        make_student(teacher, tmp_path / "narrow", [0], 8)
    assert not (tmp_path / "narrow").exists()


@pytest.mark.parametrize("format_", checkpoints.FORMATS)
def test_the_command(tmp_path, format_):
    teacher = written_teacher(tmp_path, "classes")
    out = tmp_path / "out"
    command = ("-m", "modeling.convert_checkpoint", "--input", teacher, "--format", format_)
    done = run(*command, "--output", out, "--student_layers=0,3", "--student_hidden_size=8")
    assert done.returncode == 0, done.stderr
    assert "layers 0, 3 of its 4; 8 of 12 dimensions" in done.stdout
    make_student(teacher, tmp_path / "want", [0, 3], 8)
    want, got = weights_in(tmp_path / "want"), weights_in(out)
    assert {n: w.tobytes() for n, w in got.items()} == {n: w.tobytes() for n, w in want.items()}
    if format_ != "keras_hub":  # it has no place for names
        assert modeling.from_pretrained(out).config.labels == LABELS["classes"]
    assert [p.name for p in out.iterdir() if p.name.startswith(".")] == []
    if format_ == "tf1":
        number = run(*command, "--output", tmp_path / "n", "--student_num_layers=2")
        assert "layers 0, 3 of its 4, 12 wide as there" in number.stdout


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--student_layers=0,9"], "no layer 9"),
        (["--student_layers=0", "--student_num_layers=2"], "exclude each other"),
        (["--student_num_layers=5"], "from 1 to 4 of them"),
        (["--student_layers=0", "--student_projection=random"], "give --student_hidden_size"),
    ],
)
def test_flags_that_contradict(tmp_path, flags, message):
    teacher = written_teacher(tmp_path, "classes")
    command = ("-m", "modeling.convert_checkpoint", "--input", teacher, "--format=tf1")
    failed = run(*command, "--output", tmp_path / "out", *flags)
    assert failed.returncode != 0 and message in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr


@pytest.mark.hours
@pytest.mark.slow
def test_a_narrower_minilm_keeps_similarities(minilm, shared_data, tmp_path):
    """Better than a random one; see tests/benchmarks/student_starts.py for how much."""
    from tests.benchmarks.student_starts import kept_similarities

    glue, found = shared_data / "glue", {}
    for projection in ("best", "random"):
        make_student(minilm, tmp_path / projection, range(6), 256, projection)
        found[projection] = kept_similarities(minilm, tmp_path / projection, glue, 100)
    assert found["best"] > found["random"] + 0.2
    make_student(minilm, tmp_path / "shallow", [0, 3, 5])
    assert kept_similarities(minilm, tmp_path / "shallow", glue, 100) > found["random"] + 0.2
