"""A run's cost before it is begun, as text: operations, memory, hours and money by machine.

    print(estimate(BertConfig.named("base", 30522), parse_phases("128:900000:256,512:100000:256")))

`run_pretraining.py --estimate` prints it for its flags. See `cost_model` for what it rests on, and
`machines` for the machines and the dates of the prices.
"""

import math
from collections.abc import Sequence

import tensorflow as tf
from tabulate import tabulate

from modeling import checkpoints
from modeling.checkpoints.students.making import Student
from modeling.config import BertConfig
from modeling.costs import cost_model
from modeling.costs import machines as cost_machines
from modeling.costs.machines import Machine
from modeling.costs.phase_cost import PhaseCost, predictions_of
from modeling.errors import ModelingError
from modeling.training.engine.precision import fastest_dtype
from modeling.training.phases import Phase, phase_folders

# Tokens of text that a core makes into records in a second of its time, each token counted once
# per pass over the text (--dupe_factor). By Beam's DirectRunner with two processes, what 500 MB
# take more than 50 MB; `python -m tests.benchmarks.pretraining_data --beam_python=…`.
DATA_TOKENS_PER_CORE_SECOND = 4_200_000
# English Wikipedia under the released uncased vocabulary.
TEXT_BYTES_PER_TOKEN = 4.6
# Each part of a batch has gradients of all weights, which are added: with more weights than these
# for a token of the batch that takes longer than threads wait for each other otherwise.
WEIGHTS_PER_TOKEN_OF_PARTS = 30_000
MEAN_HOURS = (1, 6, 24)
"""Between pre-emptions, for the table of what they cost."""

# As text files and Parquet are named whose text is larger than they are.
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".parquet")


def estimate(
    config: BertConfig,
    phases: Sequence[Phase],
    *,
    machines: Sequence[Machine] | None = None,
    dtype: str = "float32",
    accumulation_steps: int = 1,
    remat: bool = False,
    next_sentence: bool = True,
    save_checkpoints_steps: int = 1000,
    corpus_bytes: float = 0,
    dupe_factor: int = 10,
    teachers: Sequence[BertConfig] = (),
    all_places: bool = False,
    save_checkpoints_minutes: float = 0.0,
    averaged: bool = False,
) -> str:
    """What pre-training costs, in some lines of text.

    Args:
        config: The model.
        phases: Lengths, steps and batches.
        machines: By default the CPU that the constants were measured on, and
            `machines.ACCELERATORS`.
        dtype: "float32" or one of 16 bits. Accelerators are taken to compute in 16 bits in any
            case, since no one would train there otherwise.
        accumulation_steps: Micro-batches at least; more where the memory asks for them.
        remat: Activations are computed again in the backward pass.
        next_sentence: False where no next sentence is predicted.
        save_checkpoints_steps: Steps between checkpoints.
        corpus_bytes: Of text that records are to be made of, for each phase its own; 0: they are
            there.
        dupe_factor: Passes over that text.
        teachers: Models whose forward pass is in every step.
        all_places: Whether they teach what stands at every place, and not at the masked ones.
        save_checkpoints_minutes: Minutes between checkpoints, if they come sooner; 0: they don't.
        averaged: A mean of the weights is kept besides.

    Returns:
        Lines of text with aligned columns.
    """
    half = dtype != "float32"
    if machines is None:
        machines = (
            cost_machines.CPU["bfloat16" if half else "float32"],
            *cost_machines.ACCELERATORS,
        )
    labels = 2 if next_sentence else 0
    taught = {"teachers": teachers, "all_places": all_places}
    lines = [_describe(config, phases, labels, half, averaged, **taught)]
    lines += [
        f"A teacher of {teacher.num_hidden_layers} layers, {teacher.hidden_size} wide, reads what "
        f"is trained on: its {cost_model.parameters(teacher):,} weights and its forward pass are "
        f"in the table."
        for teacher in teachers
    ]
    plans: list[tuple[Machine, list[PhaseCost]]] = []
    for machine in machines:
        on_cpu = machine.price is None
        options = {"half_precision": half if on_cpu else True, "remat": remat}
        options |= {"accumulation_steps": accumulation_steps, "averaged": averaged, **taught}
        plans.append((machine, [PhaseCost(config, machine, p, labels, **options) for p in phases]))
    columns = ("machine", "rows", "steps/s", "computed", "memory", "hours", "dollars")
    rows = [_row(machine, phases, planned) for machine, planned in plans]
    prices = [
        f"  {machine.name}: ${machine.price.dollars:,.2f} an hour, {machine.price.source}"
        for machine in machines
        if machine.price
    ]
    explained = (
        "rows: of a micro-batch on a device, × micro-batches; computed: of a device; memory: of a "
        "device at most (XLA, base, v5e: half to nine tenths of it). Prices on demand:"
    )
    if not half and any(machine.price for machine in machines):
        explained = (
            "Accelerators are counted with 16-bit numbers, as --dtype=bfloat16 trains there.\n"
            + explained
        )
    lines.append("\n".join([_table(columns, rows), "", explained, *prices]))
    if corpus_bytes:
        passes = dupe_factor * len(set(phase_folders(phases)))
        lines.append(data_cost(corpus_bytes / TEXT_BYTES_PER_TOKEN, passes))
    lines.append(
        _interruptions(config, phases, plans, save_checkpoints_steps, save_checkpoints_minutes)
    )
    return "\n\n".join(lines)


