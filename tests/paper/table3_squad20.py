"""Table 3: SQuAD 2.0, where some questions have no answer.

    python -m tests.paper.table3_squad20 --scale=small --shared=DATA --minilm=DIR --work=/tmp/paper
    python -m tests.paper.table3_squad20 --scale=paper --released=DIR

At the small scale two thirds of dev-v2.0's articles are trained on and the rest is asked about, as
if there were no training set; that is so few that the models are those of Table 2, which have
learned to answer. "Never answers" is what an empty file of answers scores.
"""

from tests.paper import full, small, table2_squad11
from tests.paper.experiment import Cell, Place, Table, main

LARGE, SMALLER, NEVER = "BERT-large ~ 6 layers", "3 layers", "never answers"
# Exact match and F1 on the dev set; 5,945 of its 11,873 questions have no answer.
PAPER = {
    "human": (86.3, 89.0),
    NEVER: (50.07, 50.07),
    SMALLER: (None, None),
    LARGE: (78.7, 81.9),
}
TRAINED, ASKED, WORDS, STEPS = 1460, 1060, 90, 100
EXAMPLES = 132_000  # windows of 384 tokens of the training set, about


def never(results) -> float:
    """The share of questions without an answer, in percent."""
    return 100 * results["NoAns_total"] / results["total"]


def small_scale(place: Place) -> Table:
    source = "squad/dev-v2.0.json"
    # Of every three articles the second is asked about.
    asked = small.some_questions(place, "dev-v2.0-asked", source, ASKED, WORDS, part=1, parts=3)
    trained = [
        small.some_questions(place, f"dev-v2.0-{part}", source, TRAINED // 2, WORDS, part, 3)
        for part in (0, 2)
    ]
    flags = {
        "version_2_with_negative": True,
        "null_score_diff_threshold": "auto",
        "max_seq_length": 160,
    }
    runs = {}
    for row, layers in ((LARGE, 6), (SMALLER, 3)):
        before = table2_squad11.trained(place, layers).first()
        checkpoint = f"model.ckpt-{small.steps(place, table2_squad11.STEPS)}"
        model = small.minilm(place, layers) | {"init_checkpoint": place.of(before, checkpoint)}
        runs[row] = small.squad(
            *(place, f"squad20-{layers}-layers", trained, asked, model, STEPS // 2, [before]),
            **flags,
        )
    cells = []
    for row, numbers in PAPER.items():
        for column, key, number in zip(("EM", "F1"), ("exact", "f1"), numbers, strict=True):
            run = runs[LARGE] if row == NEVER else runs.get(row)
            key = never if row == NEVER else key
            cells.append(Cell(row, column, number, run, key, scale=1.0))
    return Table(
        "table3_squad20",
        "Table 3: SQuAD 2.0, dev",
        cells,
        [
            f"Ours: MiniLM of 6 layers in BERT-large's place, and its first 3, first trained on "
            f"SQuAD 1.1 as for Table 2 (the first seed's weights), which the paper did not; then "
            f"{STEPS} steps of 32 on about {TRAINED:,} questions of two thirds of the dev set's "
            f"articles, asked {ASKED:,} of the others, paragraphs of {WORDS} words at most; the "
            f"threshold is the best on these, as the paper's.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    flags = {
        "do_train": True,
        "do_predict": True,
        "train_file": "squad/train-v2.0.json",
        "predict_file": "squad/dev-v2.0.json",
        "version_2_with_negative": True,
        "null_score_diff_threshold": "auto",
        "max_seq_length": 384,
        "doc_stride": 128,
        "train_batch_size": 48,
        "num_train_epochs": 2,
        "learning_rate": 5e-5,
        **full.released(place, "large"),
        "output_dir": "squad20-large",
    }
    config = full.config_of("large")
    what = "SQuAD 2.0 with BERT-large"
    return [full.tuning(what, "run_squad.py", flags, config, EXAMPLES, 384, 48, 2)]


if __name__ == "__main__":
    main(small_scale, paper_scale)
