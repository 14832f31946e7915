"""Table 1: GLUE, fine-tuned from models of two sizes.

    python -m tests.paper.table1_glue --scale=small --shared=DATA --minilm=DIR --work=/tmp/paper
    python -m tests.paper.table1_glue --scale=paper --released=DIR

The paper's numbers are test results from the GLUE server, ours of the dev sets. MNLI, QQP and QNLI
are left out at the small scale for their size, CoLA because after the one epoch that there is time
for Matthews correlation is 0 or below it, WNLI as in the paper.
"""

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Table, main

LARGE, BASE, NONE = "BERT-large ~ 6 layers", "BERT-base ~ 3 layers", "3 layers, not pre-trained"
# Column: the paper's BiLSTM+ELMo+Attn, OpenAI GPT, BERT-base and BERT-large.
PAPER = {
    "MNLI-m": (76.4, 82.1, 84.6, 86.7),
    "QQP": (64.8, 70.3, 71.2, 72.1),
    "QNLI": (79.8, 87.4, 90.5, 92.7),
    "SST-2": (90.4, 91.3, 93.5, 94.9),
    "CoLA": (36.0, 45.4, 52.1, 60.5),
    "STS-B": (73.3, 80.0, 85.8, 86.5),
    "MRPC": (84.9, 82.3, 88.9, 89.3),
    "RTE": (56.8, 56.0, 66.4, 70.1),
}
ROWS = ("BiLSTM+ELMo+Attn", "OpenAI GPT", BASE, LARGE)
# Task: result, steps of 32; SST-2's are 6,400 of its sentences, the others' an epoch.
SMALL = {
    "SST-2": ("eval_accuracy", 200),
    "STS-B": ("eval_spearman", 180),
    "MRPC": ("eval_f1", 115),
    "RTE": ("eval_accuracy", 78),
}
# Task: training examples, classes.
EXAMPLES = {
    "MNLI": (392_702, 3),
    "QQP": (363_849, 2),
    "QNLI": (104_743, 2),
    "SST-2": (67_349, 2),
    "CoLA": (8_551, 2),
    "STS-B": (5_749, 1),
    "MRPC": (3_668, 2),
    "RTE": (2_490, 2),
}


def small_scale(place: Place) -> Table:
    models = {
        LARGE: ("6-layers", small.minilm(place), None),
        BASE: ("3-layers", small.minilm(place, 3), None),
        NONE: ("3-layers-random", small.minilm(place, 3, weights=False), (1,)),
    }
    cells = []
    for column, papers in PAPER.items():
        numbers = dict(zip(ROWS, papers, strict=True))
        for row in (*ROWS, NONE):
            run, key = None, ""
            if row in models and column in SMALL:
                name, model, seeds = models[row]
                key, steps = SMALL[column]
                run = small.glue(place, name, column, model, steps, 1e-4, seeds=seeds)
            cells.append(Cell(row, column, numbers.get(row), run, key))
    return Table(
        "table1_glue",
        "Table 1: GLUE (paper: test; ours: dev)",
        cells,
        [
            "Ours: MiniLM of 6 layers, 384 wide, in BERT-large's place and its first 3 layers in "
            "BERT-base's; learning rate 1e-4, batch 32, one epoch (SST-2: 6,400 sentences); MNLI, "
            "QQP, QNLI and CoLA are not run.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    launches = []
    for size in ("base", "large"):
        for task, (examples, labels) in EXAMPLES.items():
            flags = {
                "task_name": task,
                "data_dir": f"glue/{task}",
                "do_train": True,
                "do_eval": True,
                "do_predict": True,
                "glue_submission": True,
                "max_seq_length": 128,
                "train_batch_size": 32,
                "num_train_epochs": 3,
                "learning_rates": "5e-5,4e-5,3e-5,2e-5",
                **full.released(place, size),
                "output_dir": f"glue-{size}-{task}",
            }
            runs = 4
            if size == "large":  # "several random restarts" (section 4.1)
                flags["num_runs"], runs = 5, 20
            config = full.config_of(size)
            what = f"{task} with BERT-{size}"
            launches.append(
                full.tuning(
                    *(what, "run_classifier.py", flags, config, examples, 128),
                    runs=runs,
                    labels=labels,
                )
            )
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
