"""The command, as a user runs it."""

import dataclasses
import gzip
import json
import shutil
import subprocess

import numpy as np
import pytest

import modeling
from data.errors import DataError
from data.tokenization import build_inputs, vocabulary
from modeling import checkpoints
from modeling.checkpoints.model_folder import keep_model_files
from modeling.checkpoints.vocabularies import TextFolding, describe_vocabulary
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertModel
from tests.scripts import messages, run


def learn(*arguments: str) -> subprocess.CompletedProcess:
    return run("-m", "data.learn_vocabulary", *arguments)


def test_command(tmp_path):
    documents = [
        f"Sentence {number} talks about walking.\nAnother one jumps and plays on.\n"
        for number in range(200)
    ]
    (tmp_path / "a.txt").write_text("\n".join(documents[:100]), encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(documents[100:]), encoding="utf-8")
    output = tmp_path / "vocab.txt"
    done = learn(
        f"--input_file={tmp_path}/?.txt",
        f"--output_file={output}",
        "--vocab_size=120",
        "--heldout_share=0.1",
        "--reserved_tokens=[A],[B]",
    )
    assert done.returncode == 0, done.stderr
    assert "pieces per word" in done.stdout
    assert "[UNK]" in done.stdout
    tokens = output.read_text(encoding="utf-8").splitlines()
    assert len(tokens) == 120
    assert {"[A]", "[B]", "sentence", "walking"} <= set(tokens)


def test_extending_through_the_command(tmp_path):
    source, output = tmp_path / "vocab.txt", tmp_path / "extended.txt"
    tokens = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028"]
    tokens += [*"abcdeorst", *(f"##{letter}" for letter in "abcdeorst")]
    source.write_text("\n".join(tokens), encoding="utf-8")
    rows = [json.dumps({"body": f"tensor boats\n{letter} tensor."}) for letter in "abc" * 60]
    with gzip.open(tmp_path / "domain.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(rows))
    done = learn(
        f"--extend={source}",
        f"--input_file={tmp_path}/domain.jsonl.gz",
        "--text_field=body",
        f"--output_file={output}",
        "--heldout_share=0.2",
    )
    assert done.returncode == 0, done.stderr
    assert "26 tokens; 2 [unusedN] places filled, 0 free: " in done.stdout
    assert "before: " in done.stdout and "after: " in done.stdout
    lines = output.read_text(encoding="utf-8").split("\n")
    assert set(lines[1:3]) == {"boats", "tensor"}
    assert lines[:1] + lines[3:] == tokens[:1] + tokens[3:]


@pytest.mark.slow
def test_accents_that_stay(tmp_path):
    assert "--[no]strip_accents: " in learn("--help").stdout
    (tmp_path / "a.txt").write_text("Das Kleid ist SCHÖN.\n\nEs ist schon sehr schön.\n\n" * 99)
    line = (f"--input_file={tmp_path}/a.txt", "--reserved_tokens=grün", "--vocab_size=80")
    output = tmp_path / "vocab.txt"
    done = learn(*line, f"--output_file={output}", "--strip_accents=false")
    assert done.returncode == 0, done.stderr
    assert {"schön", "schon", "grün"} <= set(output.read_text(encoding="utf-8").splitlines())
    done = learn(*line, f"--output_file={output}")
    assert "'grün' (tokenization sees grun)" in done.stderr
    released = tmp_path / "released.txt"
    letters = sorted({*"daskleidistschönehrgrü."})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{n}]" for n in range(6))]
    released.write_text("\n".join([*tokens, *letters, *(f"##{letter}" for letter in letters)]))
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": false}')
    done = learn(*line[:2], f"--extend={released}", f"--output_file={output}")
    assert done.returncode == 0, done.stderr
    assert {"schön", "schon", "grün"} <= set(output.read_text(encoding="utf-8").splitlines())


