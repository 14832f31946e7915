"""From a trained model to small ones that are served: the whole way in one command.

    python run_classifier.py --student=3,2 --init_checkpoint=TRAINED … --output_dir=OUT

makes OUT/teacher (evaluation and export), OUT/student-3 and OUT/student-2 (trained, evaluated,
exported), and from what they say OUT/students.tsv and OUT/students.png.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tabulate import tabulate

from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.training.distillation.measuring import MeasuredExport, measure_exports
from modeling.training.given_model import open_given_model
from modeling.training.reading_flags import kept_reading_flags
from modeling.training.runs import charts
from modeling.training.runs import summary as summaries

TABLE, PICTURE = "students.tsv", "students.png"
_TEACHER = "teacher"
# What the command sets itself, in each of its runs.
_OWN = ("student", "output_dir", "init_checkpoint", "do_train", "do_eval", "do_predict")
_OWN += ("do_export", "export_dir", "student_layers", "student_num_layers")
# What a run without a teacher, or without training, refuses.
_OF_STUDENTS = ("teacher_temperature", "label_share", "match_hidden_states", "match_relations")
_OF_STUDENTS += ("match_weight", "transfer_file", "overwrite_output_dir", "student_hidden_size")
_OF_STUDENTS += ("student_projection", "eval_steps", "best_metric", "early_stopping_patience")
# What would do nothing, or something else than is asked for.
_NOT_GIVEN = ("teacher", "export_dir", "student_layers", "student_num_layers")


class _Row(NamedTuple):
    """One model of the table."""

    name: str
    config: BertConfig
    parameters: int
    results: dict[str, float]
    metric: str
    measured: MeasuredExport | None = None


def run_students(values, script: str, run: Callable[..., None]) -> None:
    """Makes students of a trained model, and shows what they keep and what they gain.

    Args:
        values: The script's flag values, `student` among them: numbers of layers.
        script: Its path.
        run: Called with the script, its flags by name, and further arguments for each model:
            shows the command and does it.

    Raises:
        ModelingError: There is no trained model, or a flag was given that the command sets itself.
        SystemExit: A run has failed, and has said why.
    """
    evaluate = "do_eval" if "do_eval" in values else "do_predict"
    counts, folder, teacher = _counts(values, evaluate), values.output_dir, values.init_checkpoint
    flags = {"init_checkpoint": teacher, evaluate: True, "do_export": True}
    runs: dict[str, dict[str, Any]] = {_TEACHER: flags}
    # What trains goes by its flags alone; students are to read texts as their teacher does.
    kept = kept_reading_flags(teacher)
    read = {name: kept[name] for name in kept if name in values and not values[name].present}
    for count in counts:
        own = {"do_train": True, "student_num_layers": count, "teacher": teacher}
        runs[f"student-{count}"] = flags | read | own
    rows = []
    for name, own in runs.items():
        left_out = {*_OWN, *(_OF_STUDENTS if name == _TEACHER else ())}
        given = [values[n].serialize() for n in values if values[n].present and n not in left_out]
        run(script, own | {"output_dir": join(folder, name)}, given)
        rows.append(_row(name, join(folder, name)))
    measured = measure_exports([_newest_export(join(folder, name)) for name in runs])
    rows = [row._replace(measured=m) for row, m in zip(rows, measured, strict=True)]
    cells = _cells(rows)
    with staged(folder) as temporary:
        text = "".join("\t".join(row) + "\n" for row in cells)
        write_staged_text(join(temporary, TABLE), text)
    _draw(rows, join(folder, PICTURE))
    align = ["left", *["right"] * (len(cells[0]) - 1)]
    table = tabulate(cells[1:], cells[0], "plain", disable_numparse=True, colalign=align)
    shown = "\n".join(f"  {join(folder, name)}" for name in (TABLE, PICTURE))
    exports = "\n".join(f"  {join(folder, name)}/export" for name in runs)
    print(
        f"\n{table}\n\nMilliseconds of one text, texts a second in batches: on this "
        f"machine, in turn.\n\nTo look at:\n{shown}\n\nTo serve:\n{exports}"
    )


def _counts(values, evaluate: str) -> list[int]:
    """The numbers of layers that --student asks for."""
    texts = [text.strip() for text in values.student]
    if not values.output_dir or not values.init_checkpoint:
        raise ModelingError(
            "--student makes small models of a trained one: give its folder as --init_checkpoint, "
            "and --output_dir for what is made."
        )
    not_given = (*_NOT_GIVEN, *(["do_predict"] if evaluate != "do_predict" else []))
    given = [f"--{n}" for n in not_given if values[n].present]
    if given:
        raise ModelingError(
            f"{' and '.join(given)} and --student exclude each other: it teaches students of the "
            f"layers that it names by --init_checkpoint, evaluates them, and exports each in its "
            f"own folder. For more, run the commands that it shows."
        )
    if values.export_format != "saved_model":
        raise ModelingError(
            f"--student measures what it exports, which --export_format={values.export_format} "
            f"allows in other programs alone. Leave it out, and export the student that you choose."
        )
    config = open_given_model(values)
    depth = config.num_hidden_layers
    counts = [int(text) if text.isdecimal() else 0 for text in texts]
    fits = all(0 < count <= depth for count in counts)
    if not fits or len(set(counts)) < len(counts):
        raise ModelingError(
            f"--student is {','.join(texts)}; it takes numbers of layers, each once, from 1 to the "
            f"{depth} of {values.init_checkpoint}, such as --student={max(depth // 2, 1)}."
        )
    return counts


def _row(name: str, folder: str) -> _Row:
    """What a run's files say of its model."""
    with tf.io.gfile.GFile(join(folder, summaries.FILE)) as file:
        entry = json.load(file)["sessions"][-1]
    config = BertConfig.from_dict(entry["config"])
    results = _results(folder)
    names = [name.removeprefix("eval_") for name in entry["result_names"]]
    metric = next((metric for metric in names if metric in results), None)
    if metric is None:
        raise ModelingError(
            f"{folder} has no evaluation by {' or '.join(names)}: what is evaluated on has no "
            f"right answers. Students are compared with their teacher by them: give such a file."
        )
    return _Row(name, config, entry["parameters"], results, metric)


