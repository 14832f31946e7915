"""Table 4: SWAG, which of four sentences goes on.

    python -m tests.paper.table4_swag --scale=small --shared=DATA --minilm=DIR --work=/tmp/paper
    python -m tests.paper.table4_swag --scale=paper --released=DIR

At the small scale the questions are CODAH's, of SWAG's form: trained on its first fold, evaluated
on that fold's dev set and on 500 questions of SWAG itself.
"""

import dataclasses

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Run, Table, main

LARGE, BASE = "BERT-large ~ 6 layers", "BERT-base ~ 3 layers"
NONE = "ESIM+GloVe ~ 3 layers, not pre-trained"
PAPER = {NONE: 51.9, "ESIM+ELMo": 59.1, BASE: 81.6, LARGE: 86.6}  # dev
COLUMNS = {"CODAH": "eval_results.txt", "SWAG": "eval_results_dev_swag-500.txt"}
EXAMPLES = 73_546
STEPS = 312  # of 16, three epochs


def small_scale(place: Place) -> Table:
    fold = place.data / "swag/codah/data/cv_split/fold_0"
    models = {
        LARGE: ("6-layers", small.minilm(place)),
        BASE: ("3-layers", small.minilm(place, 3)),
        NONE: ("3-layers-random", small.minilm(place, 3, weights=False)),
    }
    runs = {}
    for row, (name, model) in models.items():
        flags = {
            "task_name": "codah",
            "data_dir": fold,
            "dev_file": [fold / "dev.tsv", place.data / "swag/swag-500.jsonl"],
            "max_seq_length": 64,
            **small.TUNING,
            **model,
            "train_batch_size": 16,
            "learning_rate": 1e-4,
            "num_train_steps": small.steps(place, STEPS),
        }
        run = Run(f"codah-{name}", "run_classifier.py", flags, seeds=place.seed_range())
        runs[row] = dataclasses.replace(run, apart=True)
    cells = [
        Cell(row, column, number, runs.get(row), file=file)
        for row, number in PAPER.items()
        for column, file in COLUMNS.items()
    ]
    return Table(
        "table4_swag",
        "Table 4: SWAG, dev",
        cells,
        [
            "Ours: MiniLM of 6 layers in BERT-large's place, its first 3 in BERT-base's, both "
            "fine-tuned on CODAH (fold 0: 1,665 questions, three epochs of 16 at 1e-4) and "
            "evaluated on its dev set and, without training on it, on 500 questions of SWAG. "
            "Chance is 25.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    launches = []
    for size in ("base", "large"):
        flags = {
            "task_name": "swag",
            "data_dir": "swag",
            "do_train": True,
            "do_eval": True,
            "max_seq_length": 128,
            "train_batch_size": 16,
            "learning_rate": 2e-5,
            "num_train_epochs": 3,
            **full.released(place, size),
            "output_dir": f"swag-{size}",
        }
        config = full.config_of(size)
        # Four rows for each question.
        what = f"SWAG with BERT-{size}"
        launches.append(
            full.tuning(what, "run_classifier.py", flags, config, 4 * EXAMPLES, 128, 4 * 16)
        )
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
