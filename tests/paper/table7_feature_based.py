"""Table 7: named entities of CoNLL-2003, fine-tuned or on a frozen model's vectors.

    python -m tests.paper.table7_feature_based --scale=small --shared=DATA --minilm=DIR \\
        --work=/tmp/paper
    python -m tests.paper.table7_feature_based --scale=paper --released=DIR
"""

from tests.paper import full, small
from tests.paper.experiment import Cell, Place, Table, main

# F1 on the dev set; row: what is computed from.
PAPER = {
    "BERT-large, fine-tuned": (96.6, None),
    "BERT-base, fine-tuned": (96.4, "tuned"),
    "embeddings": (91.0, "first"),
    "second to last layer": (95.6, "second_to_last"),
    "last layer": (94.9, "last"),
    "sum of the last four": (95.9, "sum_last4"),
    "last four side by side": (96.1, "concat_last4"),
    "sum of all layers": (95.5, "sum_all"),
}
SENTENCES = (1000, 800)
EXAMPLES = 14_041


def small_scale(place: Place) -> Table:
    cells = []
    for row, (number, layers) in PAPER.items():
        run = None
        if layers == "tuned":
            flags = {"learning_rate": 1e-4, "num_train_epochs": 8}
            model = small.minilm(place)
            run = small.tags(place, "tags-tuned", model, SENTENCES, **flags)
        elif layers:
            flags = {
                "feature_based": True,
                "feature_layers": layers,
                "learning_rate": 1e-3,
                "num_train_epochs": 3,
            }
            name, model = f"tags-{layers}", small.minilm(place)
            run = small.tags(place, name, model, SENTENCES, seeds=place.seed_range(2), **flags)
        cells.append(Cell(row, "F1", number, run, "eval_f1"))
    return Table(
        "table7_feature_based",
        "Table 7: CoNLL-2003, dev",
        cells,
        [
            f"Ours: MiniLM (6 layers, 384 wide), lower-cased, in BERT-base's place; trained on the "
            f"first {SENTENCES[0]:,} sentences of eng.train or a few more, evaluated on "
            f"{SENTENCES[1]:,} of eng.testa: 8 epochs of fine-tuning at 1e-4, 3 of the LSTM on "
            f"vectors at 1e-3.",
        ],
    )


def paper_scale(place: Place) -> list[full.Launch]:
    launches = []
    for row, (_, layers) in PAPER.items():
        size = "large" if "large" in row else "base"
        flags = {
            "data_dir": "conll2003",
            "train_file": "eng.train",
            "dev_file": "eng.testa",
            "test_file": "eng.testb",
            "do_train": True,
            "do_eval": True,
            "do_predict": True,
            "document_context": True,
            "num_runs": 5,
            **full.released(place, size, "cased"),
            "output_dir": f"conll-{size}-{layers or 'tuned'}",
        }
        if layers not in (None, "tuned"):
            flags |= {"feature_based": True, "feature_layers": layers, "learning_rate": 1e-3}
        config = full.config_of(size, "cased")
        what = f"CoNLL-2003: {row}"
        launches.append(full.tuning(what, "run_ner.py", flags, config, EXAMPLES, 128, runs=5))
    return launches


if __name__ == "__main__":
    main(small_scale, paper_scale)
