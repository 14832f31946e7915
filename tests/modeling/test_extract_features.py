"""The command: the original's output, flags, order, memory, messages."""

import glob
import json

import numpy as np
import pytest
import tensorflow as tf

from data.tokenization import Tokenizer
from modeling import checkpoints
from modeling.checkpoints import tf1
from tests import scripts
from tests.reference import numpy_bert

COMMAND = ("-m", "modeling.extract_features")
CONFIG = {
    "vocab_size": 12,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]


def released(folder) -> list[str]:
    """A random model of two layers; its flags."""
    folder.mkdir()
    weights = numpy_bert.random_weights(CONFIG, seed=6)
    tf1.write_bundle(folder / "bert_model.ckpt", weights)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    return [
        f"--bert_config_file={folder}/bert_config.json",
        f"--init_checkpoint={folder}/bert_model.ckpt",
        f"--vocab_file={folder}/vocab.txt",
        "--max_seq_length=24",
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> list[str]:
    return released(tmp_path_factory.mktemp("model") / "release")


def read_lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_golden_output(golden, shared_data, tmp_path):
    scripts.succeed(
        *COMMAND,
        f"--input_file={golden}/extract_input.txt",
        f"--output_file={tmp_path}/output.jsonl",
        f"--vocab_file={shared_data}/vocab/bert-uncased-en/vocab.txt",
        f"--bert_config_file={golden}/tiny/bert_config.json",
        f"--init_checkpoint={golden}/tiny/bert_model.ckpt",
        "--layers=-1,-2,-3",
        "--max_seq_length=32",
        "--batch_size=2",
    )
    got = read_lines(tmp_path / "output.jsonl")
    wanted = read_lines(golden / "extract_features_output.jsonl")
    assert len(got) == len(wanted) == 6

    def without_values(line):
        return json.dumps(line, default=str, sort_keys=False)

    for ours, theirs in zip(got, wanted, strict=True):
        values = []
        for line in (ours, theirs):
            layers = [layer for token in line["features"] for layer in token["layers"]]
            values.append([layer.pop("values") for layer in layers])
        assert without_values(ours) == without_values(theirs)
        np.testing.assert_allclose(*values, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_fewer_than_four_layers_and_the_order(model, tmp_path):
    """Lines of all lengths, in several formats at once, against the oracle line by line."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice([*"abcdefg"], size)) for size in rng.integers(0, 22, 40)]
    (tmp_path / "input.txt").write_text("\n".join(lines) + "\n")
    weights = numpy_bert.random_weights(CONFIG, seed=6)
    ids = Tokenizer.from_vocab(VOCAB).tokenize(lines).to_list()
    rows = [np.array([[2, *row, 3]]) for row in ids]
    layers = [numpy_bert.forward(weights, CONFIG, {"input_ids": row}) for row in rows]
    layers = [[layer[0] for layer in outputs["encoder_outputs"]] for outputs in layers]

    base = [*COMMAND, *model, f"--input_file={tmp_path}/input.txt", "--batch_size=4"]
    said = scripts.succeed(*base, f"--output_file={tmp_path}/o.jsonl")
    assert "Wrote the vectors of 40 lines" in said
    for number, line in enumerate(read_lines(tmp_path / "o.jsonl")):
        assert line["linex_index"] == number
        assert [f["token"] for f in line["features"]] == ["[CLS]", *lines[number].split(), "[SEP]"]
        for place, features in enumerate(line["features"]):
            assert [layer["index"] for layer in features["layers"]] == [-1, -2]
            got = [layer["values"] for layer in features["layers"]]
            wanted = [layers[number][1][place], layers[number][0][place]]
            np.testing.assert_allclose(got, wanted, atol=1e-5)

    output = f"--output_file={tmp_path}/o.npy"
    numpy = [*base, output, "--output_format=numpy"]
    scripts.succeed(*numpy, "--pooling=max", "--normalize", "--layers=sum_all")
    wanted = [np.max(layers[number][0] + layers[number][1], 0) for number in range(40)]
    wanted = [vector / np.linalg.norm(vector) for vector in wanted]
    np.testing.assert_allclose(np.load(tmp_path / "o.npy")[:, 0], wanted, atol=1e-5)


@pytest.mark.slow
def test_export(model, tmp_path):
    scripts.succeed(*COMMAND, *model, f"--export_dir={tmp_path}/export", "--layers=-1")
    assert (tmp_path / "export/1/assets/bert_config.json").exists()
    loaded = tf.saved_model.load(str(tmp_path / "export/1"))
    got = loaded.signatures["serving_default"](text=tf.constant(["a b", ""]))["embedding"]
    assert got.shape == (2, 64)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)


def test_bad_input(model, tmp_path):
    (tmp_path / "latin1.txt").write_bytes(b"a\nna\xefve\n")
    (tmp_path / "ok.txt").write_text("a\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCAB, "h"]))
    files = (f"--input_file={tmp_path}/ok.txt", f"--output_file={tmp_path}/o")
    cases = [
        ((*model, f"--input_file={tmp_path}/absent", files[1]), "absent can't be read"),
        ((*model, f"--input_file={tmp_path}/empty.txt", files[1]), "empty.txt is empty: it has no"),
        ((*model, *files, f"--vocab_file={tmp_path}"), "is a folder; a file was expected"),
        ((*model, f"--input_file={tmp_path}/latin1.txt", files[1]), "latin1.txt:2"),
        ((*model, *files, "--layers=-3"), "from -2 to 1"),
        ((*model, *files, "--layers=-1,-2,-3,-4"), "from -2 to 1"),
        ((*model, *files, "--layers=top"), "concat_last4"),
        ((*model, *files, "--max_seq_length=33"), "max_position_embeddings 32"),
        ((*model, *files, f"--vocab_file={tmp_path}/vocab.txt"), "has 13 tokens"),
        ((*model, *files, "--pooling=mean", "--word_pooling=first"), "one of the two"),
        ((*model, *files, "--word_pooling=first", f"--export_dir={tmp_path}/e"), "the means of"),
        ((*model, *files, "--output_format=numpy"), "ends in .npy"),
        ((*model, files[0]), "given together"),
        (tuple(model), "Nothing to do"),
        ((*model, files[0], f"--output_file={tmp_path}/ok.txt/o"), "can't be written"),
        ((*model, *files, f"--init_checkpoint={tmp_path}"), "no checkpoint"),
    ]
    said = scripts.messages("modeling.extract_features", *(line for line, _ in cases))
    for message, (line, part) in zip(said, cases, strict=True):
        assert part in message, (line, message)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"empty.txt", "latin1.txt", "ok.txt", "vocab.txt"}
    assert "init_checkpoint" in scripts.run(*COMMAND, *model[:1], *files).stderr


_MEMORY = """
import json, resource, sys
sys.path.insert(0, ".")
from modeling import extract_features as command
from data.vectors import texts
from absl import flags
texts._LINES_AT_ONCE = 256
command.VALUES_AT_ONCE = 2**18
arguments, *inputs = json.load(sys.stdin)
for path in inputs:
    flags.FLAGS.unparse_flags()
    flags.FLAGS(["x", *arguments, f"--input_file={path}", f"--output_file={path}.npy"])
    command.main(["x"])
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(model, tmp_path):
    rng = np.random.default_rng(1)
    # The second run shows what it takes to make a model and a tokenizer again.
    inputs = [tmp_path / "first.txt", tmp_path / "few.txt", tmp_path / "many.txt"]
    for path, number in zip(inputs, (1_000, 3_000, 20_000), strict=True):
        sizes = rng.integers(0, 22, number)
        words = rng.choice([*"abcdefg"], sizes.sum()).tolist()
        ends = np.cumsum(sizes)
        lines = [" ".join(words[e - s : e]) for s, e in zip(sizes, ends, strict=True)]
        path.write_text("\n".join(lines) + "\n")
    arguments = [*model, "--output_format=numpy", "--layers=concat_last4"]
    asked = json.dumps([arguments, *map(str, inputs)])
    result = scripts.run("-c", _MEMORY, stdin=asked)
    assert result.returncode == 0, result.stderr[-3000:]
    peaks = [int(line.split()[1]) for line in result.stdout.splitlines() if "peak" in line]
    written = (tmp_path / "many.txt.npy").stat().st_size / 2**20
    assert written > 100
    assert peaks[2] - peaks[1] < 60, (peaks, written)


@pytest.mark.slow
def test_real_sentence_embeddings(minilm, shared_data, tmp_path):
    """Mean-pooled, normalised MiniLM against the oracle, from text to vector.

    BERT_MINILM_DIR=/tmp/minilm python -m pytest -m slow tests/modeling/test_extract_features.py
    """
    lines = []
    for path in sorted(glob.glob(f"{shared_data}/corpora/enwiki/heldout/*"))[:1]:
        with open(path, encoding="utf-8") as file:
            lines += [line.strip()[:600] for line in file if len(line) > 40 and line[0] != "<"]
    lines = lines[:48]
    (tmp_path / "input.txt").write_text("\n".join(lines) + "\n", "utf-8")
    scripts.succeed(
        *COMMAND,
        f"--input_file={tmp_path}/input.txt",
        f"--output_file={tmp_path}/o.npy",
        f"--vocab_file={minilm}/vocab.txt",
        f"--bert_config_file={minilm}/config.json",
        f"--init_checkpoint={minilm}/model.safetensors",
        "--layers=-1",
        "--pooling=mean",
        "--normalize",
        "--output_format=numpy",
    )
    got = np.load(tmp_path / "o.npy")[:, 0]
    checkpoints.convert(minilm, tmp_path / "tf1", "tf1")
    weights = tf1.read_bundle(checkpoints.find(tmp_path / "tf1")[1])
    config = json.loads((tmp_path / "tf1/bert_config.json").read_text("utf-8"))
    pieces = Tokenizer(str(minilm / "vocab.txt")).tokenize(lines).to_list()
    for vector, row in zip(got, pieces, strict=True):
        ids = np.array([[101, *row[:126], 102]])
        mean = numpy_bert.forward(weights, config, {"input_ids": ids})["sequence_output"][0].mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=0, atol=1e-4)
