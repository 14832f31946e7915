"""What a training step costs on a machine: operations, bytes, seconds, memory.

    work = step_work(BertConfig.named("base", 30522), rows=32, seq_length=128, predictions=20)
    work.seconds(machines.A100)

The time of a step is a sum, as if nothing overlapped:

    dense FLOPs / rate  +  attention FLOPs / rate  +  bytes / bandwidth  +  logits × time
    +  layers × fixed time  +  bytes of gradients over the links between devices

with a handful of constants for each machine, see `machines`. Counted are the model's own
operations (`flops`) and the tensors that a step writes and reads. How well that does here is
measured by `python -m tests.benchmarks.cost_model`.
"""

import dataclasses
import math

from modeling.config import BertConfig
from modeling.costs.machines import Machine
from modeling.training.engine.flops import train_step_flops

# Passes over a tensor of hidden size (read or written once each) that a layer makes per token in
# a training step, forward and backward: projections, their biases, transposes, scaling, dropout,
# residuals, layer norms, and the inner layer, which is four times as wide, with its activation.
HIDDEN_PASSES = 100
# The same of the attention scores, of which each token has heads × length.
SCORE_PASSES = 24
# Of the logits over the vocabulary, always float32: product, softmax, loss, and their gradients.
LOGIT_PASSES = 8
# Bytes that an update reads and writes per weight: gradient three times (norm, clipping, update),
# both moments and the weight, in float32.
UPDATE_BYTES = 36
# Weight, gradient and two moments in float32.
STATE_BYTES = 16
# Weight and two moments.
CHECKPOINT_BYTES = 12


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What one device does in a step.

    Attributes:
        dense_flops: Operations of the products with weights.
        attention_flops: Operations of queries with keys and probabilities with values.
        activation_bytes: Written and read by everything between the products.
        weight_bytes: Written and read by the update and by the products with weights.
        logits: Over the vocabulary.
        gradient_bytes: Summed over the devices.
        layers: Of the model and of its micro-batches, each with the fixed cost of its operations.
    """

    dense_flops: float
    attention_flops: float
    activation_bytes: float
    weight_bytes: float
    logits: float
    gradient_bytes: float
    layers: int

    @property
    def flops(self) -> float:
        """All matrix products' operations."""
        return self.dense_flops + self.attention_flops

    @property
    def bytes(self) -> float:
        """All that goes through memory."""
        return self.activation_bytes + self.weight_bytes

    def seconds(self, machine: Machine, speed: float = 1.0) -> float:
        """Predicted time of the step on a device of the machine, all others doing the same.

        Args:
            machine: Where the step is computed.
            speed: Of its arithmetic now, as a multiple of when its rates were measured; that of
                its memory is taken to stay.
        """
        seconds = self.dense_flops / machine.matmul_rate
        seconds += self.attention_flops / machine.attention_rate
        seconds += self.logits * machine.seconds_per_logit
        seconds /= speed
        seconds += self.bytes / machine.bandwidth
        seconds += self.layers * machine.seconds_per_layer + machine.seconds_per_step
        if machine.devices > 1:
            # Every device sends and receives all gradients but its own share, twice.
            moved = 2 * (machine.devices - 1) / machine.devices * self.gradient_bytes
            seconds += moved / machine.link_bandwidth
        return seconds


def parameters(config: BertConfig) -> int:
    """Weights of the encoder with its pooler and of the pre-training heads."""
    hidden, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    embeddings = rows * hidden + 2 * hidden
    layer = 4 * (hidden + 1) * hidden + 2 * hidden * inner + inner + hidden + 4 * hidden
    heads = (hidden + 1) * hidden + 2 * hidden + config.vocab_size + 2 * (hidden + 1)
    return embeddings + config.num_hidden_layers * layer + (hidden + 1) * hidden + heads


