"""Peak arithmetic of GPUs and TPUs by name, from the makers' data sheets."""

import re

# Operations a second of one device with 16-bit numbers, dense, by the makers' data sheets; the
# second number is for float32 (on NVIDIA GPUs without TF32, which TensorFlow uses by default
# from Ampere on, so there it is TF32's). TPUs multiply in bfloat16 by default.
GPU_PEAKS = {
    "H200": (989e12, 495e12),
    "H100 PCIe": (756e12, 378e12),
    "H100": (989e12, 495e12),
    "A100": (312e12, 156e12),
    "A10G": (70e12, 35e12),
    "A10": (125e12, 62.5e12),
    "L40S": (362e12, 183e12),
    "L4": (121e12, 60e12),
    "RTX 4090": (165e12, 82.6e12),
    "RTX 3090": (71e12, 35.6e12),
    "V100": (125e12, 15.7e12),
    "T4": (65e12, 8.1e12),
}
TPU_PEAKS = {"v2": 45e12, "v3": 123e12, "v4": 275e12, "v5litepod": 197e12, "v5e": 197e12}
TPU_PEAKS |= {"v5p": 459e12, "v6e": 918e12}
# Cores of a chip that TensorFlow counts as replicas of their own.
_TWO_CORES = ("v2", "v3")


def gpu_peak(name: str, half: bool) -> float | None:
    """Of the GPU that TensorFlow calls so, e.g. "NVIDIA A100-SXM4-80GB"."""
    words = f" {re.sub('[^A-Za-z0-9]+', ' ', name)} "
    for known, (short, full) in GPU_PEAKS.items():
        if f" {known} " in words:
            return short if half else full
    return None


def tpu_peak(accelerator_type: str) -> float | None:
    """Of one replica of a TPU by its type, e.g. "v4-8" or "v5litepod-16"."""
    version = accelerator_type.split("-")[0]
    peak = TPU_PEAKS.get(version)
    return peak / 2 if peak and version in _TWO_CORES else peak
