"""Figure 4: fine-tuned after more and more steps of pre-training, masked LM and left to right.

    python -m tests.paper.figure4_training_steps --scale=small --shared=DATA --work=/tmp/paper
    python -m tests.paper.figure4_training_steps --scale=paper --released=DIR

The curves carry no numbers. Those here are what the text says: masked LM gains almost 1.0 % on
MNLI from 500,000 to 1,000,000 steps (appendix C.1), and where Table 5 has both.
"""

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Table, main

MASKED, LEFT = "masked LM", "left to right"
CHECKPOINTS = 6
COLUMNS = tuple(str(round(100 * number / CHECKPOINTS)) for number in range(1, 1 + CHECKPOINTS))
# Row and percent of the steps.
PAPER = {(MASKED, "50"): 83.4, (MASKED, "100"): 84.4, (LEFT, "100"): 82.1}
OBJECTIVES = {MASKED: "mlm_nsp", LEFT: "ltr"}
STEPS = 3600
TASK, TASK_STEPS = "SST-2", 400
LEARNING_RATE = 1e-3


def small_scale(place: Place) -> Table:
    every = 1 if place.smoke else STEPS // CHECKPOINTS
    cells = []
    for row, objective in OBJECTIVES.items():
        flags = {
            "objective": objective,
            "save_checkpoints_steps": every,
            "keep_checkpoint_max": 0,
            "num_train_steps": every * CHECKPOINTS,
        }
        model = small.pretrained(place, f"{objective}-checkpoints", STEPS, **flags)
        for number, column in enumerate(COLUMNS, 1):
            step = every * number
            start = small.own(place, model, f"model.ckpt-{step}")
            name = f"{model.name}-at-{step}"
            run = small.glue(place, name, TASK, start, TASK_STEPS, LEARNING_RATE, after=[model])
            cells.append(Cell(row, column, PAPER.get((row, column)), run))
    return Table(
        "figure4_training_steps",
        "Figure 4: dev accuracy by percent of the pre-training steps (paper: MNLI; ours: SST-2)",
        cells,
        [
            f"Ours: 2 layers, 128 wide, one run of {STEPS:,} steps of 32 × 64 tokens with each "
            f"objective; from six of its checkpoints SST-2 for {TASK_STEPS} steps of 32 at "
            f"{LEARNING_RATE:g}. The learning rate falls to 0 at 100 %, as the paper's.",
        ],
        line=True,
    )


def paper_scale(place: Place) -> list[full.Launch]:
    config = full.config_of("base")
    launches = []
    for row, objective in OBJECTIVES.items():
        folder = f"steps-{objective}"
        flags = {
            "objective": objective,
            "save_checkpoints_steps": 100_000,
            "keep_checkpoint_max": 0,
        }
        launches.append(full.pretraining(place, f"{row}: pre-training", folder, config, **flags))
        for step in range(200_000, 1_000_001, 200_000):
            flags = {
                "task_name": "MNLI",
                "data_dir": "glue/MNLI",
                "do_train": True,
                "do_eval": True,
                "num_train_epochs": 3,
                "vocab_file": full.released(place, "base")["vocab_file"],
                "bert_config_file": f"{folder}/bert_config.json",
                "init_checkpoint": f"{folder}/model.ckpt-{step}",
                "output_dir": f"{folder}-{step}-MNLI",
            }
            what = f"{row}: MNLI after {step:,} steps"
            launches.append(
                full.tuning(what, "run_classifier.py", flags, config, 392_702, 128, labels=3)
            )
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
