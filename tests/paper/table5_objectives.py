"""Table 5: what is pre-trained for, with next sentences and without, in both directions or one.

    python -m tests.paper.table5_objectives --scale=small --shared=DATA --work=/tmp/paper
    python -m tests.paper.table5_objectives --scale=paper --released=DIR

The last row is what section 5.1 only discusses: two models, one that reads left to right and one
that reads right to left, their vectors side by side as in ELMo.
"""

import dataclasses

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Run, Table, main

# Dev results: accuracies, F1 of SQuAD.
PAPER = {
    "BERT-base": (84.4, 88.4, 86.7, 92.7, 88.5),
    "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
    "LTR & no NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
    "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
    "LTR + RTL": (None, None, None, None, None),
}
COLUMNS = ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD")
# Row: the pre-trained model's objective, and what fine-tuning adds.
MODELS = {
    "BERT-base": ("mlm_nsp", {}),
    "no NSP": ("mlm", {}),
    "LTR & no NSP": ("ltr", {}),
    "+ BiLSTM": ("ltr", {"bilstm": True}),
}
TASKS = {"MNLI": 392_702, "QNLI": 104_743, "MRPC": 3_668, "SST-2": 67_349}
SMALL = {"MRPC": 230, "SST-2": 400}  # steps of 32
STEPS = 1600
LEARNING_RATE = 1e-3


def small_scale(place: Place) -> Table:
    models: dict[str, Run] = {}

    def model(objective: str) -> Run:
        if objective not in models:
            models[objective] = small.pretrained(place, objective, STEPS, objective=objective)
        return models[objective]

    runs: dict[tuple[str, str], Run] = {}
    for row, (objective, extra) in MODELS.items():
        made = model(objective)
        name = "-".join([made.name, *extra])
        for task, steps in SMALL.items():
            flags = small.own(place, made) | extra
            run = small.glue(place, name, task, flags, steps, LEARNING_RATE, after=[made])
            runs[row, task] = run
    notes = [
        f"Ours: 2 layers, 128 wide, {STEPS:,} steps of 32 × 64 tokens of Wikipedia with each "
        f"objective, one model each; fine-tuned at {LEARNING_RATE:g} (SST-2: {SMALL['SST-2']} "
        f"steps of 32, MRPC: two epochs). Guessing the majority gives 68.4 on MRPC and 50.9 on "
        f"SST-2. MNLI, QNLI and SQuAD are not run.",
    ]
    left, right = model("ltr"), model("rtl")
    second = {
        "second_bert_config_file": place.of(right, "bert_config.json"),
        "second_init_checkpoint": place.of(right, "bert_model.ckpt"),
    }
    for task, steps in SMALL.items():
        name, flags = f"{left.name}-and-rtl", small.own(place, left) | second
        runs["LTR + RTL", task] = small.glue(
            *(place, name, task, flags, steps, LEARNING_RATE), after=[left, right]
        )
    cells = [
        Cell(row, column, number, runs.get((row, column)))
        for row, numbers in PAPER.items()
        for column, number in zip(COLUMNS, numbers, strict=True)
    ]
    title = "Table 5: pre-training objectives, dev (SQuAD: F1)"
    return Table("table5_objectives", title, cells, notes)


def paper_scale(place: Place) -> list[full.Launch]:
    config = full.config_of("base")
    launches = []

    def pretrain(row: str, objective: str) -> dict[str, object]:
        folder = f"base-{objective}"
        what = f"{row}: pre-training"
        launches.append(full.pretraining(place, what, folder, config, objective=objective))
        return {
            "bert_config_file": f"{folder}/bert_config.json",
            "init_checkpoint": f"{folder}/bert_model.ckpt",
        }

    def classify(row: str, name: str, weights: dict[str, object], config) -> None:
        for task, examples in TASKS.items():
            flags = {
                "task_name": task,
                "data_dir": f"glue/{task}",
                "do_train": True,
                "do_eval": True,
                "learning_rates": "5e-5,4e-5,3e-5,2e-5",
                "num_train_epochs": 3,
                "vocab_file": full.released(place, "base")["vocab_file"],
                **weights,
                "output_dir": f"objectives-{name}-{task}",
            }
            launches.append(
                full.tuning(
                    f"{row}: {task}", "run_classifier.py", flags, config, examples, 128, runs=4
                )
            )

    models: dict[str, dict[str, object]] = {}
    for row, (objective, extra) in MODELS.items():
        if not extra:
            models[objective] = pretrain(row, objective)
        weights = models[objective]
        classify(row, "-".join([objective, *extra]), weights | extra, config)
        if not extra:
            flags = {
                "do_train": True,
                "do_predict": True,
                "train_file": "squad/train-v1.1.json",
                "predict_file": "squad/dev-v1.1.json",
                "vocab_file": full.released(place, "base")["vocab_file"],
                **weights,
                "output_dir": f"objectives-{objective}-squad",
            }
            what = f"{row}: SQuAD"
            launches.append(full.tuning(what, "run_squad.py", flags, config, 88_641, 384))
    second = {f"second_{name}": path for name, path in pretrain("LTR + RTL", "rtl").items()}
    # Two encoders cost what one of twice the layers does.
    both = dataclasses.replace(config, num_hidden_layers=2 * config.num_hidden_layers)
    classify("LTR + RTL", "ltr-and-rtl", models["ltr"] | second, both)
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
