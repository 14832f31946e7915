"""Table 5: what is pre-trained for, with next sentences and without, in both directions or one.

    python -m tests.paper.table5_objectives --scale=small --shared=DATA --work=/tmp/paper
    python -m tests.paper.table5_objectives --scale=paper --released=DIR

The last row is what section 5.1 only discusses: two models, one that reads left to right and one
that reads right to left, their vectors side by side as in ELMo.
"""

import pathlib

from tests.paper import full, small
from tests.paper.experiment import ROOT, Cell, Place, Run, Table, main

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
SMALL = {"MRPC": 345, "SST-2": 600}  # steps of 32
STEPS = 3000
LEARNING_RATE = 1e-4
SECOND = "concatenated_checkpoint"
"""Flag of run_classifier.py for the other direction's model."""


def reads_right_to_left() -> bool:
    """Whether the scripts can make the last row."""
    source = pathlib.Path(ROOT, "run_classifier.py").read_text(encoding="utf-8")
    from data.pretraining.batches import pipeline

    return "rtl" in pipeline.OBJECTIVES and f'"{SECOND}"' in source


def small_scale(place: Place) -> Table:
    models: dict[str, Run] = {}

    def model(objective: str) -> Run:
        if objective not in models:
            models[objective] = small.pretrained(place, objective, STEPS, objective=objective)
        return models[objective]

    runs = {}
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
        f"steps of 32, MRPC: three epochs). Guessing the majority gives 68.4 on MRPC and 50.9 on "
        f"SST-2. MNLI, QNLI and SQuAD are not run.",
    ]
    if reads_right_to_left():
        left, right = model("ltr"), model("rtl")
        for task, steps in SMALL.items():
            flags = small.own(place, left) | {SECOND: place.of(right, "bert_model.ckpt")}
            name = f"{left.name}-and-rtl"
            runs["LTR + RTL", task] = small.glue(
                *(place, name, task, flags, steps, LEARNING_RATE), after=[left, right]
            )
    else:
        notes.append(
            "LTR + RTL is not run: it needs pre-training from right to left and a classifier on "
            "two encoders, which the scripts don't have."
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
    for row, (objective, extra) in MODELS.items():
        folder = f"base-{objective}"
        if not extra:
            what = f"{row}: pre-training"
            launches.append(full.pretraining(place, what, folder, config, objective=objective))
        weights = {
            "vocab_file": full.released(place, "base")["vocab_file"],
            "bert_config_file": f"{folder}/bert_config.json",
            "init_checkpoint": f"{folder}/bert_model.ckpt",
        }
        tasks = (("MNLI", 392_702), ("QNLI", 104_743), ("MRPC", 3_668), ("SST-2", 67_349))
        for task, examples in tasks:
            flags = {
                "task_name": task,
                "data_dir": f"glue/{task}",
                "do_train": True,
                "do_eval": True,
                "learning_rates": "5e-5,4e-5,3e-5,2e-5",
                "num_train_epochs": 3,
                **weights,
                **extra,
                "output_dir": "-".join(["objectives", objective, *extra, task]),
            }
            what = f"{row}: {task}"
            launches.append(
                full.tuning(what, "run_classifier.py", flags, config, examples, 128, runs=4)
            )
        if not extra:
            flags = {
                "do_train": True,
                "do_predict": True,
                "train_file": "squad/train-v1.1.json",
                "predict_file": "squad/dev-v1.1.json",
                **weights,
                "output_dir": f"objectives-{objective}-squad",
            }
            what = f"{row}: SQuAD"
            launches.append(full.tuning(what, "run_squad.py", flags, config, 88_641, 384))
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
