"""Table 6: models of six sizes.

    python -m tests.paper.table6_model_size --scale=small --shared=DATA --minilm=DIR \\
        --work=/tmp/paper
    python -m tests.paper.table6_model_size --scale=paper --released=DIR

At the small scale they are MiniLM's first layers, one to all six. What can be pre-trained here from
random weights in minutes has learned how often a word occurs, whatever its size, and no more. MRPC
is left out as there is time for one epoch, after which the smaller ones call everything a
paraphrase.
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
COLUMNS = ("perplexity", "MNLI-m", "MRPC", "SST-2")
TASKS = {"SST-2": 200}  # steps of 32, as for Table 1, which shares two of the sizes
STEPS = 100
LEARNING_RATE = 1e-4


def perplexity(results) -> float:
    return math.exp(min(results["masked_lm_loss"], 700.0))


def small_scale(place: Place) -> Table:
    cells = []
    for layers, (size, numbers) in enumerate(PAPER.items(), 1):
        model = small.continued(place, "mlm_nsp", STEPS, layers)
        row = f"{'/'.join(map(str, size))} ~ {layers}/384/12"
        for column, number in zip(COLUMNS, numbers, strict=True):
            if column == "perplexity":
                cells.append(Cell(row, column, number, model, perplexity, scale=1.0))
                continue
            run = None
            if column in TASKS:
                flags, name = small.minilm(place, layers), f"{layers}-layers"
                run = small.glue(place, name, column, flags, TASKS[column], LEARNING_RATE)
            cells.append(Cell(row, column, number, run))
    return Table(
        "table6_model_size",
        "Table 6: layers/width/heads, the paper's ~ ours; dev",
        cells,
        [
            f"Ours: MiniLM's first layers, fine-tuned at {LEARNING_RATE:g} (SST-2 {TASKS['SST-2']} "
            f"steps of 32). Perplexity of held-out Wikipedia after "
            f"{STEPS} steps of 32 × 64 tokens, of models that are otherwise not used here; their "
            f"head for masked words was random before. MNLI and MRPC are not run.",
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