def estimate_run(
    values, config: BertConfig, phases: Sequence[Phase], corpus_files: Sequence[str]
) -> str:
    """`estimate` of what run_pretraining.py's flags ask for.

    Args:
        values: The script's flag values.
        config, phases: What it makes of them, a student's teacher for the student.
        corpus_files: Raw text; only their sizes are read.

    Raises:
        ModelingError: A budget takes the place of the steps, or the flags of a student aren't of
            this teacher.
    """
    if values.adapt or values.minutes or values.flops:
        budgets = "--adapt, --minutes and --flops" if values.adapt else "--minutes and --flops"
        raise ModelingError(
            f"--estimate tells what --num_train_steps (or --phases) take; {budgets} are measured "
            f"where the run is. Leave one of them out."
        )
    student = Student.from_flags(values, config)
    if student:
        config = student.config(config)
    teachers = [
        checkpoints.config_of_checkpoint(checkpoints.open_contents(path)) for path in values.teacher
    ]
    text = estimate(
        config,
        phases,
        dtype=fastest_dtype() if values.dtype == "auto" else values.dtype,
        accumulation_steps=values.gradient_accumulation_steps,
        remat=values.remat,
        next_sentence=values.objective == "mlm_nsp",
        save_checkpoints_steps=values.save_checkpoints_steps,
        save_checkpoints_minutes=values.save_checkpoints_minutes,
        averaged=bool(values.average_last),
        # Fresh masks are those of no records: the text is read while the model trains.
        corpus_bytes=0
        if values.dynamic_masking
        else sum(tf.io.gfile.stat(file).length for file in corpus_files),
        dupe_factor=values.dupe_factor,
        teachers=teachers,
        all_places=bool(teachers) and values.teacher_places == "all",
    )
    packed = sum(file.endswith(_PACKED) for file in corpus_files)
    if packed:
        text += (
            f"\n\n{packed} of {len(corpus_files)} files of text are compressed, and counted by "
            f"the bytes that they have as they lie there: their text is larger, and costs more."
        )
    if corpus_files and values.dynamic_masking:
        text += (
            "\n\nThe text is read and masked while the model trains, by other cores; that is in no "
            "column."
        )
    if values.optimizer == "muon":
        text += (
            "\n\nCounted are the updates of --optimizer=adam. Muon's take longer: a step of a "
            "small model with small batches up to half as long again, on a GPU more."
        )
    return text


