"""A loss that diverges is a paragraph that names the examples; in a search, one run that failed."""

import pyarrow
import pyarrow.parquet
import pytest

from tests.fine_tuning.tiny_tasks import classifier, sentences, write_model
from tests.scripts import fail, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Parquet: its rows have numbers, its lines none."""
    folder = tmp_path_factory.mktemp("diverging")
    write_model(folder)
    for name, count in (("train", 24), ("dev", 8)):
        table = pyarrow.Table.from_pylist(sentences(count, len(name)))
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    return folder


TRAIN = ("--do_train", "--train_file=train.parquet", "--dev_file=dev.parquet")
COLUMNS = ("--text_columns=text", "--label_column=verdict", "--num_train_steps=6")


def test_names_the_rows_of_a_parquet_file(folder):
    message = fail(*classifier(folder, "one", *TRAIN, *COLUMNS, "--learning_rate=1e30"))
    assert "The loss is" in message and "Lower the learning rate" in message
    held = message.partition("The batch held ")[2].partition(". ")[0]
    file, _, rows = held.partition(": rows ")
    assert file.endswith("train.parquet"), message
    numbers = [int(number) for number in rows.split(", ")]
    assert len(numbers) == 8 and set(numbers) <= set(range(1, 25)), message


@pytest.mark.slow
def test_search_goes_on_behind_a_run_that_diverged(folder):
    log = succeed(*classifier(folder, "search", *TRAIN, *COLUMNS, "--learning_rates=1e30,0.001"))
    assert "This run has diverged" in log
    lines = (folder / "search" / "search.tsv").read_text().splitlines()
    names, diverged, sound = [line.split("\t") for line in lines]
    diverged, sound = dict(zip(names, diverged, strict=True)), dict(zip(names, sound, strict=True))
    assert diverged["value"] == "nan" and diverged["degenerate"] == "True"
    assert float(sound["value"]) >= 0 and sound["best"] == "True"