def test_user_errors_are_one_paragraph(tmp_path):
    done = learn(f"--input_file={tmp_path}/none*", f"--output_file={tmp_path}/v.txt")
    assert done.returncode == 1
    assert f"{tmp_path}/none*" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "v.txt").exists()


def test_unwritable_place_shows_before_the_work(tmp_path):
    with pytest.raises(DataError, match="absent"):
        vocabulary.check_writable(str(tmp_path / "absent" / "v.txt"))
    vocabulary.check_writable(str(tmp_path / "v.txt"))
    assert list(tmp_path.iterdir()) == []


TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "good", "bad", "actor"]
TOKENS += ["##s", *"abcdefgilmnort", *(f"##{letter}" for letter in "abcdefgilmnort")]
CONFIG = BertConfig(
    vocab_size=len(TOKENS) + 3,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=8,
)


@pytest.fixture
def model(tmp_path):
    """A fine-tuned model as its run leaves it, in the run's folder and that of its best weights."""
    folder = tmp_path / "run"
    (tmp_path / "words.txt").write_text("\n".join(TOKENS) + "\n")
    config = CONFIG.with_head("classes", ["no", "yes"])
    classifier = BertClassifier(config, 2)
    keep_model_files(str(folder), config, str(tmp_path / "words.txt"), TextFolding(True, False))
    checkpoints.save(classifier, folder / "best")
    for name in ("bert_config.json", "vocab.txt"):
        (folder / "best" / name).unlink(missing_ok=True)
    (folder / "labels.json").write_text('{"labels": ["no", "yes"]}')
    (folder / "temperature.json").write_text('{"temperature": 1.5}')
    (tmp_path / "corpus.txt").write_text("Good films\nBad film fims\n\nGood gööd.\n")
    return folder


def test_pruning_a_vocabulary(tmp_path, model):
    output = tmp_path / "pruned.txt"
    done = learn(
        f"--prune={model}/vocab.txt",
        f"--input_file={tmp_path}/corpus.txt",
        f"--output_file={output}",
        "--reserved_tokens=actor",
    )
    assert done.returncode == 0, done.stderr
    kept = [token for token in TOKENS if token != "[unused0]"]
    assert output.read_text(encoding="utf-8").splitlines() == kept
    assert "38 of 39 pieces stay; all of the corpus's 8 words are cut as before" in done.stdout


