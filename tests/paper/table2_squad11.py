"""Table 2: SQuAD 1.1, single models of two sizes and an ensemble.

    python -m tests.paper.table2_squad11 --scale=small --shared=DATA --minilm=DIR --work=/tmp/paper
    python -m tests.paper.table2_squad11 --scale=paper --released=DIR

All numbers are of dev-v1.1, ours of a part of it.
"""

import pathlib

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Run, Table, main

LARGE, BASE = "BERT-large ~ 6 layers", "BERT-base ~ 3 layers"
ENSEMBLE = "ensemble of BERT-large ~ of 6 layers"
# Exact match and F1 on the dev set.
PAPER = {
    "R.M. Reader, ensemble": (81.2, 87.9),
    BASE: (80.8, 88.5),
    LARGE: (84.1, 90.9),
    ENSEMBLE: (85.8, 91.8),
    "BERT-large with TriviaQA": (84.2, 91.1),
    "ensemble with TriviaQA": (86.2, 92.2),
}
TRAINED, ASKED, WORDS, STEPS = 9600, 1100, 75, 300
EXAMPLES = 88_641  # windows of 384 tokens of the training set


def questions(place: Place, part: str, number: int) -> pathlib.Path:
    """A file of short paragraphs' questions of the training or the dev set."""
    return small.some_questions(place, f"{part}-v1.1", f"squad/{part}-v1.1.json", number, WORDS)


def trained(place: Place, layers: int) -> Run:
    """MiniLM's first layers with every seed."""
    files = questions(place, "train", TRAINED), questions(place, "dev", ASKED)
    return small.squad(
        *(place, f"squad11-{layers}-layers", *files, small.minilm(place, layers), STEPS)
    )


def small_scale(place: Place) -> Table:
    dev = questions(place, "dev", ASKED)
    runs = {row: trained(place, layers) for row, layers in ((LARGE, 6), (BASE, 3))}
    first, *others = runs[LARGE].folders(place.work)
    flags = {
        **small.minilm(place),
        "init_checkpoint": first / f"model.ckpt-{small.steps(place, STEPS)}",
        "ensemble": others,
        "do_predict": True,
        "predict_file": dev,
        **small.WINDOWS,
        "dtype": "auto",
    }
    name = f"squad11-ensemble-of-{1 + len(others)}"
    done = "eval_results.json"
    runs[ENSEMBLE] = Run(name, "run_squad.py", flags, done, after=[runs[LARGE]])
    cells = [
        Cell(row, column, number, runs.get(row), key, scale=1.0)
        for row, numbers in PAPER.items()
        for column, key, number in zip(("EM", "F1"), ("exact_match", "f1"), numbers, strict=True)
    ]
    return Table(
        "table2_squad11",
        "Table 2: SQuAD 1.1, dev",
        cells,
        [
            f"Ours: MiniLM of 6 layers in BERT-large's place, its first 3 in BERT-base's; trained "
            f"once on {TRAINED:,} questions on paragraphs of {WORDS} words at most, learning rate "
            f"1.5e-4; asked the dev set's {ASKED:,} on such paragraphs. TriviaQA is not run.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    launches = []
    files = {
        "do_train": True,
        "do_predict": True,
        "predict_file": "squad/dev-v1.1.json",
        "max_seq_length": 384,
        "doc_stride": 128,
        "train_batch_size": 32,
        "num_train_epochs": 3,
        "learning_rate": 5e-5,
    }
    for size, seeds in (("base", 1), ("large", 7)):
        for seed in range(1, 1 + seeds):
            folder = f"squad11-{size}-{seed}"
            flags = {
                **files,
                "train_file": "squad/train-v1.1.json",
                **full.released(place, size),
                "random_seed": seed,
                "output_dir": folder,
            }
            what = f"SQuAD 1.1 with BERT-{size}, seed {seed}"
            config = full.config_of(size)
            launches.append(full.tuning(what, "run_squad.py", flags, config, EXAMPLES, 384))
    # "The ensemble is 7x systems which use different pre-training checkpoints and seeds."
    folders = [f"squad11-large-{seed}" for seed in range(1, 8)]
    flags = {
        "do_predict": True,
        "predict_file": files["predict_file"],
        **full.released(place, "large"),
        "init_checkpoint": f"{folders[0]}/model.ckpt-{launches[-1].phases[0].num_steps}",
        "ensemble": folders[1:],
        "output_dir": "squad11-ensemble",
    }
    what = "Their ensemble; only answers"
    launches.append(full.Launch(what, "run_squad.py", flags, full.config_of("large"), []))
    flags = {
        **files,
        "train_file": "triviaqa-as-squad.json,squad/train-v1.1.json",
        "epochs_per_file": "1,3",
        "max_contexts": 4,
        **full.released(place, "large"),
        "output_dir": "squad11-large-triviaqa",
    }
    what = "TriviaQA in SQuAD's form before SQuAD 1.1 with BERT-large; cost of the latter"
    config = full.config_of("large")
    launches.append(full.tuning(what, "run_squad.py", flags, config, EXAMPLES, 384))
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
