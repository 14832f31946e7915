"""modeling.predict as users run it: files, standard input, pipes; an export of this project."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.scripts import ROOT, messages, run, succeed

COMMAND = ("-m", "modeling.predict")
WORDS = ["good", "bad", "film", "the", "a", "was", "very", "plot", "and"]


class Lengths(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text):
        length = tf.strings.length(text)
        fine = tf.debugging.Assert(tf.reduce_all(length != 13), ["thirteen"])
        with tf.control_dependencies([fine]):
            return {
                "length": length,
                "text": tf.strings.upper(text),
                "both": tf.stack([text] * 2, 1),
            }


@pytest.fixture(scope="module")
def lengths(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("models")
    module = Lengths()
    tf.saved_model.save(module, str(path / "3"), signatures=module.serve)
    return f"--saved_model={path}"


def answers(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_an_export_answers_as_prediction_did(tmp_path):
    rng = np.random.default_rng(0)
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(1, 14, 300)]
    (tmp_path / "train.tsv").write_text(
        "sentence\tlabel\n" + "".join(f"{t}\t{'good' in t:d}\n" for t in texts[:64])
    )
    (tmp_path / "test.tsv").write_text(
        "index\tsentence\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(texts))
    )
    succeed(
        "run_classifier.py",
        "--task_name=sst-2",
        f"--data_dir={tmp_path}",
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--bert_config_file={tmp_path}/config.json",
        f"--output_dir={tmp_path}/out",
        "--max_seq_length=16",
        *("--do_train", "--train_batch_size=16", "--learning_rate=3e-3", "--num_train_epochs=1"),
        *("--do_predict", "--do_export"),
    )
    wanted = np.loadtxt(tmp_path / "out" / "test_results.tsv", delimiter="\t")
    (tmp_path / "asked.jsonl").write_text(
        "".join(json.dumps({"id": i, "text_a": text}) + "\n" for i, text in enumerate(texts))
    )
    log = succeed(
        *COMMAND,
        f"--saved_model={tmp_path}/out/export",
        f"--input_file={tmp_path}/asked.jsonl",
        f"--output_file={tmp_path}/answers.jsonl",
        "--batch_size=8",
    )
    assert "Taking version 1" in log and "300 examples in" in log
    got = answers((tmp_path / "answers.jsonl").read_text())
    assert [line["id"] for line in got] == list(range(300))
    np.testing.assert_allclose([line["probabilities"] for line in got], wanted, atol=1e-6)
    assert [line["label"] for line in got] == [str(row.argmax()) for row in wanted]
    # The signature of the model's own ids.
    line = {"input_ids": [2, 5, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]}
    tokenized = [*COMMAND, f"--saved_model={tmp_path}/out/export/1", "--signature=tokenized"]
    result = run(*tokenized, stdin=json.dumps(line))
    (got,) = answers(result.stdout)
    assert got["label"] in ("0", "1") and len(got["probabilities"]) == 2


def test_standard_input_and_output(lengths):
    result = run(*COMMAND, lengths, stdin="abc\n\nxy")
    assert [line["length"] for line in answers(result.stdout)] == [3, 0, 2]
    assert answers(result.stdout)[0] == {"both": ["abc", "abc"], "length": 3, "text": "ABC"}
    assert "3 examples in" in result.stderr
    result = run(*COMMAND, lengths, stdin='{"id": 1, "text": "é"}')
    assert answers(result.stdout) == [{"id": 1, "both": ["é", "é"], "length": 2, "text": "é"}]
    result = run(*COMMAND, lengths, "--output_format=tsv", stdin="abc\n")
    assert result.stdout == "length\ttext\n3\tABC\n"
    assert "lists: both" in result.stderr


def test_bad_lines(lengths, tmp_path):
    (tmp_path / "a.tsv").write_text("id\ttext\n1\tx\n2\n3\t1234567890123\n4\ty\n")
    base = [*COMMAND, lengths, f"--input_file={tmp_path}/a.tsv"]
    result = run(*base, "--skip_bad_lines")
    assert result.returncode == 0 and "4 examples" in result.stderr and "2 bad" in result.stderr
    got = answers(result.stdout)
    assert got[0]["length"] == got[3]["length"] == 1
    assert "a.tsv:3: this row has 1" in got[1]["error"]
    assert got[2]["id"] == "3" and "a.tsv:4" in got[2]["error"] and "thirteen" in got[2]["error"]
    result = run(*base)
    assert result.returncode == 1 and "a.tsv:3" in result.stderr
    assert [line["id"] for line in answers(result.stdout)] == ["1"]
    assert "Traceback" not in result.stderr


def test_what_is_wrong(lengths, tmp_path):
    (tmp_path / "ok.txt").write_text("abc\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.txt").write_text("abc\n1234567890123\n")
    ok = f"--input_file={tmp_path}/ok.txt"
    output = f"--output_file={tmp_path}/o"
    cases = [
        ((f"--saved_model={tmp_path}", ok), "isn't a SavedModel"),
        ((lengths, ok, "--signature=words"), "it has serving_default"),
        ((lengths, f"--input_file={tmp_path}/absent"), "matches no file"),
        ((lengths, f"--input_file={tmp_path}/empty.txt", output), "empty.txt is empty"),
        ((lengths, ok, "--input_format=jsonl", output), "ok.txt:1: this line isn't JSON"),
        ((lengths, ok, "--input_format=csv", output), "a header that names the model's inputs"),
        ((lengths, f"--input_file={tmp_path}/bad.txt", output), "bad.txt:2: the model refuses it"),
        ((lengths, ok, f"--output_file={tmp_path}/ok.txt"), "one of the input files"),
        ((lengths, ok, f"--output_file={tmp_path}/ok.txt/o"), "can't be written"),
    ]
    said = messages("modeling.predict", *(line for line, _ in cases))
    for message, (line, part) in zip(said, cases, strict=True):
        assert part in message, (line, message)
    assert {p.name for p in tmp_path.iterdir()} == {"ok.txt", "empty.txt", "bad.txt"}


@pytest.fixture
def piped(lengths):
    process = subprocess.Popen(
        [sys.executable, *COMMAND, lengths],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.communicate()


def test_a_pipe_gets_its_answers_line_by_line(piped):
    """And ends quietly when nobody reads them any more, though more lines may come."""
    for text in (b"abc", b"", b"1234567890"):
        piped.stdin.write(text + b"\n")
        piped.stdin.flush()
        assert json.loads(piped.stdout.readline())["length"] == len(text)
    piped.stdout.close()
    end = time.monotonic() + 60
    while piped.poll() is None and time.monotonic() < end:
        try:
            piped.stdin.write(b"x\n")
            piped.stdin.flush()
        except BrokenPipeError:
            break
        time.sleep(0.05)
    assert piped.wait(60) == 0
    said = piped.stderr.read().decode()
    assert "Traceback" not in said and "Error" not in said and "Exception" not in said, said


def test_an_error_ends_it_while_the_pipe_is_open(piped):
    piped.stdin.write(b"abc\n1234567890123\n")
    piped.stdin.flush()
    assert piped.wait(120) == 1
    assert json.loads(piped.stdout.readline())["length"] == 3
    said = piped.stderr.read().decode()
    assert "standard input:2: the model refuses it" in " ".join(said.split())
    assert "Traceback" not in said and "Fatal" not in said


_MEMORY = """
import json, resource, sys
sys.path.insert(0, ".")
from modeling import predict as command
from absl import flags
model, *inputs = json.load(sys.stdin)
for path in inputs:
    flags.FLAGS.unparse_flags()
    flags.FLAGS(["x", model, f"--input_file={path}", f"--output_file={path}.jsonl"])
    command.main(["x"])
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_input(lengths, tmp_path):
    for name, number in (("few", 10_000), ("many", 60_000)):
        with open(tmp_path / name, "w") as file:
            for size in np.random.default_rng(1).integers(100, 900, number):
                file.write("x" * int(size) + "\n")
    asked = json.dumps([lengths, f"{tmp_path}/few", f"{tmp_path}/many"])
    result = run("-c", _MEMORY, stdin=asked)
    assert result.returncode == 0, result.stderr[-3000:]
    few, many = (int(line.split()[1]) for line in result.stdout.splitlines() if "peak" in line)
    assert (tmp_path / "many.jsonl").stat().st_size > 80 * 2**20
    assert many - few < 25
