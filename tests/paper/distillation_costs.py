"""What distilling BERT-Base costs at the paper's sizes. Nothing is run.

    python -m tests.paper.distillation_costs

One task: MNLI's 392,702 pairs of at most 128 tokens, three epochs in batches of 32. The teacher
answers them once; students are trained with its answers, or with its layers as well, for which it
runs in every step. In general: a tenth of the paper's pre-training, 100,000 steps of 256 sequences
of 128 tokens, the teacher running in each. By the cost model; see modeling/costs/cost_model.py.
"""

from modeling import quiet  # noqa: F401  isort: skip

import math

from tabulate import tabulate

from modeling.config import BertConfig
from modeling.costs import machines
from modeling.costs.cost_model import forward_work, step_work
from modeling.costs.machines import Machine

PAIRS, EPOCHS, LENGTH = 392_702, 3, 128
STEPS, SEQUENCES, PREDICTIONS = 100_000, 256, 20
_SIZES = {"6 × 768": (6, 768), "3 × 768": (3, 768), "6 × 384": (6, 384), "4 × 256": (4, 256)}


def config_of(layers: int, hidden: int) -> BertConfig:
    """As the releases of that size: heads of 64."""
    heads = hidden // 64
    return BertConfig(
        30522,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )


def hours_of_task(student: BertConfig | None, machine: Machine, live: bool = False) -> float:
    """The teacher's answers and the student's training; without a student the teacher's own."""
    teacher = BertConfig.named("base", 30522)
    rows = math.ceil(32 / machine.devices)
    steps = math.ceil(PAIRS * EPOCHS / 32)
    seconds = step_work(student or teacher, rows, LENGTH, labels=3).seconds(machine) * steps
    if student:
        forward = forward_work(teacher, rows, LENGTH).seconds(machine)
        seconds += forward * (steps if live else steps / EPOCHS)
    return seconds / 3600


def hours_in_general(student: BertConfig | None, machine: Machine) -> float:
    """Of pre-training with a teacher; without a student of the teacher's own size, without one."""
    teacher = BertConfig.named("base", 30522)
    rows = math.ceil(SEQUENCES / machine.devices)
    work = step_work(student or teacher, rows, LENGTH, PREDICTIONS, 2)
    seconds = work.seconds(machine)
    if student:
        seconds += forward_work(teacher, rows, LENGTH, PREDICTIONS).seconds(machine)
    return seconds * STEPS / 3600


def main() -> None:
    everywhere = (machines.CPU["bfloat16"], *machines.ACCELERATORS)
    table = []
    for machine in everywhere:
        for name, sizes in {"teacher itself": None, **_SIZES}.items():
            student = sizes and config_of(*sizes)
            hours = [hours_of_task(student, machine)]
            hours.append(hours_of_task(student, machine, live=True) if student else hours[0])
            hours.append(hours_in_general(student, machine))
            dollars = [h * machine.price.dollars if machine.price else math.nan for h in hours]
            cells = [
                f"{h:,.2f}" + ("" if math.isnan(d) else f" (${d:,.2f})")
                for h, d in zip(hours, dollars, strict=True)
            ]
            table.append([machine.name, name, *cells])
    headers = ["machine", "student", "MNLI, answers: hours", "MNLI, layers too", "in general"]
    print(tabulate(table, headers, "github", disable_numparse=True))


if __name__ == "__main__":
    main()