def _results(folder: str) -> dict[str, float]:
    """Metrics by name, without the loss."""
    path = join(folder, "eval_results.json")
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            found = json.load(file)
    elif tf.io.gfile.exists(join(folder, "eval_results.txt")):
        with tf.io.gfile.GFile(join(folder, "eval_results.txt")) as file:
            found = dict(line.rstrip("\n").split(" = ") for line in file)
    else:
        found = {}
    left_out = ("global_step", "loss", "eval_loss", "skipped_rows")
    numbers = {name: value for name, value in found.items() if name not in left_out}
    return {n.removeprefix("eval_"): float(v) for n, v in numbers.items() if v != "undefined"}


def _newest_export(folder: str) -> str:
    versions = tf.io.gfile.listdir(join(folder, "export"))
    newest = max(int(name.rstrip("/")) for name in versions if name.rstrip("/").isdecimal())
    return join(folder, f"export/{newest}")


def _cells(rows: Sequence[_Row]) -> list[list[str]]:
    """A header, and a row of each model; what students keep and gain stands behind."""
    teacher = rows[0]
    metrics = [teacher.metric, *(n for n in teacher.results if n != teacher.metric)][:3]
    lengths = list(teacher.measured.milliseconds)
    header = ["model", "layers", "width", "parameters", *metrics, "kept", "MB"]
    header += [f"ms, {length} pieces" for length in lengths] + ["texts/s", "speed"]
    table = [header]
    for row in rows:
        measured = row.measured
        best, own = (one.results.get(teacher.metric, math.nan) for one in (teacher, row))
        kept = f"{own / best:.1%}" if best and math.isfinite(own) else "–"
        speed = measured.texts_per_second / teacher.measured.texts_per_second
        table.append(
            [
                row.name,
                str(row.config.num_hidden_layers),
                str(row.config.hidden_size),
                f"{row.parameters:,}",
                *(f"{row.results.get(name, math.nan):.4g}" for name in metrics),
                kept,
                f"{measured.megabytes:.1f}",
                *(f"{measured.milliseconds[length]:.2f}" for length in lengths),
                f"{measured.texts_per_second:.0f}",
                f"{speed:.2f}×",
            ]
        )
    return table


def _draw(rows: Sequence[_Row], path: str) -> None:
    length = next(iter(rows[0].measured.milliseconds))
    charts.scatter_png(
        [
            {
                "name": f"{row.name}, {row.config.num_hidden_layers} × {row.config.hidden_size}",
                "x": row.measured.milliseconds[length],
                "y": row.results.get(rows[0].metric, math.nan),
                "special": row.name == _TEACHER,
            }
            for row in rows
        ],
        path,
        f"milliseconds for a text of {length} pieces",
        rows[0].metric,
    )
