"""Regression and several labels from real weights, beside linear models on words.

A few hundred steps, where the original's head still says the same of every text, or little else.
"""

import numpy as np
import pytest

from tests.fine_tuning import learnable_cases as cases
from tests.scripts import succeed


def linear_scores(train: list[dict], dev: list[dict], label: str) -> float:
    """Pearson's correlation of numbers, micro F1 of labels."""
    texts, of_dev = ([f"{row['a']} {row.get('b', '')}" for row in rows] for rows in (train, dev))
    words = cases.Words(texts)
    if label != "types":
        labels, of_them = (np.array([row[label] for row in rows], float) for rows in (train, dev))
        return cases.pearson(cases.ridge(words(texts), labels, words(of_dev)), of_them)
    sets, of_them = (
        np.array([[name in row[label] for name in cases.TYPES] for row in rows], np.float32)
        for rows in (train, dev)
    )
    logits = cases.logistic(words(texts), sets, words(of_dev))
    return cases.micro_f1((logits > 0).astype(float), of_them)


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize(
    ("label", "columns", "rate", "steps"),
    [
        # STS-B from 1 to 100. At 1e-4 the steps of Adam without bias correction are too long here.
        ("label", "a,b", 3e-5, 150),
        # Persons' words in a sentence; types of entities in a sentence.
        ("persons", "a", 1e-4, 200),
        ("types", "a", 1e-4, 100),
    ],
)
def test_more_than_a_linear_model(shared_data, minilm, tmp_path, label, columns, rate, steps):
    """Some 130 CPU seconds each, two trainings in it."""
    read = cases.similarities if label == "label" else cases.entity_types
    train = read(shared_data, "train")
    dev = read(shared_data, "dev" if label == "label" else "testa")[:1200]
    for name, rows in (("train", train), ("dev", dev)):
        cases.write_rows(tmp_path / f"{name}.jsonl", rows)
    scores = {"linear": linear_scores(train, dev, label)}
    metric = "micro_f1" if label == "types" else "pearson"
    for name, flags in (("original", ("--original_head",)), ("here", ())):
        succeed(
            *("run_classifier.py", "--task_name=delimited", f"--data_dir={tmp_path}"),
            *("--train_file=train.jsonl", "--dev_file=dev.jsonl", f"--text_columns={columns}"),
            f"--label_column={label}",
            f"--label_kind={'multi_label' if label == 'types' else 'regression'}",
            *(f"--vocab_file={minilm}/vocab.txt", f"--bert_config_file={minilm}/config.json"),
            *(f"--init_checkpoint={minilm}/model.safetensors", f"--output_dir={tmp_path}/{name}"),
            *("--do_train", "--do_eval", "--max_seq_length=64", "--eval_batch_size=64"),
            *(f"--learning_rate={rate}", f"--num_train_steps={steps}", "--dtype=auto", *flags),
            timeout=1800,
        )
        lines = (tmp_path / name / "eval_results.txt").read_text().splitlines()
        text = dict(line.split(" = ") for line in lines)[f"eval_{metric}"]
        scores[name] = float("nan" if text == "undefined" else text)
    print(label, metric, scores)
    assert scores["here"] >= scores["linear"]
    # NaN, an undefined correlation, isn't better than anything.
    assert not scores["original"] > scores["here"]
