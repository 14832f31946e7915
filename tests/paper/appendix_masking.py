"""Appendix C.2, Table 8: what stands in the place of the words to be predicted.

    python -m tests.paper.appendix_masking --scale=small --shared=DATA --minilm=DIR \\
        --work=/tmp/paper
    python -m tests.paper.appendix_masking --scale=paper --released=DIR

Mixtures of [MASK], the same word and a random one, in percent. Masks are drawn while training, so
all mixtures are trained on the same records. At the small scale they are what MiniLM's first
layers are pre-trained further with, for as long as the machine carries. MNLI is not run, nor
another task for sentences: after that little pre-training SST-2 is not learned in the few steps
that there is time for.
"""

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Table, main

# [MASK], same, random: the paper's MNLI, NER fine-tuned, NER feature-based (dev).
PAPER = {
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 0, 20): (84.1, 95.2, 94.6),
    (80, 20, 0): (84.4, 95.2, 94.7),
    (0, 20, 80): (83.7, 94.8, 94.6),
    (0, 0, 100): (83.6, 94.9, 94.6),
}
COLUMNS = ("MNLI", "NER, fine-tuned", "NER, features")
LAYERS, STEPS = 3, 100
SENTENCES = (1000, 500)


def small_scale(place: Place) -> Table:
    cells = []
    for mixture, numbers in PAPER.items():
        mask, _, other = (share / 100 for share in mixture)
        name = "masks-" + "-".join(map(str, mixture))
        flags = {"dynamic_masking": True, "mask_share": mask, "random_share": other}
        model = small.continued(place, name, STEPS, LAYERS, **flags)
        start = small.minilm(place, LAYERS) | {
            "init_checkpoint": place.of(model, "bert_model.ckpt")
        }
        tuned = {"learning_rate": 1e-4, "num_train_epochs": 4}
        vectors = {
            "feature_based": True,
            "feature_layers": "sum_all",  # of three layers there are no last four
            "learning_rate": 1e-3,
            "num_train_epochs": 1,
        }
        after = [model]
        runs = (
            None,
            small.tags(place, f"tags-{model.name}", start, SENTENCES, after, **tuned),
            small.tags(
                *(place, f"features-{model.name}", start, SENTENCES, after),
                seeds=place.seed_range(2),
                **vectors,
            ),
        )
        row = " / ".join(map(str, mixture))
        for column, number, run in zip(COLUMNS, numbers, runs, strict=True):
            cells.append(Cell(row, column, number, run, "eval_f1"))
    return Table(
        "appendix_masking",
        "Appendix C.2: [MASK] / same / random, in percent; dev",
        cells,
        [
            f"Ours: MiniLM's first {LAYERS} layers after {STEPS:,} more steps of 32 × 64 tokens "
            f"with each mixture, one model each; MiniLM's own pre-training, and the 80 / 10 / 10 "
            f"of the model that it was distilled from, are in all of them. Entities of lower-cased "
            f"CoNLL-2003, trained on {SENTENCES[0]:,} sentences. MNLI is not run.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    config = full.config_of("base", "cased")
    launches = []
    for mixture in PAPER:
        mask, _, other = (share / 100 for share in mixture)
        name = "masks-" + "-".join(map(str, mixture))
        vocabulary = full.released(place, "base", "cased")["vocab_file"]
        flags = {
            "dynamic_masking": True,
            "mask_share": mask,
            "random_share": other,
            "vocab_file": vocabulary,
        }
        launches.append(full.pretraining(place, f"{mixture}: pre-training", name, config, **flags))
        weights = {
            "vocab_file": vocabulary,
            "do_lower_case": False,
            "bert_config_file": f"{name}/bert_config.json",
            "init_checkpoint": f"{name}/bert_model.ckpt",
        }
        flags = {
            "task_name": "MNLI",
            "data_dir": "glue/MNLI",
            "do_train": True,
            "do_eval": True,
            "num_train_epochs": 3,
            **weights,
            "output_dir": f"{name}-MNLI",
        }
        launches.append(
            full.tuning(
                *(f"{mixture}: MNLI", "run_classifier.py", flags, config, 392_702, 128), labels=3
            )
        )
        for extra in ({}, {"feature_based": True, "feature_layers": "concat_last4"}):
            flags = {
                "data_dir": "conll2003",
                "train_file": "eng.train",
                "dev_file": "eng.testa",
                "do_train": True,
                "do_eval": True,
                **weights,
                **extra,
                "output_dir": f"{name}-conll{'-features' if extra else ''}",
            }
            what = f"{mixture}: CoNLL-2003{', features' if extra else ''}"
            launches.append(full.tuning(what, "run_ner.py", flags, config, 14_041, 128))
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
