"""Table 6: models of six sizes.

    python -m tests.paper.table6_model_size --scale=small --shared=DATA --work=/tmp/paper
    python -m tests.paper.table6_model_size --scale=paper --released=DIR

Every size is pre-trained here, on the same records for as many steps.
"""

import math

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Table, main

# Layers, width and heads: the paper's perplexity of held-out text, MNLI-m, MRPC, SST-2 (dev,
# average of five restarts); and ours in its place.
PAPER = {
    (3, 768, 12): (5.84, 77.9, 79.8, 88.4),
    (6, 768, 3): (5.24, 80.6, 82.2, 90.7),
    (6, 768, 12): (4.68, 81.9, 84.8, 91.3),
    (12, 768, 12): (3.99, 84.4, 86.7, 92.9),
    (12, 1024, 16): (3.54, 85.7, 86.9, 93.3),
    (24, 1024, 16): (3.23, 86.6, 87.8, 93.7),
}
SMALL = {
    (3, 768, 12): (1, 128, 2),
    (6, 768, 3): (2, 128, 1),
    (6, 768, 12): (2, 128, 2),
    (12, 768, 12): (4, 128, 2),
    (12, 1024, 16): (4, 192, 3),
    (24, 1024, 16): (8, 192, 3),
}
COLUMNS = ("perplexity", "MNLI-m", "MRPC", "SST-2")
TASKS = {"SST-2": 400}  # steps of 32
STEPS = 1200
LEARNING_RATE = 1e-3


def perplexity(results) -> float:
    return math.exp(min(results["masked_lm_loss"], 700.0))


def small_scale(place: Place) -> Table:
    cells = []
    for size, numbers in PAPER.items():
        model = small.pretrained(place, "mlm_nsp", STEPS, *SMALL[size])
        row = " ~ ".join("/".join(map(str, sizes)) for sizes in (size, SMALL[size]))
        for column, number in zip(COLUMNS, numbers, strict=True):
            if column == "perplexity":
                cells.append(Cell(row, column, number, model, perplexity, scale=1.0))
                continue
            run = None
            if column in TASKS:
                flags = small.own(place, model)
                run = small.glue(
                    *(place, model.name, column, flags, TASKS[column], LEARNING_RATE),
                    after=[model],
                )
            cells.append(Cell(row, column, number, run))
    return Table(
        "table6_model_size",
        "Table 6: layers/width/heads, the paper's ~ ours; dev",
        cells,
        [
            f"Ours: {STEPS:,} steps of 32 × 64 tokens of Wikipedia for every size, one model each "
            f"(vocabulary of {small.VOCAB_SIZE:,}, so perplexities don't compare with the "
            f"paper's), fine-tuned at {LEARNING_RATE:g}. MNLI and MRPC are not run.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    launches = []
    for layers, hidden, heads in PAPER:
        name = f"size-{layers}-{hidden}-{heads}"
        config = full.config_of(
            "base",
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
        )
        what = f"{layers} layers, {hidden} wide, {heads} heads"
        launches.append(full.pretraining(place, what, name, config))
        for task, examples in (("MNLI", 392_702), ("MRPC", 3_668), ("SST-2", 67_349)):
            flags = {
                "task_name": task,
                "data_dir": f"glue/{task}",
                "do_train": True,
                "do_eval": True,
                "num_runs": 5,
                "num_train_epochs": 3,
                "vocab_file": full.released(place, "base")["vocab_file"],
                "bert_config_file": f"{name}/bert_config.json",
                "init_checkpoint": f"{name}/bert_model.ckpt",
                "output_dir": f"{name}-{task}",
            }
            text = f"{what}: {task}"
            launches.append(
                full.tuning(text, "run_classifier.py", flags, config, examples, 128, runs=5)
            )
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