def gains_from_parts(values, config: BertConfig, phases: Sequence[Phase]) -> bool:
    """Whether a processor is to train on the batches of pre-training in two parts side by side.

    Threads are divided once, so all phases have to gain. See `modeling.side_by_side`.

    Args:
        values, config, phases: As of `estimate_run`.
    """
    if values.xla or not values.do_train:
        return False
    student = Student.from_flags(values, config) if values.init_checkpoint else None
    weights = cost_model.parameters(student.config(config) if student else config)
    rows = [phase.batch_size // values.gradient_accumulation_steps for phase in phases]
    lengths = [phase.max_seq_length for phase in phases]
    tokens = min(number * length for number, length in zip(rows, lengths, strict=True))
    # One of two unequal parts would wait for the other.
    return not any(number % 2 for number in rows) and weights <= WEIGHTS_PER_TOKEN_OF_PARTS * tokens


def data_cost(tokens: float, passes: int) -> str:
    """What making records of a text costs, with Beam on a cluster or here.

    Args:
        tokens: Of the text, each counted once.
        passes: Over the text.
    """
    hours = tokens * passes / DATA_TOKENS_PER_CORE_SECOND / 3600
    price = cost_machines.CPU_HOUR
    return (
        f"Records of {tokens:,.3g} tokens of text, {passes} passes: {_rounded(hours)} core hours "
        f"at {DATA_TOKENS_PER_CORE_SECOND:,} tokens per core and second and pass, "
        f"${hours * price.dollars:,.2f} ({price.source}: ${price.dollars} a core hour)."
    )


def _row(machine: Machine, phases: Sequence[Phase], plans: Sequence[PhaseCost]) -> tuple[str, ...]:
    """The machine's row of the table."""
    if not all(plan.rows for plan in plans):
        problem = next(plan.problem for plan in plans if not plan.rows)
        return (machine.name, problem, *[""] * 5)
    pairs = zip(phases, plans, strict=True)
    hours = sum(phase.num_steps * plan.seconds for phase, plan in pairs) / 3600
    return (
        machine.name,
        ", ".join(plan.rows_text for plan in plans),
        ", ".join(_rounded(1 / plan.seconds) for plan in plans),
        ", ".join(f"{plan.flops_per_second / 1e12:.3g}" for plan in plans) + " TFLOP/s",
        ", ".join(f"{plan.memory / 2**30:.1f}" for plan in plans) + " GiB",
        _rounded(hours),
        _rounded(machine.dollars(hours)) if machine.price else "–",
    )


def _describe(
    config: BertConfig,
    phases: Sequence[Phase],
    labels: int,
    half: bool,
    averaged: bool,
    teachers: Sequence[BertConfig],
    all_places: bool,
) -> str:
    weights, mean = cost_model.parameters(config), 4 if averaged else 0
    text = [
        f"{config.num_hidden_layers} layers, {config.hidden_size} wide: {weights:,} weights, "
        f"{weights * (cost_model.STATE_BYTES + mean) / 2**30:.2f} GiB with gradients and moments, "
        f"{weights * (cost_model.CHECKPOINT_BYTES + mean) / 2**30:.2f} GiB a checkpoint."
    ]
    for phase in phases:
        predictions = phase.max_seq_length if all_places else predictions_of(config, phase)
        sizes = phase.batch_size, phase.max_seq_length, predictions
        work = [cost_model.step_work(config, *sizes, labels, half_precision=half)]
        work += [cost_model.forward_work(t, *sizes, half_precision=half) for t in teachers]
        tokens = phase.batch_size * phase.max_seq_length * phase.num_steps
        text.append(
            f"{phase.num_steps:,} steps of {phase.batch_size} × {phase.max_seq_length} tokens "
            f"({tokens:.3g} in all): a step is {sum(part.flops for part in work) / 1e12:.3g} "
            f"TFLOP and moves {sum(part.bytes for part in work) / 1e9:.3g} GB."
        )
    return "\n".join(text)


def _interruptions(
    config: BertConfig,
    phases: Sequence[Phase],
    plans: Sequence[tuple[Machine, Sequence[PhaseCost]]],
    save_checkpoints_steps: int,
    save_checkpoints_minutes: float,
) -> str:
    """By machine and rate of pre-emption: the best interval, what it loses, what the flags lose."""
    as_given = f"every {save_checkpoints_steps:,} steps"
    if save_checkpoints_minutes:
        as_given += f", {save_checkpoints_minutes:g} min"
    columns = ("a machine lost every", "", *(f"{hours} h" for hours in MEAN_HOURS))
    rows = []
    for machine, planned in plans:
        if not all(plan.rows for plan in planned):
            continue
        times = [p.num_steps * plan.seconds for p, plan in zip(phases, planned, strict=True)]
        intervals = [
            min(save_checkpoints_steps * plan.seconds, 60 * save_checkpoints_minutes or math.inf)
            for plan in planned
        ]
        best, as_set = [], []
        for hours in MEAN_HOURS:
            cost = cost_model.interruption_cost(config, machine, hours * 3600)
            interval = cost.best_interval
            best.append(f"{_rounded(interval / 60)} min, {cost.overhead():.1%}")
            losses = [
                seconds * cost.overhead(interval)
                for seconds, interval in zip(times, intervals, strict=True)
            ]
            lost = sum(losses) / sum(times)
            as_set.append(f"{lost:.1%}" if lost < 1 else "more than trained")
        rows.append((machine.name, "best interval, lost", *best))
        rows.append(("", as_given, *as_set))
    return _table(columns, rows) + (
        "\nlost: saving, restarting and repeating, as a share of the training (Young 1974; "
        "Daly 2006)."
    )


def _rounded(value: float) -> str:
    """Three digits, without exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1e-4))))}f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    sides = ("left", *["right"] * (len(columns) - 1))
    text = tabulate(
        rows, columns, "plain", disable_numparse=True, colalign=sides, headersglobalalign="same"
    )
    return "\n".join(line.rstrip() for line in text.splitlines())
