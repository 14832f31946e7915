"""Card and page of a run say what its files of predictions say, recomputed here one by one."""

import html
import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers its ops
import yaml
from scipy import special
from sklearn import metrics as sk

from data.tasks.questions.metrics import score_answer
from modeling.answers.confidence import fit_platt_calibration, fit_temperature
from modeling.answers.thresholds import halves_drawn
from tests.fine_tuning.calibration_reference import expected_error
from tests.fine_tuning.tiny_tasks import (
    answerer,
    classifier,
    sentences,
    tagger,
    write_model,
    write_questions,
    write_rows,
    write_tags,
)
from tests.scripts import fail, succeed

HOSTILE = "<script>alert('film')</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_model(folder)
    return folder


def head(out):
    """The results in the card's head: {(data, metric): value}."""
    text = (out / "model_card.md").read_text()
    content = yaml.safe_load(text.split("---")[1])
    return {
        (result["dataset"]["name"], metric["type"]): metric["value"]
        for result in content["model-index"][0]["results"]
        for metric in result["metrics"]
    }


def shown(out):
    """The texts of the page, one after the other, each on a line."""
    text = (out / "report.html").read_text()
    assert "<script" not in text and not re.search(r"https?://|<img|<link", text)
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    lines = (html.unescape(part).strip() for part in re.split(r"<[^>]*>", text))
    return "\n".join(line for line in lines if line)


def expected_errors(out):
    return re.findall(r"Expected calibration error ([\d.]+) over", shown(out))


def table(path):
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def trained(folder, name, *more):
    files = [f"--{part}_file=dev_{name}.tsv" for part in ("dev", "test")]
    flags = ("--do_train", "--do_eval", "--do_predict", "--num_train_steps=20", *more)
    flags += ("--learning_rate=2e-3", "--text_columns=text", f"--train_file=train_{name}.tsv")
    succeed(*classifier(folder, name, *files, *flags))
    return folder / name


def write_both(folder, name, rows):
    write_rows(folder / f"train_{name}.tsv", rows(120, 0))
    write_rows(folder / f"dev_{name}.tsv", rows(50, 1))


