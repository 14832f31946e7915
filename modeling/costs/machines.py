"""Machines that training costs are predicted for: what they reach, and what they cost.

Rates are those reached, not those printed on the box. For the CPU they were fitted to measured
steps on 2026-11-23, by `python -m tests.benchmarks.cost_model --calibrate`. For the A100 they were
fitted to two published figures, BERT-large's pre-training in TensorFlow 2 on one A100 80GB with
16-bit numbers, 485.59 sequences a second of 128 tokens and 96.52 of 512 (NVIDIA,
DeepLearningExamples, TensorFlow2/LanguageModeling/BERT): 49 % of the peak rate, and all of the
memory's bandwidth. For the H100 and the TPU the same two shares of their data sheets' figures are
assumed: nothing was measured there.
"""

import dataclasses

from modeling.costs.peaks import GPU_PEAKS, TPU_PEAKS


@dataclasses.dataclass(frozen=True)
class Price:
    """Dollars for an hour of the whole machine, on demand, with where and when that was found."""

    dollars: float
    source: str


@dataclasses.dataclass(frozen=True)
class Machine:
    """Some equal devices.

    Attributes:
        name: As people call it.
        devices: How many compute a step together, each a part of the batch.
        matmul_rate: Operations a second that the products with weights reach on a device.
        attention_rate: The same of attention's many small products.
        bandwidth: Bytes a second between a device and its memory.
        seconds_per_layer: Fixed cost of a layer's operations in a step, however small.
        seconds_per_step: Fixed cost of a step.
        memory: Bytes of a device.
        link_bandwidth: Bytes a second that a device sends to others while it receives as many.
        price: None where it costs nothing.
        storage_bandwidth: Bytes a second at which a checkpoint is written.
        product_rate: Operations a second of one large product of matrices when the other rates
            were measured. A processor shared with others has another speed at another hour; 0
            where that was not measured.
        seconds_per_logit: What a logit over the vocabulary costs beyond the bytes it is counted
            with: a CPU's softmax takes some nanoseconds for each.
        even_batches: Its devices take the same number of rows, as those of a TPU.
        restart_seconds: From a pre-emption to the first step, reading the checkpoint apart: a new
            machine, starting the program, compiling.
    """

    name: str
    devices: int
    matmul_rate: float
    attention_rate: float
    bandwidth: float
    seconds_per_layer: float
    seconds_per_step: float
    memory: float
    link_bandwidth: float = 0.0
    price: Price | None = None
    storage_bandwidth: float = 250e6
    restart_seconds: float = 300.0
    product_rate: float = 0.0
    seconds_per_logit: float = 0.0
    even_batches: bool = False

    def dollars(self, hours: float) -> float:
        """What so many hours cost."""
        return hours * self.price.dollars if self.price else 0.0


def _accelerator(name: str, devices: int, peak: float, bandwidth: float, memory: float, **rest):
    return Machine(
        name,
        devices,
        matmul_rate=PEAK_SHARE * peak,
        attention_rate=PEAK_SHARE * peak,
        bandwidth=BANDWIDTH_SHARE * bandwidth,
        # Some thirty kernels of 2 µs or so; matters for a few rows per device only. Assumed.
        seconds_per_layer=60e-6,
        seconds_per_step=1e-3,
        memory=memory,
        **rest,
    )


PEAK_SHARE = 0.487
"""Of an accelerator's 16-bit peak rate that matrix products reach; fitted to the A100's figures."""
BANDWIDTH_SHARE = 1.06
"""Of its memory's bandwidth, with bytes as counted here; what XLA fuses is counted as moved."""

A100_HOUR = Price(1.99, "middle of $1.49 to 2.49 at four providers, pricegpu.pages.dev, 2026")
H100_HOUR = Price(3.24, "middle of $2.49 to 3.99 at four providers, pricegpu.pages.dev, 2026")
V5E_HOUR = Price(1.20, "about the list price of us-central1 in 2025, not checked")
CPU_HOUR = Price(0.069, "Dataflow, a vCPU with 3.75 GB, about the list price of 2025, not checked")
"""Of one worker's core, for making data."""


def _times(price: Price, number: int) -> Price:
    return Price(price.dollars * number, price.source)


_A100 = {"peak": GPU_PEAKS["A100"][0], "bandwidth": 2.039e12, "memory": 80e9}
A100 = _accelerator("1 × A100 80GB", 1, **_A100, price=A100_HOUR)
A100_8 = _accelerator(
    # 300 GB/s each way; NCCL's usual three quarters of it.
    "8 × A100 80GB",
    8,
    **_A100,
    link_bandwidth=225e9,
    price=_times(A100_HOUR, 8),
)
H100 = _accelerator("1 × H100 SXM", 1, GPU_PEAKS["H100"][0], 3.35e12, 80e9, price=H100_HOUR)
_V5E = {"peak": TPU_PEAKS["v5e"], "bandwidth": 819e9, "memory": 16e9, "even_batches": True}
# 1,600 Gbit/s of links per chip, of which a sum over all chips uses half at a time. Assumed.
V5E_8 = _accelerator(
    "TPU v5e-8", 8, **_V5E, link_bandwidth=100e9, price=_times(V5E_HOUR, 8), restart_seconds=600.0
)
V5E_256 = _accelerator(
    "TPU v5e-256",
    256,
    **_V5E,
    link_bandwidth=100e9,
    price=_times(V5E_HOUR, 256),
    restart_seconds=600.0,
)
ACCELERATORS = (H100, A100_8, V5E_8, V5E_256)

# Intel's Xeon, model 207, with AVX-512, its AMX hidden by the virtual machine: bfloat16 is the
# slower format there. Of attention's time most is in the bytes of its scores.
CPU = {
    "float32": Machine(
        "2 vCPUs, float32",
        1,
        product_rate=268e9,
        matmul_rate=262e9,
        attention_rate=539e9,
        seconds_per_logit=8.55e-9,
        bandwidth=17.2e9,
        seconds_per_layer=6.39e-3,
        seconds_per_step=0.25e-3,
        memory=16e9,
        restart_seconds=30.0,
    ),
    "bfloat16": Machine(
        "2 vCPUs, bfloat16",
        1,
        product_rate=159e9,
        matmul_rate=143e9,
        attention_rate=126e9,
        seconds_per_logit=7.66e-9,
        bandwidth=17.2e9,
        seconds_per_layer=0.0,
        seconds_per_step=23.1e-3,
        memory=16e9,
        restart_seconds=30.0,
    ),
}
"""Of a virtual machine with two cores, by format, see above."""
