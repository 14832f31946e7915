"""The worked example of a task of one's own: all that the driver gives, with one script."""

import json
import re
import textwrap

import numpy as np
import pytest
import yaml

from data.errors import DataError
from data.files import tables
from tests.examples.rating import ratings, reading
from tests.fine_tuning import tiny_tasks
from tests.readme import markdown
from tests.scripts import ROOT, messages, succeed

SCRIPT = "tests.examples.run_rating"
FOLDER = ROOT / "tests/examples"
VERDICTS = ("awful", "poor", "fair", "good", "great")
BEST = ("--do_eval", "--best_metric=eval_mae", "--early_stopping_patience=5")
PRODUCTS = ("radio", "lamp", "kettle", "with", "two", "red", "switches")


def draw_pairs(count: int, seed: int) -> list[dict[str, str]]:
    """A description and a review, whose verdict is the rating."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        rating = int(draw.integers(1, 6))
        product = draw.choice(PRODUCTS, draw.integers(1, 5))
        review = f"{VERDICTS[rating - 1]} {draw.choice(PRODUCTS)}"
        rows.append({"text_a": " ".join(product), "text_b": review, "rating": str(rating)})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rating")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VERDICTS, *PRODUCTS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}
    # So small a model begins to learn sooner from larger weights.
    (folder / "config.json").write_text(json.dumps(config | {"initializer_range": 0.1}))
    for seed, (name, count) in enumerate(
        {"train": 300, "dev": 60, "test": 40, "other": 30}.items()
    ):
        tiny_tasks.write_rows(folder / f"{name}.tsv", draw_pairs(count, seed))
    return folder


def flags(folder, out, *more, train="train.tsv"):
    files = (f"--train_file={folder}/{train}", f"--dev_file={folder}/dev.tsv")
    training = ("--do_train", "--learning_rate=2e-3", "--num_train_epochs=6", "--eval_steps=50")
    _, *given = tiny_tasks.command(SCRIPT, folder, out, *files, *training, *more)
    return given


def train_steps(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["kind"] == "train"]


@pytest.fixture(scope="module")
def trained(folder):
    """The log of a run; what it left is in folder/a."""
    test = ("--do_predict", f"--test_file={folder}/test.tsv", "--do_export")
    return succeed("-m", SCRIPT, *flags(folder, "a", *BEST, *test))


@pytest.mark.slow
def test_card_and_page_say_what_the_results_say(folder, trained):
    assert "Wrote model_card.md and report.html" in trained
    scores = tiny_tasks.results(folder / "a/eval_results.txt")
    card = (folder / "a/model_card.md").read_text()
    head = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"][0]
    assert {metric["type"]: metric["value"] for metric in head["metrics"]} == {
        name: scores[f"eval_{name}"] for name in ("mae", "accuracy", "kappa", "loss")
    }
    assert "a rating from 1 to 5" in card and "modeling.predict --saved_model=" in card
    page = (folder / "a/report.html").read_text()
    assert page.count('class="mistake"') == round(60 * (1 - scores["eval_accuracy"]))


@pytest.mark.slow
def test_learns(folder, trained):
    scores = tiny_tasks.results(folder / "a/eval_results.txt")
    gold = np.array([int(row["rating"]) for row in draw_pairs(60, 1)])
    majority = ratings.evaluate(gold, np.full_like(gold, np.bincount(gold).argmax()))
    assert scores["eval_accuracy"] > 0.9 > majority["accuracy"]
    assert scores["eval_mae"] < 0.1 < majority["mae"]
    assert scores["eval_kappa"] > 0.9 > majority["kappa"] == 0
    assert "dev set at step 50" in trained and "Weights: best eval_mae" in trained
    rows = [line.split("\t") for line in (folder / "a/predictions.tsv").read_text().splitlines()]
    assert rows[0] == ["text_a", "text_b", "rating", "expected"]
    wanted = [list(row.values()) for row in draw_pairs(40, 2)]
    assert [row[:2] for row in rows[1:]] == [row[:2] for row in wanted]
    assert np.mean([row[2] == pair[2] for row, pair in zip(rows[1:], wanted, strict=True)]) > 0.9


@pytest.mark.slow
def test_the_export_answers_as_predictions_say(folder, trained):
    predictions = tables.read_table(str(folder / "a/predictions.tsv"))
    lines = succeed(
        "-m",
        "modeling.predict",
        f"--saved_model={folder}/a/export",
        f"--input_file={folder}/test.tsv",
    ).splitlines()
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    for answer, predicted in zip(answers, predictions, strict=True):
        assert answer["rating"] == int(predicted.fields["rating"])
        assert answer["expected"] == pytest.approx(float(predicted.fields["expected"]), abs=1e-4)


@pytest.mark.hours
@pytest.mark.slow
def test_again_with_other_data_and_a_search(folder, trained):
    steps = train_steps(folder / "a")
    same, other, missing, search = messages(
        SCRIPT,
        flags(folder, "a", *BEST),
        flags(folder, "a", *BEST, train="other.tsv"),
        flags(folder, "b", "--do_predict"),
        flags(folder, "c", "--do_eval", "--learning_rates=1e-6,2e-3"),
    )
    assert same == "" and train_steps(folder / "a") == steps == [50, 100, 150, 200, 225]
    assert "train_file has another content" in other
    assert "--test_file is missing" in missing
    assert search == ""
    header, *found = (folder / "c/search.tsv").read_text().splitlines()
    rows = [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in found]
    best, other = sorted(rows, key=lambda row: row["best"] != "True")
    assert len(rows) == 2 and best["learning_rate"] == "0.002"
    # The smaller error counts as better.
    assert float(best["value"]) < float(other["value"])
    scores = tiny_tasks.results(folder / "c/eval_results.txt")
    assert scores["eval_mae"] == pytest.approx(float(best["value"]))


def test_scores():
    gold, predicted = np.array([1, 3, 5, 5]), np.array([1, 3, 5, 3])
    scores = ratings.evaluate(gold, predicted)
    assert scores["mae"] == 0.5 and scores["accuracy"] == 0.75
    # 4 of squared errors; by chance (each gold rating with each predicted one, a quarter) 20.
    assert scores["kappa"] == pytest.approx(1 - 4 / 20)
    assert ratings.evaluate(gold[:1], gold[:1])["kappa"] == 0


@pytest.mark.parametrize(
    "line, message",
    [
        ("a lamp\tgood\t6", "the rating is '6'; it has to be one of 1, 2, 3, 4, 5"),
        ("a lamp\t\t4", "a text is empty"),
        ("a lamp\t4", "this row has 2 tab-separated columns"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    path = tmp_path / "bad.tsv"
    path.write_text(f"text_a\ttext_b\trating\nlamp\tfair\t3\n{line}\n")
    with pytest.raises(DataError, match=re.escape(f"{path}:3: {message}")):
        reading.read_pairs(str(path), rated=True)


def test_the_script_is_short_and_the_document_quotes_it():
    files = [path.read_text("utf-8") for path in FOLDER.rglob("*.py")]
    assert (FOLDER / "run_rating.py").read_text("utf-8").count("\n") <= 200
    text = (ROOT / "modeling/README.md").read_text("utf-8")
    section = text.partition("\n## Add a task in an hour\n")[2].partition("\n## ")[0]
    quoted = [block.text for block in markdown.blocks(section) if block.language == "python"]
    assert quoted
    for block in quoted:
        indented = textwrap.indent(block, "    ")
        assert any(block in file or indented in file for file in files), block
