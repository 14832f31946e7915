"""Flags of the model, and the page of all flags that --help shows.

They are defined, and shown, without TensorFlow, which takes seconds to import.
"""

import contextlib
import os
import re
import sys
import textwrap

from absl import flags

VECTOR_LAYERS = ("first", "second_to_last", "last", "sum_last4", "concat_last4", "sum_all")
"""The choices of the paper's Table 7."""
# Which flags stand under which title: by the beginning of the module that defines them.
_GROUPS = {
    "data": "Data",
    "modeling.flags": "Model",
    "modeling.training.flags": "Training",
    "modeling.training.engine": "Hardware",
    "modeling.serving": "Export",
}
_LIBRARIES = ("absl", "tensorflow", "keras")


def define_model_flags() -> None:
    """What every script has."""
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "bert_config.json, or another library's, of the model; or a size by name, such as tiny or "
        "L-4_H-256. Default: beside --init_checkpoint.",
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Weights to start from: a checkpoint of any format that is read, or the folder that holds "
        "it, such as an earlier --output_dir.",
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "The vocabulary that the model was pre-trained with. Default: beside --init_checkpoint.",
    )


def define_classifier_model_flags() -> None:
    """What may stand between encoder and classes."""
    flags.DEFINE_bool(
        "bilstm", False, "Classify by a new BiLSTM over the encoder's outputs (paper, section 5.1)."
    )
    flags.DEFINE_string(
        "second_bert_config_file",
        None,
        "A second encoder's sizes, as --bert_config_file: classify both encoders' vectors side by "
        "side (paper, 5.1).",
    )
    flags.DEFINE_string("second_init_checkpoint", None, "Weights that the second one starts from.")
    flags.DEFINE_enum("window_pooling", "mean", ["mean", "max"], "Of the windows' logits.")


def define_tagger_model_flags() -> None:
    """Whether the encoder is trained too."""
    flags.DEFINE_bool(
        "feature_based",
        False,
        "Train two layers of LSTM on the vectors of the frozen model (paper, section 5.3).",
    )
    flags.DEFINE_enum(
        "feature_layers", "concat_last4", VECTOR_LAYERS, "Which layers' vectors that is."
    )


def define_student_flags() -> None:
    """A smaller model cut out of the checkpoint that is read, see `checkpoints.students`."""
    flags.DEFINE_list(
        "student_layers",
        [],
        "Cut a student out of the checkpoint, whose layers begin as these of it, counted from 0: "
        "0,2,4.",
    )
    flags.DEFINE_integer(
        "student_num_layers",
        0,
        "In place of --student_layers: so many, evenly spaced from the first to the last; 0: all.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "student_hidden_size",
        None,
        "Make the student this wide, with fewer heads of the same size. Default: as its teacher.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "student_projection",
        "best",
        ["best", "random"],
        "A narrower student begins with parts of its teacher's weights, or with random ones.",
    )


def answer_help(flag_values: flags.FlagValues, documentation: str) -> None:
    """Shows what a script is for and all of its flags, and ends it, if --help is asked for."""
    if {"--help", "-help", "-h", "--helpfull", "-?", "--helpshort"} & set(sys.argv[1:]):
        with contextlib.suppress(BrokenPipeError):
            print(_help_page(flag_values, documentation), flush=True)
        # What is left in the buffer of a pipe that was closed would be complained of at the end.
        os._exit(0)


def _help_page(flag_values: flags.FlagValues, documentation: str) -> str:
    """The text of --help: documentation, then the flags with their defaults, by subject."""
    titles: dict[str, list[flags.Flag]] = {title: [] for title in _GROUPS.values()}
    for module, of_module in flag_values.flags_by_module_dict().items():
        if module.partition(".")[0] not in _LIBRARIES:
            titles.setdefault(_title(module), []).extend(of_module)
    parts = [documentation.strip()]
    for title, of_title in titles.items():
        if of_title:
            lines = [_described(flag) for flag in sorted(of_title, key=lambda flag: flag.name)]
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)


def _title(module: str) -> str:
    return next((title for start, title in _GROUPS.items() if module.startswith(start)), "Script")


def _described(flag: flags.Flag) -> str:
    # absl puts the values of an enumeration before its help.
    description = re.sub(r"^<[^>]*>: ", "", flag.help)
    forms = {"bool": "true|false", "int": "N", "float": "X", "string": "TEXT"}
    form = forms.get(flag.flag_type(), "TEXT,TEXT,…")
    form = "|".join(getattr(flag.parser, "enum_values", None) or [form])
    default = (flag.default_as_str or "").strip("'") or "none"
    text = f"{description} (default: {default})"
    wrapped = textwrap.fill(text, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return f"  --{flag.name}={form}\n{wrapped}"
