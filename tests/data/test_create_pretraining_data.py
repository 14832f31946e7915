"""The command: the original's flags and defaults, and errors without traceback."""

import pytest
from absl import flags

from data import create_pretraining_data  # noqa: F401  (defines the flags)
from data.pretraining.records.record_files import count_records
from tests import scripts

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "one", "two", "three", "four"]


def run(*arguments):
    return scripts.run("-m", "data.create_pretraining_data", *arguments)


def test_flags_and_defaults_are_the_originals():
    """And ours, whose defaults say what the original did."""
    expected = {
        "text_field": "text",
        "mask_share": 0.8,
        "random_share": 0.1,
        "input_file": None,
        "output_file": None,
        "vocab_file": None,
        "do_lower_case": True,
        "strip_accents": None,
        "do_whole_word_mask": False,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "random_seed": 12345,
        "dupe_factor": 10,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
        "max_ngram": 1,
        "word_boundaries": "wordpiece",
        "objective": "mlm_nsp",
        "dynamic_masking": False,
        "num_shards": 0,
        "compression": "none",
        "drop_duplicates": False,
        "near_duplicates": 0.0,
        "languages": [],
        "boilerplate_documents": 0,
        "num_workers": 1,
        "runner": "local",
        "beam_options": "",
    }
    of_module = flags.FLAGS.flags_by_module_dict()
    defined = of_module["data.create_pretraining_data"] + of_module["data.pretraining.flags"]
    defined += of_module["data.flags"]
    assert {flag.name: flag.default for flag in defined} == expected


@pytest.mark.slow
def test_command(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    document = "One two three four.\nFour three.\nTwo two one.\n"
    (tmp_path / "1.txt").write_text(document)
    (tmp_path / "2.txt").write_text(document)
    done = run(
        f"--input_file={tmp_path}/?.txt",
        f"--output_file={tmp_path}/a.tfrecord,{tmp_path}/b.tfrecord",
        f"--vocab_file={tmp_path}/vocab.txt",
        "--max_seq_length=16",
        "--max_predictions_per_seq=3",
    )
    assert done.returncode == 0, done.stderr
    counts = [count_records(str(tmp_path / f"{n}.tfrecord")) for n in "ab"]
    assert sum(counts) >= 20 and abs(counts[0] - counts[1]) <= 1
    assert "2 documents" in done.stderr and "random next" in done.stderr

    done = run(
        f"--input_file={tmp_path}/?.txt",
        f"--output_file={tmp_path}/c.tfrecord",
        f"--vocab_file={tmp_path}/vocab.txt",
        "--mask_share=0.8",
        "--random_share=0.4",
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "make 1.2" in done.stderr and not (tmp_path / "c.tfrecord").exists()

    (tmp_path / "2.txt").unlink()
    done = run(
        f"--input_file={tmp_path}/1.txt",
        f"--output_file={tmp_path}/c.tfrecord",
        f"--vocab_file={tmp_path}/vocab.txt",
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Only one document" in done.stderr and not (tmp_path / "c.tfrecord").exists()


def test_required_flags():
    done = run("--input_file=x", "--output_file=y")
    assert done.returncode != 0 and "vocab_file" in done.stderr and "Traceback" not in done.stderr