def step_work(
    config: BertConfig,
    rows: int,
    seq_length: int,
    predictions: int = 0,
    labels: int = 0,
    *,
    half_precision: bool = True,
    accumulation_steps: int = 1,
    remat: bool = False,
) -> StepWork:
    """The work of one training step.

    Args:
        config: Sizes of the model.
        rows: Sequences that the device computes in the step, all micro-batches together.
        seq_length: Places in each.
        predictions: Masked places in each.
        labels: Classes of a row, next sentence prediction's two as well.
        half_precision: Activations of two bytes, otherwise of four.
        accumulation_steps: Micro-batches; each reads all weights and adds to all gradients.
        remat: The forward pass is computed twice.
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    tokens = rows * seq_length
    attention = 3 * 2 * layers * tokens * 2 * hidden * seq_length
    total = train_step_flops(config, rows, seq_length, predictions, labels)
    passes = HIDDEN_PASSES * hidden + SCORE_PASSES * config.num_attention_heads * seq_length
    activations = layers * tokens * passes * (2 if half_precision else 4)
    again = 4 / 3 if remat else 1
    logits = rows * predictions * config.vocab_size
    weights = parameters(config)
    # Forward and twice backward, each reads the weights and the last writes gradients.
    per_batch = 16 if accumulation_steps == 1 else 24
    return StepWork(
        dense_flops=(total - attention) * again,
        attention_flops=attention * again,
        activation_bytes=activations * again + logits * 4 * LOGIT_PASSES,
        weight_bytes=weights * (UPDATE_BYTES + per_batch * accumulation_steps),
        logits=logits,
        gradient_bytes=4.0 * weights,
        layers=layers * accumulation_steps,
    )


def forward_work(
    config: BertConfig,
    rows: int,
    seq_length: int,
    predictions: int = 0,
    *,
    half_precision: bool = True,
) -> StepWork:
    """The work of a forward pass alone, as a teacher's.

    A third of a training step's operations and of what goes through memory between the products,
    and the weights are read once, in float32.

    Args:
        config, rows, seq_length, predictions, half_precision: As in `step_work`.
    """
    step = step_work(config, rows, seq_length, predictions, half_precision=half_precision)
    return StepWork(
        dense_flops=step.dense_flops / 3,
        attention_flops=step.attention_flops / 3,
        activation_bytes=step.activation_bytes / 3,
        weight_bytes=4.0 * parameters(config),
        logits=step.logits / 3,
        gradient_bytes=0.0,
        layers=math.ceil(step.layers / 3),
    )


def step_memory(
    config: BertConfig,
    rows: int,
    seq_length: int,
    predictions: int = 0,
    *,
    half_precision: bool = True,
    remat: bool = False,
) -> float:
    """Bytes that a device holds at most: weights, gradients, moments, activations of `rows`.

    A layer keeps 34 bytes per token and hidden unit and 5 per score, at two bytes a number
    (Korthikanti et al. 2022, section 4.1); with `remat` its input alone, and one layer in full.
    XLA's own count for a TPU v5e is 0.49 to 0.86 of this (tests/benchmarks/tpu_compilation.py).
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    tokens = rows * seq_length
    width = 1 if half_precision else 2
    layer = tokens * (34 * hidden + 5 * config.num_attention_heads * seq_length) * width
    kept = layers * tokens * hidden * 2 * width + layer if remat else layers * layer
    logits = rows * predictions * config.vocab_size * 4 * 3
    return parameters(config) * STATE_BYTES + kept + logits


def largest_batch(
    config: BertConfig,
    machine: Machine,
    seq_length: int,
    predictions: int = 0,
    *,
    held: float = 0.0,
    **options,
) -> int:
    """Most rows, a power of two, that one device of the machine holds; 0: not even one.

    Args:
        config, seq_length, predictions: As in `step_memory`.
        machine: A tenth of its memory is left to the program itself.
        held: Bytes that are taken besides, as by a teacher.
        options: Of `step_memory`.
    """
    rows = 0
    while (
        step_memory(config, max(1, 2 * rows), seq_length, predictions, **options) + held
        <= 0.9 * machine.memory
    ):
        rows = max(1, 2 * rows)
    return rows


@dataclasses.dataclass(frozen=True)
class InterruptionCost:
    """What pre-emption costs a long run (Young 1974; Daly 2006, first order).

    Attributes:
        save_seconds: That training stands still for a checkpoint.
        restart_seconds: From the pre-emption to the first new step.
        mean_seconds: Between pre-emptions.
    """

    save_seconds: float
    restart_seconds: float
    mean_seconds: float

    @property
    def best_interval(self) -> float:
        """Seconds of training between checkpoints that waste least: √(2 × save × mean)."""
        return math.sqrt(2 * self.save_seconds * self.mean_seconds)

    def overhead(self, interval: float | None = None) -> float:
        """Time lost as a share of the time that trains: saving, and repeating what was lost.

        On average half an interval is lost, and the restart, each time.

        Args:
            interval: Seconds between checkpoints; by default the best.
        """
        interval = interval or self.best_interval
        lost = (interval / 2 + self.restart_seconds) / self.mean_seconds
        return self.save_seconds / interval + lost


def interruption_cost(
    config: BertConfig, machine: Machine, mean_seconds: float
) -> InterruptionCost:
    """Of a run on a machine that is taken away every `mean_seconds`."""
    transfer = parameters(config) * CHECKPOINT_BYTES / machine.storage_bandwidth
    return InterruptionCost(transfer, machine.restart_seconds + transfer, mean_seconds)
