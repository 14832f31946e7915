"""How a machine goes through one phase of pre-training: in which parts, how fast, in what memory.

cost = PhaseCost(config, machine, phase, labels=2, half_precision=True)
"""

from collections.abc import Sequence

from modeling.config import BIDIRECTIONAL, BertConfig
from modeling.costs import cost_model
from modeling.costs.machines import Machine
from modeling.training.phases import Phase


class PhaseCost:
    """How a machine goes through one phase.

    Attributes:
        rows: Of a micro-batch on a device; 0 if it can't be computed there.
        problem: Why not: not even one row fits, or the batch can't be divided among the devices.
        accumulation_steps: Micro-batches.
        seconds: Of a step.
        memory: Bytes of a device.
        flops_per_second: Of a device.
    """

    def __init__(
        self,
        config: BertConfig,
        machine: Machine,
        phase: Phase,
        labels: int,
        *,
        half_precision: bool,
        accumulation_steps: int = 1,
        remat: bool = False,
        teachers: Sequence[BertConfig] = (),
        all_places: bool = False,
        averaged: bool = False,
    ):
        length, predictions = phase.max_seq_length, predictions_of(config, phase)
        if all_places:
            predictions = length
        options = {"half_precision": half_precision, "remat": remat}
        device_rows, left = divmod(phase.batch_size, machine.devices)
        self.rows, self.accumulation_steps, self.problem = 0, 1, "doesn't fit"
        uneven = bool(left) and not machine.even_batches and accumulation_steps == 1
        if uneven:
            device_rows, left = device_rows + 1, 0  # the step waits for the fullest
        if not device_rows or left:
            self.problem = f"batch isn't n × {machine.devices}"
            return
        if device_rows % accumulation_steps:
            self.problem = f"rows aren't n × {accumulation_steps}"
            return
        weights = 4.0 * cost_model.parameters(config)
        held = sum(4.0 * cost_model.parameters(teacher) for teacher in teachers)
        held += weights if averaged else 0
        sizes = config, machine, length, predictions
        fits = cost_model.largest_batch(*sizes, held=held, **options)
        if accumulation_steps > 1 or device_rows > fits:
            held += weights  # the sum of the micro-batches' gradients
            fits = cost_model.largest_batch(*sizes, held=held, **options)
        parts = next(
            (
                n
                for n in range(accumulation_steps, device_rows + 1, accumulation_steps)
                if device_rows % n == 0 and device_rows // n <= fits and not (uneven and n > 1)
            ),
            0,
        )
        if not parts:
            return
        self.accumulation_steps, self.rows = parts, device_rows // parts
        work = cost_model.step_work(
            config,
            device_rows,
            length,
            predictions,
            labels,
            accumulation_steps=self.accumulation_steps,
            **options,
        )
        sizes = device_rows, length, predictions
        taught = [
            cost_model.forward_work(teacher, *sizes, half_precision=half_precision)
            for teacher in teachers
        ]
        self.seconds = sum(part.seconds(machine) for part in (work, *taught))
        self.flops_per_second = sum(part.flops for part in (work, *taught)) / self.seconds
        self.memory = cost_model.step_memory(config, self.rows, length, predictions, **options)
        self.memory += held

    @property
    def rows_text(self) -> str:
        """Rows of a device, and in how many parts they are computed."""
        parts = f" × {self.accumulation_steps}" if self.accumulation_steps > 1 else ""
        return f"{self.rows}{parts}"


def predictions_of(config: BertConfig, phase: Phase) -> int:
    """Of a row of the phase; in one direction every token's next is predicted."""
    if phase.max_predictions_per_seq and config.attention_direction != BIDIRECTIONAL:
        return phase.max_seq_length
    return phase.max_predictions_per_seq
