"""What students learn from their teacher: scores with and without it, several seeds, real tasks.

    python -m tests.benchmarks.distillation --data=../shared/data --minilm=$MINILM_DIR \\
        --output_dir=/tmp/distillation --tasks=sst2,mrpc,stsb,conll --layers=3,2 --seeds=3

MiniLM is fine-tuned on each task: the teacher. Students begin as its lowest layers, and are
trained on the same examples with its answers and hidden states and without them. With
--general_steps they begin as layers of MiniLM that were first made like its own on Wikipedia, by
run_pretraining.py. Runs that are finished are not made again; what is printed are mean and standard
deviation (n − 1) over the seeds, and how much of the teacher's score is kept. --more says how the
students are taught, --students how all of them are trained (the flags of the script), --at_once
trains several side by side, which small models make better use of the cores with, --only_table
prints what is there.
"""

import dataclasses
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from absl import app, flags

FLAGS = flags.FLAGS
WITHOUT, WITH = "without", "with"


@dataclasses.dataclass(frozen=True)
class BenchmarkTask:
    """A task of the table.

    Attributes:
        script: What trains it.
        metric: Of the results.
        data: Flags of the files, DATA standing for the folder.
        teacher: Flags of the teacher's training.
        student: Flags of the students'.
        judged: The flag that has the script evaluate.
    """

    script: str
    metric: str
    data: str
    teacher: str
    student: str
    judged: str = "--do_eval"


_ADAMW = "--optimizer=adamw --learning_rate"
TASKS = {
    "sst2": BenchmarkTask(
        "run_classifier.py",
        "eval_accuracy",
        "--task_name=SST-2 --data_dir=DATA/glue/SST-2 --max_seq_length=64",
        f"{_ADAMW}=5e-5 --num_train_epochs=1 --max_train_examples=20000",
        f"{_ADAMW}=2e-4 --num_train_epochs=1 --max_train_examples=12000",
    ),
    "mrpc": BenchmarkTask(
        "run_classifier.py",
        "eval_f1",
        "--task_name=MRPC --data_dir=DATA/glue/MRPC --max_seq_length=96",
        f"{_ADAMW}=5e-5 --num_train_epochs=4",
        f"{_ADAMW}=2e-4 --num_train_epochs=2",
    ),
    "stsb": BenchmarkTask(
        "run_classifier.py",
        "eval_spearman",
        "--task_name=STS-B --data_dir=DATA/glue/STS-B --max_seq_length=64",
        f"{_ADAMW}=5e-5 --num_train_epochs=2",
        f"{_ADAMW}=2e-4 --num_train_epochs=2",
    ),
    "conll": BenchmarkTask(
        "run_ner.py",
        "eval_f1",
        "--data_dir=DATA/conll2003 --train_file=eng.train --dev_file=eng.testa --max_seq_length=96",
        f"{_ADAMW}=1e-4 --num_train_epochs=2",
        f"{_ADAMW}=2e-4 --num_train_epochs=1 --max_train_examples=7000",
    ),
    "squad": BenchmarkTask(
        "run_squad.py",
        "f1",
        "--train_file=DATA/squad/train-v1.1.json --predict_file=DATA/squad/dev-v1.1.json "
        "--max_eval_examples=1000 --max_seq_length=192",
        f"{_ADAMW}=1e-4 --num_train_epochs=2 --max_train_examples=4000",
        f"{_ADAMW}=2e-4 --num_train_epochs=2 --max_train_examples=2000",
        "--do_predict",
    ),
}


