"""Pre-training in phases of different sequence length (paper, appendix A.2).

The paper trains 90 % of the steps on sequences of 128 tokens and the rest on 512, "to learn the
positional embeddings". One run does both: weights, optimizer and learning rate go on from phase
to phase as if nothing had happened, only the data change.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

from absl import logging

from modeling.errors import ModelingError

# The share of masked tokens that max_predictions_per_seq has to hold, as the original advises.
MASKED_SHARE = 0.15
_PHASE = r"\s*[1-9]\d{0,4}:[1-9]\d{0,8}(:[1-9]\d{0,4}){1,2}\s*"


@dataclasses.dataclass(frozen=True)
class Phase:
    """One phase.

    Attributes:
        max_seq_length: Tokens per record.
        num_steps: Updates in this phase.
        batch_size: Records per update, over all replicas.
        max_predictions_per_seq: Masked tokens per record at most.
        first_step: Updates of all phases before it.
    """

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int
    first_step: int = 0

    @property
    def last_step(self) -> int:
        """Updates done when it ends."""
        return self.first_step + self.num_steps


def phase_folders(phases: Sequence[Phase]) -> list[str]:
    """Where each phase's own records go; phases of equal records share a folder."""
    names = []
    for phase in phases:
        length, predictions = phase.max_seq_length, phase.max_predictions_per_seq
        alike = {p.max_predictions_per_seq for p in phases if p.max_seq_length == length}
        names.append(f"length-{length}" + (f"-{predictions}" if len(alike) > 1 else ""))
    return names


def given_phases(values) -> list[Phase]:
    """The phases that the flags mean: those of --phases, or the one that the others describe.

    Args:
        values: The script's flag values. `max_seq_length`, by which texts of an export are cut,
            becomes that of the longest of --phases.

    Raises:
        ModelingError: See `parse_phases`; or their steps are to be as many as two budgets hold.
    """
    if values.minutes and values.flops:
        raise ModelingError("--minutes and --flops are two budgets; give one of them.")
    names = ("max_seq_length", "num_train_steps", "train_batch_size", "max_predictions_per_seq")
    if values.phases:
        phases = parse_phases(values.phases)
        idle = [f"--{name}" for name in names if values[name].present]
        if idle:
            logging.log_first_n(
                logging.WARNING, "%s: not looked at, as --phases has them.", 1, ", ".join(idle)
            )
        values["max_seq_length"].value = max(phase.max_seq_length for phase in phases)
        return phases
    return [Phase(*(values[name].value for name in names))]


def check_phases_fit(phases: Sequence[Phase], longest: int, config_file: str | None) -> None:
    """Refuses records that are longer than a model's `max_position_embeddings`, `longest`.

    Raises:
        ModelingError: Names the file of the configuration, if one was given.
    """
    length = max(phase.max_seq_length for phase in phases)
    if length > longest:
        raise ModelingError(
            f"--max_seq_length (or --phases) is {length}, but max_position_embeddings in "
            f"{config_file or 'the configuration beside the weights'} is {longest}: give that, or "
            f"less."
        )


def parse_phases(text: str) -> list[Phase]:
    """Reads "LENGTH:STEPS:BATCH[:PREDICTIONS],…", as in "128:900000:256,512:100000:256".

    Without PREDICTIONS it is 15 % of the length, rounded up.

    Raises:
        ModelingError: Not of this form, or a number below 1 or that can't be meant.
    """
    phases: list[Phase] = []
    for part in text.split(","):
        if not re.fullmatch(_PHASE, part):
            raise ModelingError(
                f"--phases is {text!r}, and its part {part!r} isn't LENGTH:STEPS:BATCH or "
                f"LENGTH:STEPS:BATCH:PREDICTIONS with numbers from 1 on, of at most nine digits "
                f"for STEPS and five for the others. An example: "
                f"--phases=128:900000:256,512:100000:256"
            )
        length, steps, batch, *rest = map(int, part.split(":"))
        predictions = rest[0] if rest else math.ceil(MASKED_SHARE * length)
        first_step = phases[-1].last_step if phases else 0
        phases.append(Phase(length, steps, batch, predictions, first_step))
    return phases
