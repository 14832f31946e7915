"""Texts are read as in training, also where the command doesn't repeat its flags."""

import numpy as np
import pytest
from absl import flags

from modeling.checkpoints import tf1
from modeling.errors import ModelingError
from modeling.training.reading_flags import keep_reading_flags, reading_flags, take_reading_flags
from tests.reference import numpy_bert

KEPT = {"max_seq_length": 64, "long_text": "windows", "doc_stride": 16}


def given(folder, *line):
    values = flags.FlagValues()
    flags.DEFINE_string("output_dir", str(folder), "", flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, "", flag_values=values)
    flags.DEFINE_bool("do_train", False, "", flag_values=values)
    flags.DEFINE_integer("max_seq_length", 128, "", flag_values=values, lower_bound=3)
    flags.DEFINE_enum("long_text", "head", ("head", "windows"), "", flag_values=values)
    values(["script", *line])
    return values


@pytest.fixture
def trained(tmp_path):
    keep_reading_flags(str(tmp_path), KEPT)
    return tmp_path


def test_the_folder_tells_what_no_flag_says(trained, caplog):
    values = given(trained)
    take_reading_flags(values)
    assert reading_flags(values) == {"max_seq_length": 64, "long_text": "windows"}
    assert "--max_seq_length=64 --long_text=windows" in caplog.text
    caplog.clear()
    take_reading_flags(values)
    assert caplog.text == ""


def test_whether_there_may_be_no_answer(tmp_path):
    keep_reading_flags(str(tmp_path), {"version_2_with_negative": True})
    values = given(tmp_path)
    flags.DEFINE_bool("version_2_with_negative", False, "", flag_values=values)
    take_reading_flags(values)
    assert values.version_2_with_negative is True


def test_a_flag_counts_before_it_and_is_warned_of(trained, caplog):
    values = given(trained, "--max_seq_length=32")
    take_reading_flags(values)
    assert reading_flags(values) == {"max_seq_length": 32, "long_text": "windows"}
    assert "--max_seq_length=32, but the model was trained with 64" in caplog.text


def test_training_goes_by_its_flags(trained):
    values = given(trained, "--do_train")
    take_reading_flags(values)
    assert values.max_seq_length == 128


def test_nothing_kept_nothing_taken(tmp_path):
    values = given(tmp_path)
    take_reading_flags(values)
    assert values.max_seq_length == 128


@pytest.mark.parametrize("head", ["classifier", "squad"])
def test_texts_are_read_as_those_of_the_weights_that_are_taken(tmp_path, head):
    """Those of --init_checkpoint, if they have the head that the output folder's have."""
    given_folder, run = tmp_path / "given", tmp_path / "run"
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "max_position_embeddings": 8, "type_vocab_size": 2}
    for folder, name, part in (
        (given_folder, "bert_model.ckpt", head),
        (run, "model.ckpt-3", "classifier"),
    ):
        weights = numpy_bert.random_weights(sizes, heads=[part])
        tf1.write_bundle(folder / name, weights | {"global_step": np.int64(3)})
    keep_reading_flags(str(given_folder), {"max_seq_length": 384})
    keep_reading_flags(str(run), KEPT)
    values = given(run, f"--init_checkpoint={given_folder}/bert_model.ckpt")
    take_reading_flags(values)
    assert values.max_seq_length == (384 if head == "classifier" else 64)


@pytest.mark.parametrize("content", ["", "[1]", '{"max_seq_length": "many"}', '{"long_text": 7}'])
def test_a_damaged_file_is_refused_by_name(trained, content):
    (trained / "reading.json").write_text(content)
    with pytest.raises(ModelingError, match=r"reading\.json is damaged"):
        take_reading_flags(given(trained))