@pytest.mark.slow
def test_pruning_a_model(tmp_path, model):
    output = tmp_path / "small"
    line = (f"--prune={model}", f"--input_file={tmp_path}/corpus.txt", f"--output_dir={output}")
    done = learn(*line)
    assert done.returncode == 0, done.stderr
    assert f"{output}: 37 of 39 pieces stay; all of" in done.stdout
    # "gööd" keeps its accents, as the model's own files say; the full stop isn't in there either.
    assert "[UNK]: 25.0000% of them before, 25.0000% now; weights: 0.0 MB before" in done.stdout
    assert "3 rows beyond the vocabulary were dropped." in done.stdout
    assert {path.name for path in output.iterdir()} == {
        *("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "bert_config.json"),
        *("vocab.txt", "tokenizer_config.json", "labels.json", "temperature.json"),
    }
    before, now = (modeling.from_pretrained(folder) for folder in (model, output))
    assert now.config.labels == ["no", "yes"] and now.config.vocab_size == 37
    assert now.tokenizer.vocab == [t for t in TOKENS if t not in ("[unused0]", "actor")]
    texts = ["Good films", "Bad film fims", "Good gööd."]
    cut = [each.tokenizer.ids_to_tokens(each.tokenizer.tokenize(texts)) for each in (before, now)]
    assert cut[0] == cut[1]
    logits = [
        each.model(build_inputs(each.tokenizer, texts, [""] * 3, 8)) for each in (before, now)
    ]
    np.testing.assert_allclose(logits[1]["logits"], logits[0]["logits"], atol=1e-6)
    again = learn(*line, "--output_dir=" + str(tmp_path / "smaller"), f"--prune={output}")
    assert "37 of 37 pieces stay" in again.stdout, again.stderr


@pytest.mark.slow
def test_a_vocabulary_that_is_not_the_models(tmp_path, model):
    """The note beside the weights says so; each word would be given another's row."""
    ours, theirs = tmp_path / "ours", f"{model}/vocab.txt"
    checkpoints.save(BertModel(CONFIG), ours)
    described = json.dumps(describe_vocabulary(theirs))
    (ours / "bert_model.ckpt.vocabulary").write_text(described)
    (ours / "vocab.txt").write_text("\n".join([*TOKENS[:-2], TOKENS[-1], TOKENS[-2]]) + "\n")
    line = f"--prune={ours}", f"--input_file={tmp_path}/corpus.txt", f"--output_dir={tmp_path}/o"
    done = learn(*line)
    assert done.returncode and "vocabulary" in done.stderr and not (tmp_path / "o").exists()
    with pytest.raises(ModelingError, match="vocabulary"):
        modeling.from_pretrained(ours)


def test_what_pruning_refuses(tmp_path, model):
    corpus, small = f"--input_file={tmp_path}/corpus.txt", f"--output_dir={tmp_path}/small"
    vocab, release = f"{model}/vocab.txt", tmp_path / "release"
    checkpoints.save(BertModel(CONFIG), release)
    fewer = tmp_path / "fewer"
    checkpoints.save(BertModel(dataclasses.replace(CONFIG, vocab_size=7)), fewer)
    (fewer / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    cased = tmp_path / "cased.txt"
    cased.write_text("\n".join([*TOKENS, *(f"Word{letter}" for letter in "ABCDEFGH")]))
    lines = {
        (
            f"--prune={vocab}",
            f"--extend={vocab}",
            corpus,
            f"--output_file={vocab}2",
        ): "--extend puts",
        (f"--prune={vocab}", corpus): "needs either --output_file",
        (
            f"--prune={model}",
            corpus,
            small,
            f"--output_file={vocab}2",
        ): "needs either --output_file",
        (f"--prune={model}", corpus, f"--output_file={vocab}2"): "is a folder; a file was expected",
        (f"--prune={vocab}", corpus, small): "vocab.txt is no checkpoint file",
        (f"--prune={model}", small): "--prune needs --input_file",
        (f"--prune={model}", corpus, small, "--vocab_size=9"): "--vocab_size would do nothing",
        (
            f"--extend={vocab}",
            corpus,
            f"--output_file={vocab}2",
            "--character_coverage=0.9",
        ): "--character_coverage would do",
        (
            f"--extend={vocab}",
            "--reserved_tokens=actor",
            f"--output_file={vocab}2",
            "--min_frequency=3",
        ): "--min_frequency would do nothing",
        (f"--prune={model}", corpus, small, "--strip_accents"): "the model's own files say False",
        (f"--prune={release}", corpus, small): "release has no vocabulary",
        (f"--prune={tmp_path}/none", corpus, small): "There is no checkpoint at",
        (f"--prune={fewer}", corpus, small): "for 7 tokens, and its vocabulary has 39",
        (f"--prune={cased}", corpus, f"--output_file={vocab}2"): "Give --do_lower_case=False",
        (f"--prune={vocab}", corpus, f"--output_file={vocab}"): "would overwrite",
        (f"--prune={fewer}", corpus, f"--output_dir={fewer}"): "for 7 tokens",
        (corpus, small): "--output_dir is for a model whose vocabulary is pruned",
        (corpus,): "--output_file is missing",
    }
    told = messages("data.learn_vocabulary", *lines)
    for line, message, words in zip(lines, told, lines.values(), strict=True):
        assert words in message, (line, message)
    assert not (tmp_path / "small").exists()
    shutil.copy(tmp_path / "words.txt", release / "vocab.txt")
    line = (f"--prune={release}", corpus, f"--output_dir={release}")
    assert "would overwrite" in messages("data.learn_vocabulary", line)[0]
    assert "--prune: " in learn("--help").stdout
