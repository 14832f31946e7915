"""Flags of exports, which the scripts and commands that write SavedModels define alike."""

import itertools

from absl import flags

EXPORT_FORMATS = {
    "saved_model": ("float32", "bfloat16", "int8"),
    "tflite": ("float32", "float16", "int8"),
}
"""What is written, and the number formats that each can have."""
BRANCHES = 2
"""Of each layer, see `modeling.serving.graph.encoder`."""


def define_export_flags(*exporting: str) -> None:
    """Whether, where and how; `exporting` are flags besides --do_export that have it done."""
    flags.DEFINE_bool("do_export", False, "Write a SavedModel that takes raw text.")
    flags.DEFINE_string("export_dir", None, "Where to; default: export/ in the output folder.")
    flags.register_multi_flags_validator(
        ["do_export", "export_dir"],
        lambda values: values["do_export"] or not values["export_dir"],
        "--export_dir is where --do_export writes to; without that nothing is.",
    )
    define_export_form("do_export", *exporting)


def define_export_fill_mask_flag() -> None:
    """Of a pre-trained model."""
    top_k = flags.DEFINE_integer(
        "export_top_k", 5, "Words that it gives for a [MASK].", lower_bound=1
    )
    _needs(top_k, ("do_export",))


def define_export_form(*exporting: str) -> None:
    """In which form weights and layers are kept; refused where none of `exporting` is given."""
    form = flags.DEFINE_enum(
        "export_format",
        "saved_model",
        list(EXPORT_FORMATS),
        "saved_model: for TensorFlow and TF Serving; tflite: for LiteRT on a device, from ids.",
    )
    dtype = flags.DEFINE_enum(
        "export_dtype",
        "float32",
        list(dict.fromkeys(itertools.chain(*EXPORT_FORMATS.values()))),
        "bfloat16, of a saved_model: matrices and products in it; float16, of tflite: matrices in "
        "it; int8: matrices in it, multiplied in whole numbers.",
    )
    flags.register_multi_flags_validator(
        ["export_format", "export_dtype"],
        lambda values: values["export_dtype"] in EXPORT_FORMATS[values["export_format"]],
        "tflite takes float32, float16 and int8 as --export_dtype, a saved_model float32, bfloat16 "
        "and int8.",
    )
    branches = flags.DEFINE_integer(
        "export_branches",
        BRANCHES,
        "Parts of each layer that a server's threads compute side by side, of a saved_model.",
        lower_bound=1,
    )
    xla = flags.DEFINE_bool(
        "export_xla",
        False,
        "Single texts are computed by programs of XLA, a program for each of a few lengths: for "
        "TF Serving on CPUs, started with --xla_cpu_compilation_enabled.",
    )
    flags.register_multi_flags_validator(
        ["export_xla", "export_format", "export_dtype"],
        lambda values: (
            not values["export_xla"]
            or (values["export_format"] == "saved_model" and values["export_dtype"] != "int8")
        ),
        "--export_xla is for a saved_model in float32 or bfloat16: LiteRT has no XLA, and XLA no "
        "products of whole numbers.",
    )
    for flag in (form, dtype, branches, xla):
        _needs(flag, exporting)


def _needs(flag: flags.FlagHolder, exporting: tuple[str, ...]) -> None:
    """Refuses a flag that says how a model is exported, where none is."""
    flags.register_multi_flags_validator(
        [flag.name, *exporting],
        lambda values: values[flag.name] == flag.default or any(values[n] for n in exporting),
        f"--{flag.name} says how a model is exported, and none is without "
        f"{' or '.join(f'--{name}' for name in exporting)}.",
    )
