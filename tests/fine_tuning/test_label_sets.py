"""A trained output folder keeps its label set: data of another one are refused."""

import pytest

from tests.fine_tuning.tiny_tasks import (
    classifier,
    sentences,
    tagger,
    write_model,
    write_rows,
    write_tags,
)
from tests.scripts import messages

TRAIN = ("--do_train", "--num_train_steps=2")


def check(script, folder, first, others):
    """The first command trains, the others are refused, and the folder "out" stays as it was.

    Args:
        script: Which all of them are of.
        folder: That holds the output folder.
        first: Command line.
        others: Command lines, by a label that the folder's label set lacks.
    """
    (said,) = messages(script, first[1:])
    assert said == ""
    out = folder / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    said = messages(script, *(line[1:] for line in others.values()))
    # A refused command tells in the summary that there was one, as in TensorBoard's file.
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    both = [{n: v for n, v in x.items() if n != "run_summary.json"} for x in (before, after)]
    assert both[0] == both[1]
    for label, message in zip(others, said, strict=True):
        known = "LOC" if script == "run_ner.py" else "bad, good"
        assert known in message and label in message, message
        assert "--output_dir" in message, message


@pytest.mark.parametrize("steps", ["--num_train_steps=2", "--num_train_steps=4"])
def test_sentences(tmp_path, steps):
    """As many labels of other names, or more of them; the run being finished or not."""
    write_model(tmp_path)
    write_rows(tmp_path / "train.tsv", sentences(24, 0))
    write_rows(tmp_path / "renamed.tsv", sentences(24, 0, ("yes", "no")))
    write_rows(tmp_path / "three.tsv", sentences(24, 0, ("good", "bad", "neutral")))
    columns = ("--text_columns=text", "--label_column=verdict")

    def line(name, *more):
        return classifier(tmp_path, "out", *TRAIN, *columns, f"--train_file={name}", *more)

    others = {"no, yes": line("renamed.tsv", steps), "neutral": line("three.tsv", steps)}
    check("run_classifier.py", tmp_path, line("train.tsv"), others)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["--num_train_steps=2", "--num_train_steps=4"])
def test_tags(tmp_path, steps):
    write_model(tmp_path)
    write_tags(tmp_path / "train.txt", 12, 0)
    write_tags(tmp_path / "renamed.txt", 12, 0, ("ORG", "MISC"))

    def line(name, *more):
        return tagger(tmp_path, "out", *TRAIN, f"--train_file={name}", *more)

    others = {"ORG": line("renamed.txt", steps)}
    check("run_ner.py", tmp_path, line("train.txt"), others)