@pytest.mark.slow
def test_classes(folder):
    def rows(count, seed):
        rows = sentences(count, seed, labels=("good", HOSTILE))
        draw = np.random.default_rng(seed)
        for row in rows:
            if draw.random() < 0.3:  # so that some are wrong
                row["verdict"] = "good"
        rows[1]["text"] = f"{HOSTILE} {rows[1]['text']} " + "film " * 20
        return rows

    write_both(folder, "classes", rows)
    out = trained(folder, "classes", "--label_column=verdict")
    given, page = table(out / "predictions.tsv"), shown(out)
    gold = [row["gold"] for row in given]
    answered = [row["label"] for row in given]
    right = np.array(gold) == np.array(answered)
    sure = np.array([max(float(row["good"]), float(row[HOSTILE])) for row in given])
    assert head(out)["dev_classes.tsv", "accuracy"] == pytest.approx(right.mean(), abs=1e-12)
    assert f"accuracy\n{right.mean():.4f}\n" in page
    for name in (HOSTILE, "good"):
        p, r, f, n = (
            x[0]
            for x in sk.precision_recall_fscore_support(
                gold, answered, labels=[name], zero_division=0
            )
        )
        assert f"{name}\n{p:.3f}\n{r:.3f}\n{f:.3f}\n{n}\n" in page
        row = [
            f"{sum(g == name and a == other for g, a in zip(gold, answered, strict=True))}"
            for other in (HOSTILE, "good")
        ]
        assert re.search(rf"\n{re.escape(name)}\n{row[0]}\n[\d.]+%\n{row[1]}\n", page)
    error = expected_error(sure, right, 15)
    assert f"Expected calibration error {error:.4f} over 50 answers, 15 bins" in page
    logits = np.log([[float(row[HOSTILE]), float(row["good"])] for row in given])
    of_half, label_ids = np.zeros(50), np.array([name == "good" for name in gold], int)
    for half, other in halves_drawn(50):
        temperature = fit_temperature(logits[other], label_ids[other])
        of_half[half] = special.softmax(logits[half] / temperature, 1).max(1)
    after = expected_error(of_half, right, 15)
    assert f"Expected calibration error {after:.4f} over 50 answers, 15 bins" in page
    card = (out / "model_card.md").read_text()
    for name, value in {"the answer": error, "and judged on the other": after}.items():
        assert f"{name}: expected calibration error {value:.4f} over 15 bins" in card
    wrong = sorted(sure[~right], reverse=True)[:20]
    assert re.findall(r"confidence (0\.\d+) · dev_classes.tsv", page) == [f"{p:.3f}" for p in wrong]
    assert "1 of 50 examples were cut" in page
    lengths = [min(len(row["text"].split()) + 2, 16) for row in rows(50, 1)]
    assert f"≤ {max(lengths)}" in page
    # Written again by an evaluation alone, the curves of the training too.
    (out / "report.html").unlink()
    files = ("--dev_file=dev_classes.tsv", "--text_columns=text", "--label_column=verdict")
    files += ("--test_file=dev_classes.tsv", "--temperature=tuned")
    succeed(*classifier(folder, "classes", "--do_eval", "--do_predict", "--do_export", *files))
    assert "loss" in shown(out) and "--temperature=tuned" in shown(out)
    assert expected_errors(out) == [f"{error:.4f}", f"{after:.4f}"]
    # The predictions and the export have the temperature, and the labels that they had.
    temperature = json.loads((out / "temperature.json").read_text())["temperature"]
    assert temperature == pytest.approx(fit_temperature(logits, label_ids), rel=1e-5)
    assert f"likeliest is {temperature:.4f};" in shown(out)
    tempered = table(out / "predictions.tsv")
    assert [row["label"] for row in tempered] == answered
    told = np.array([[float(row[HOSTILE]), float(row["good"])] for row in tempered])
    np.testing.assert_allclose(told, special.softmax(logits / temperature, 1), atol=1e-6)
    assert np.abs(told - np.exp(logits)).max() > 1e-3
    assert np.array_equal(np.loadtxt(out / "test_results.tsv"), told)
    kept = [folder / "temperature.json" for folder in (out, out / "export/1/assets")]
    assert len({json.loads(path.read_text())["temperature"] for path in kept}) == 1
    signatures = tf.saved_model.load(str(out / "export/1")).signatures
    texts = [row["text"] for row in rows(50, 1)]
    told_of = signatures["serving_default"](text_a=tf.constant(texts))
    np.testing.assert_allclose(told_of["probabilities"], told, atol=1e-6)
    np.testing.assert_allclose(told_of["score"], told.max(1), atol=1e-6)
    assert [name.decode() for name in told_of["label"].numpy()] == answered
    assert told_of["labels"][0].numpy().tolist() == [HOSTILE.encode(), b"good"]
    ids = {"input_ids": [[2, 5, 3]], "input_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 0]]}
    by_ids = signatures["tokenized"](**{key: tf.constant(value) for key, value in ids.items()})
    by_text = signatures["serving_default"](text_a=tf.constant(["good"]))
    np.testing.assert_allclose(by_ids["probabilities"], by_text["probabilities"], atol=1e-6)


@pytest.mark.slow
def test_numbers(folder):
    def rows(count, seed):
        draw = np.random.default_rng(seed)
        return [
            {"text": row["text"], "score": f"{len(row['text']) + draw.random():.3f}"}
            for row in sentences(count, seed)
        ]

    write_both(folder, "numbers", rows)
    out = trained(folder, "numbers", "--label_column=score", "--label_kind=regression")
    given, page = table(out / "predictions.tsv"), shown(out)
    gold, answered = (np.array([float(row[n]) for row in given]) for n in ("gold", "prediction"))
    expected = np.corrcoef(gold, answered)[0, 1]
    assert head(out)["dev_numbers.tsv", "pearson"] == pytest.approx(expected, abs=1e-4)
    off = sorted(np.abs(gold - answered), reverse=True)[:20]
    values = [float(v) for v in re.findall(r"absolute error (\d+\.\d+) · dev_numbers", page)]
    assert values == pytest.approx(off, abs=2e-3)
    assert (out / "report.html").read_text().count("<circle") >= 50


@pytest.mark.slow
def test_several_labels(folder):
    def rows(count, seed):
        names = ("good", "bad", "film")
        return [
            {"text": row["text"], "labels": ",".join(n for n in names if n in row["text"])}
            for row in sentences(count, seed)
        ]

    write_both(folder, "labels", rows)
    out = trained(folder, "labels", "--label_column=labels", "--label_kind=multi_label")
    given, page = table(out / "predictions.tsv"), shown(out)
    names = ("bad", "film", "good")
    gold = np.array([[name in row["gold"].split(",") for name in names] for row in given])
    sure = np.array([[float(row[name]) for name in names] for row in given])
    answered = sure >= 0.5
    for name, a, b in zip(names, gold.T, answered.T, strict=True):
        counts = [(a & b).sum(), (b & ~a).sum(), (a & ~b).sum(), (~a & ~b).sum()]
        assert "\n".join([name, *map(str, counts)]) in page
    micro = sk.f1_score(gold, answered, average="micro", zero_division=0)
    assert head(out)["dev_labels.tsv", "micro_f1"] == pytest.approx(micro, abs=1e-12)
    error = expected_error(np.maximum(sure, 1 - sure).ravel(), (gold == answered).ravel(), 15)
    assert f"Expected calibration error {error:.4f} over 150 answers" in page


@pytest.mark.slow
def test_thresholds_are_tuned_kept_and_exported(folder):
    """predictions.tsv and the export predict with those that --do_eval has found."""
    names = ("bad", "film", "good")

    def rows(count, seed):
        draw = np.random.default_rng(seed)
        rows = []
        for row in sentences(count, seed):
            chosen = [n for n in names if n in row["text"].split() and draw.random() < 0.7]
            rows.append({"text": row["text"], "labels": ",".join(chosen)})
        return rows

    write_both(folder, "tuned", rows)
    column = ("--label_column=labels", "--label_kind=multi_label")
    out = trained(folder, "tuned", *column, "--label_thresholds=tuned", "--do_export")
    kept = json.loads((out / "label_thresholds.json").read_text())
    assert len(kept.pop("weights")) == 32
    assert set(kept) == set(names) and set(kept.values()) != {0.5}
    exported = json.loads((out / "export/1/assets/label_thresholds.json").read_text())
    assert exported == [kept[name] for name in names]
    given = table(out / "predictions.tsv")
    for row in given:
        chosen = [n for n in names if np.float32(row[n]) >= np.float32(kept[n])]
        assert row["labels"] == ",".join(chosen)
    asked = "".join(json.dumps({"text_a": row["text"]}) + "\n" for row in rows(50, 1))
    (folder / "asked.jsonl").write_text(asked)
    files = (f"--input_file={folder}/asked.jsonl", f"--output_file={folder}/answers.jsonl")
    succeed("-m", "modeling.predict", f"--saved_model={out}/export", *files)
    answers = list(map(json.loads, (folder / "answers.jsonl").read_text().splitlines()))
    assert [",".join(filter(None, answer["predicted"])) for answer in answers] == [
        row["labels"] for row in given
    ]
    # The scores stay those of 0.5; the page has both, and what other examples say.
    gold = np.array([[name in row["gold"].split(",") for name in names] for row in given])
    sure = np.array([[np.float32(row[name]) for name in names] for row in given])
    tuned = np.array([[name in row["labels"].split(",") for name in names] for row in given])
    micro = {
        way: [sk.f1_score(gold, p, average=a, zero_division=0) for a in ("micro", "macro")]
        for way, p in {"0.5 for all": sure >= 0.5, "tuned on these examples": tuned}.items()
    }
    assert head(out)["dev_tuned.tsv", "micro_f1"] == pytest.approx(micro["0.5 for all"][0])
    page = shown(out)
    for way, (of_all, of_labels) in micro.items():
        assert f"{way}\n{of_all:.3f}\n{of_labels:.3f}\n" in page
    assert "tuned on one half, judged on the other" in page and "optimistic" in page
    tuned_f1 = micro["tuned on these examples"]
    said = f"micro F1 is {tuned_f1[0]:.3f} and macro F1 {tuned_f1[1]:.3f}, which is optimistic"
    assert said in (out / "model_card.md").read_text()
    # By default, 0.5; those that were kept, on request; and those of other weights are gone.
    files = ("--test_file=dev_tuned.tsv", "--text_columns=text", *column)
    again = classifier(folder, "tuned", *files, "--do_predict", "--do_export")
    succeed(*again)
    plain = [[n for n in names if float(row[n]) >= 0.5] for row in table(out / "predictions.tsv")]
    assert [row["labels"] for row in table(out / "predictions.tsv")] == list(map(",".join, plain))
    assert not (out / "export/2/assets/label_thresholds.json").exists()
    succeed(*again, "--label_thresholds=tuned")
    assert [row["labels"] for row in table(out / "predictions.tsv")] == [r["labels"] for r in given]
    more = ("--do_train", "--train_file=train_tuned.tsv", "--num_train_steps=21")
    succeed(*again, *more, "--learning_rate=2e-3")
    assert "needs label_thresholds.json" in fail(*again, "--label_thresholds=tuned")
    assert "needs --do_eval" in fail(*again, *more, "--label_thresholds=tuned")


@pytest.mark.slow
def test_choices(folder):
    def write(name, count, seed):
        lines = [
            {"context": "the", "choices": [row["text"], "very very", "a"][: 2 + n % 2], "label": 0}
            for n, row in enumerate(sentences(count, seed))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text.replace("very very", HOSTILE))

    write("train", 40, 0)
    write("dev", 20, 1)
    files = [
        f"--{part}_file={folder}/{'train' * (part == 'train') or 'dev'}.jsonl"
        for part in ("train", "dev", "test")
    ]
    flags = ("--do_train", "--do_eval", "--do_predict", "--num_train_steps=4")
    succeed(*classifier(folder, "choices", *flags, *files, "--task_name=multiple_choice"))
    out = folder / "choices"
    given, page = table(out / "predictions.tsv"), shown(out)
    right = np.array([row["gold"] == row["label"] for row in given])
    assert head(out)["dev.jsonl", "accuracy"] == pytest.approx(right.mean(), abs=1e-12)
    assert page.count("answered: ") == (~right).sum()
    assert len(expected_errors(out)) == 2
    kept = json.loads((out / "temperature.json").read_text())
    # Every third choice of every other example is none.
    logits = [[np.log(float(row[f"choice_{n}"]) or 1e-300) for n in range(3)] for row in given]
    fitted = fit_temperature(logits, np.zeros(20, int))
    assert len(kept.pop("weights")) == 32
    assert kept == {"temperature": pytest.approx(fitted, rel=1e-4)}
    assert '"choices": [' in page


@pytest.mark.slow
def test_tags(folder):
    write_tags(folder / "train.txt", 60, 0)
    write_tags(folder / "dev.txt", 30, 1)
    files = [f"--{part}_file=dev.txt" for part in ("dev", "test")]
    flags = ("--do_train", "--do_eval", "--do_predict", "--train_file=train.txt")
    succeed(*tagger(folder, "tags", *flags, *files, "--num_train_steps=15", "--learning_rate=5e-3"))
    out = folder / "tags"
    page = shown(out)
    sentences = [
        [line.split(" ") for line in block.split("\n")]
        for block in (out / "predictions.txt").read_text().strip("\n").split("\n\n")
    ]
    entities = [json.loads(line) for line in (out / "entities.jsonl").read_text().splitlines()]
    # Every name is an entity of one word, whose tag begins with B.
    words = [word for sentence in sentences for word in sentence]
    right, found, gold = (
        sum(a == b != "O" for _, a, b in words),
        sum(b != "O" for _, _, b in words),
        sum(a != "O" for _, a, _ in words),
    )
    f1 = 2 * right / (found + gold)
    assert head(out)["dev.txt", "f1"] == pytest.approx(f1, abs=1e-12)
    assert f"all\n{right / found:.3f}\n{right / gold:.3f}\n{f1:.3f}\n{gold}\n{found}\n" in page
    scores = [p for sentence in entities for p in sentence["scores"]]
    error = expected_error(np.array(scores), [a == b for _, a, b in words], 15)
    assert f"Expected calibration error {error:.4f} over {len(words)} answers" in page
    sure = [entity["score"] for sentence in entities for entity in sentence["entities"]]
    of_entity = [a == b for _, a, b in words if b != "O"]
    error = expected_error(np.array(sure), of_entity, 15)
    assert f"Expected calibration error {error:.4f} over {found} answers" in page
    sums = [
        sum(p for (_, a, b), p in zip(words, of["scores"], strict=True) if a != b)
        for words, of in zip(sentences, entities, strict=True)
    ]
    worst = [f"{value:.3f}" for value in sorted((s for s in sums if s), reverse=True)[:20]]
    assert re.findall(r"summed (\d+\.\d+) · dev.txt", page) == worst


@pytest.mark.slow
def test_questions(folder):
    write_questions(folder / "train.json", 64, 0)
    write_questions(folder / "dev.json", 32, 1)
    flags = ("--do_train", f"--train_file={folder}/train.json", "--num_train_steps=30")
    flags += ("--do_predict", f"--predict_file={folder}/dev.json", "--learning_rate=0.01")
    succeed(*answerer(folder, "questions", *flags, "--do_export"))
    out = folder / "questions"
    page = shown(out)
    given = json.loads((out / "predictions.json").read_text())
    n_best = json.loads((out / "nbest_predictions.json").read_text())
    asked = json.loads((folder / "dev.json").read_text())["data"][0]["paragraphs"]
    right = {p["qas"][0]["id"]: p["qas"][0]["answers"][0]["text"] for p in asked}
    scores = np.array([score_answer(given[k], [right[k]], version_2=False) for k in right])
    assert head(out)["dev.json", "exact_match"] == pytest.approx(100 * scores[:, 0].mean())
    assert f"F1\n{100 * scores[:, 1].mean():.1f}\n" in page
    sure = np.array([n_best[key][0]["probability"] for key in right])
    error = expected_error(sure, scores[:, 0], 15)
    assert f"Expected calibration error {error:.4f} over 32 answers" in page
    # Calibrated: what two numbers make of the odds, in the page, the file and the export.
    kept = json.loads((out / "answer_calibration.json").read_text())
    assert re.fullmatch("[0-9a-f]{32} n_best_size=20", kept.pop("weights"))
    odds = np.clip(special.logit(sure), -30, 30)
    assert tuple(kept.values()) == pytest.approx(fit_platt_calibration(odds, scores[:, 0]), 1e-6)
    calibrated = special.expit(kept["slope"] * odds + kept["intercept"])
    after = expected_error(calibrated, scores[:, 0], 15)
    assert f"the answer\n{error:.3f}\nthe answer, calibrated\n{after:.3f}\n" in page
    card = (out / "model_card.md").read_text()
    for name, value in {"the answer": error, "the answer, calibrated": after}.items():
        assert f"Probability of {name}: expected calibration error {value:.4f} over 15" in card
    assert f"a = {kept['slope']:.4f} and b = {kept['intercept']:.4f}" in page
    lines = [{"question": p["qas"][0]["question"], "context": p["context"]} for p in asked]
    (folder / "asked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = (f"--input_file={folder}/asked.jsonl", f"--output_file={folder}/answers.jsonl")
    succeed("-m", "modeling.predict", f"--saved_model={out}/export", *files)
    answers = list(map(json.loads, (folder / "answers.jsonl").read_text().splitlines()))
    assert [answer["answer"] for answer in answers] == list(given.values())
    np.testing.assert_allclose([a["probability"] for a in answers], sure, atol=1e-4)
    np.testing.assert_allclose([a["confidence"] for a in answers], calibrated, atol=1e-4)
    # It goes with the weights that it was fitted for.
    succeed(*answerer(folder, "questions", *flags[:2], "--num_train_steps=31", flags[-1]))
    assert not (out / "answer_calibration.json").exists()
    assert f"who\n{scores[:, 0].mean():.3f}\n{scores[:, 1].mean():.3f}\n32\n" in page