def score(folder: str, metric: str) -> float | None:
    """What a finished run reached; None if it isn't there."""
    for name in ("eval_results.json", "eval_results.txt"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if name.endswith("json"):
                return float(json.loads(text)[metric]) / 100
            return float(dict(line.split(" = ") for line in text.splitlines())[metric])
    return None


def run(task: BenchmarkTask, folder: str, *arguments: str) -> None:
    """Makes a run unless it is finished; one that was made otherwise is refused."""
    if FLAGS.only_table:
        return
    data = shlex.split(task.data.replace("DATA", FLAGS.data))
    command = [task.script, *data, *arguments, "--do_train", task.judged, "--train_batch_size=32"]
    command += ["--eval_batch_size=64"] * ("ner" not in task.script)
    call(folder, *command, finished=score(folder, task.metric) is not None)


def general_student(layers: str) -> str:
    """Where the student of so many layers lies that learned from MiniLM before any task."""
    folder = os.path.join(FLAGS.output_dir, f"general-{layers}")
    if not FLAGS.only_table:
        text = os.path.join(FLAGS.data, "corpora/enwiki/train/wiki_0[0-3]")
        command = ["run_pretraining.py", f"--corpus_file={text}", "--do_train"]
        command += [f"--init_checkpoint={FLAGS.minilm}", f"--student_num_layers={layers}"]
        command += [f"--teacher={FLAGS.minilm}", "--match_hidden_states=even", "--match_weight=10"]
        command += ["--max_seq_length=64", "--train_batch_size=32", *shlex.split(f"{_ADAMW}=3e-4")]
        command += [f"--num_train_steps={FLAGS.general_steps}", "--num_warmup_steps=50"]
        made = os.path.exists(os.path.join(folder, "bert_model.ckpt.index"))
        call(folder, *command, finished=made)
    return folder


def call(folder: str, *command: str, finished: bool) -> None:
    """Runs a script, its output in the folder's log, unless this very command has finished there.

    Raises:
        SystemExit: Another command has begun in the folder.
    """
    command = [sys.executable, *command, f"--output_dir={folder}", "--log_steps=100"]
    os.makedirs(folder, exist_ok=True)
    note, text = os.path.join(folder, "command"), shlex.join(command)
    begun = None
    if os.path.exists(note):
        with open(note, encoding="utf-8") as file:
            begun = file.read()
    if begun != text and (begun is not None or finished):
        raise SystemExit(f"{folder} is of another command than {text}. Choose another folder.")
    if finished:
        return
    print(text, flush=True)
    with open(note, "w", encoding="utf-8") as file:
        file.write(text)
    threads = {"TF_NUM_INTRAOP_THREADS": str(max(1, os.cpu_count() // FLAGS.at_once))}
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        streams = {"stdout": log, "stderr": subprocess.STDOUT}
        subprocess.run(command, check=True, env=os.environ | threads, **streams)


def teacher_of(name: str) -> str:
    """Where the teacher of a task lies, which is trained if it isn't there."""
    given = FLAGS.teacher_dir and os.path.join(FLAGS.teacher_dir, f"t-{name}")
    if given and os.path.exists(given):
        return given
    folder = os.path.join(FLAGS.output_dir, name, "teacher")
    flags_ = shlex.split(TASKS[name].teacher)
    run(TASKS[name], folder, f"--init_checkpoint={FLAGS.minilm}", *flags_)
    return folder


def student_run(name: str, teacher: str, layers: str, seed: int, kind: str) -> float | None:
    """What a student reaches, which is trained if it isn't there."""
    task = TASKS[name]
    lowest = ",".join(map(str, range(int(layers))))
    start = [f"--init_checkpoint={teacher}", f"--student_layers={lowest}"]
    if FLAGS.general_steps:
        start = [f"--init_checkpoint={general_student(layers)}"]
    more = [f"--teacher={teacher}", *shlex.split(FLAGS.more)] if kind == WITH else []
    folder = os.path.join(FLAGS.output_dir, name, f"{layers}-{kind}-{seed}")
    how = shlex.split(FLAGS.students or task.student)
    run(task, folder, *start, *how, f"--random_seed={seed}", *more)
    return score(folder, task.metric)


def main(_) -> None:
    with ThreadPoolExecutor(FLAGS.at_once) as pool:
        teachers = dict(zip(FLAGS.tasks, pool.map(teacher_of, FLAGS.tasks), strict=True))
        if FLAGS.general_steps:
            list(pool.map(general_student, FLAGS.layers))
        seeds = range(1, FLAGS.seeds + 1)
        wanted = list(itertools.product(FLAGS.tasks, FLAGS.layers, seeds, (WITHOUT, WITH)))
        reached = pool.map(lambda w: student_run(w[0], teachers[w[0]], *w[1:]), wanted)
        scores = dict(zip(wanted, reached, strict=True))
    rows = []
    for name, layers in itertools.product(FLAGS.tasks, FLAGS.layers):
        found = {
            kind: [scores[name, layers, seed, kind] for seed in seeds] for kind in (WITHOUT, WITH)
        }
        metric = TASKS[name].metric
        rows.append([name, metric, score(teachers[name], metric), layers, found])
    print("| task | metric | teacher | layers | without | with | kept | seeds |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name, metric, best, layers, found in rows:
        values = {kind: [v for v in some if v is not None] for kind, some in found.items()}
        cells = [_spread(values[kind]) for kind in (WITHOUT, WITH)]
        kept = f"{statistics.mean(values[WITH]) / best:.1%}" if values[WITH] and best else "–"
        shown = f"{best:.3f}" if best else "–"
        count = "/".join(str(len(values[kind])) for kind in (WITHOUT, WITH))
        row = [name, metric.removeprefix("eval_"), shown, layers, *cells, kept, count]
        print(f"| {' | '.join(row)} |")


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


if __name__ == "__main__":
    flags.DEFINE_string("data", "../shared/data", "Real data sets; see INDEX.md there.")
    flags.DEFINE_string("minilm", None, "Folder of MiniLM's weights.", required=True)
    flags.DEFINE_string("output_dir", None, "For the runs.", required=True)
    flags.DEFINE_string("teacher_dir", None, "Where teachers are already, as t-TASK.")
    flags.DEFINE_list("tasks", list(TASKS), "Which.")
    flags.DEFINE_list("layers", ["3", "2"], "Of the students.")
    flags.DEFINE_integer("seeds", 3, "Runs of each kind.", lower_bound=1)
    flags.DEFINE_integer(
        "general_steps",
        0,
        "Of students that learn from MiniLM before any task.",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "more", "--match_hidden_states=even", "Flags of the students that are taught."
    )
    flags.DEFINE_string("students", None, "How students are trained, in place of the task's own.")
    flags.DEFINE_integer("at_once", 1, "Runs side by side.", lower_bound=1)
    flags.DEFINE_bool("only_table", False, "Run nothing.")
    app.run(main)
