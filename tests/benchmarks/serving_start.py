"""How long a server takes from loading an export to its first answer, and what it holds then.

    python -m tests.benchmarks.serving_start --exports=before=old/export/1,after=new/export/1

Each export is loaded in turns in a process of its own, by the C++ loader that TF Serving uses, and
asked once for the ids of one text of `--pieces` pieces. Without warm-up.
"""

import pathlib
import statistics
import tempfile

import numpy as np
from absl import app, flags

from tests.benchmarks.turns import interleaved
from tests.modeling.serving.cpp_loader import CppLoader, compiled

FLAGS = flags.FLAGS
COSTS = ("loading_seconds", "answering_seconds", "held_megabytes", "most_megabytes")
PAUSE = 0.2


def main(_) -> None:
    exports = dict(each.split("=", 1) for each in FLAGS.exports)
    ids = np.arange(1000, 1000 + FLAGS.pieces, dtype=np.int32)[np.newaxis]
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in exports}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        load = CppLoader(compiled(folder / "loader"), folder)

        def once(name: str) -> float:
            load(exports[name], "tokenized", **inputs)
            found[name].append(load.costs)
            return load.costs["loading_seconds"]

        calls = {name: lambda name=name: once(name) for name in exports}
        interleaved(calls, 1, PAUSE)  # so that all files have been read once
        for costs in found.values():
            costs.clear()
        interleaved(calls, FLAGS.rounds, PAUSE)
    lines = [["", *(cost.replace("_", ", ") for cost in COSTS)], ["---", *["---:"] * len(COSTS)]]
    for name, costs in found.items():
        medians = [statistics.median(one[cost] for one in costs) for cost in COSTS]
        lines.append([name, *(f"{median:.2f}" for median in medians[:2])])
        lines[-1] += [f"{median:.0f}" for median in medians[2:]]
    print(f"One text of {FLAGS.pieces} pieces, medians of {FLAGS.rounds} rounds\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    flags.DEFINE_list("exports", None, "NAME=FOLDER of a version, each.", required=True)
    flags.DEFINE_integer("pieces", 16, "Of the text.", lower_bound=1)
    flags.DEFINE_integer("rounds", 7, "Timed turns of each export.", lower_bound=1)
    app.run(main)
