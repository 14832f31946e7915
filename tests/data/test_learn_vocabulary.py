"""The command, as a user runs it."""

import gzip
import json
import subprocess

import pytest

from data.errors import DataError
from data.tokenization import vocabulary
from tests.scripts import run


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
    line = (*line[:2], f"--extend={released}", f"--output_file={output}", "--strip_accents=false")
    done = learn(*line)
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
