"""Flags of question answering: files, windows, answers.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags

from data.flags import define_text_folding_flags
from data.tasks.flags import (
    define_bad_row_flags,
    define_demo_flag,
    define_limit_flags,
    define_transfer_flag,
)


def define_question_flags() -> None:
    """All of them."""
    define_bad_row_flags()
    define_limit_flags()
    define_transfer_flag("SQuAD-format questions")
    define_demo_flag("Learn to answer questions about installed docstrings; see README.")
    flags.DEFINE_list(
        "train_file",
        [],
        "SQuAD-format JSON to train on; several are trained on one after the other.",
    )
    flags.DEFINE_string(
        "predict_file", None, "SQuAD-format JSON to answer, and to evaluate on while training."
    )
    define_text_folding_flags()
    flags.DEFINE_integer("max_seq_length", 384, "Of question and window together.", lower_bound=5)
    flags.DEFINE_integer("doc_stride", 128, "Pieces from window to window.", lower_bound=1)
    flags.DEFINE_integer("max_query_length", 64, "Longer questions are cut.", lower_bound=1)
    flags.DEFINE_integer("n_best_size", 20, "Answers in nbest_predictions.json.", 1, 1000)
    flags.DEFINE_integer("max_answer_length", 30, "Most pieces of an answer.", 1, 1000)
    flags.DEFINE_bool("verbose_logging", False, "Name every answer that is out of place.")
    flags.DEFINE_bool("version_2_with_negative", False, "Some questions have no answer: SQuAD 2.0.")
    flags.DEFINE_string(
        "null_score_diff_threshold",
        "0.0",
        "No answer is given where the empty one's score exceeds the best one's by more. auto: "
        "what gives the best F1 on --predict_file; kept with the model, and used where answers "
        "lack.",
    )
    # Beyond the original's flags.
    flags.DEFINE_list("epochs_per_file", [], "For several --train_file; default: num_train_epochs.")
    flags.DEFINE_integer(
        "max_contexts", 0, "Train on so many contexts of a question; 0: all.", lower_bound=0
    )
    flags.DEFINE_bool("original_step_count", False, "Epochs of questions, not of windows.")
    flags.DEFINE_bool(
        "original_postprocessing", False, "Features and answers exactly as the original makes them."
    )
    flags.DEFINE_list("ensemble", [], "Further output folders or checkpoints; logits are averaged.")
    flags.DEFINE_bool("characters", False, "Score by characters, for Chinese (as CMRC 2018).")
    flags.DEFINE_integer(
        "export_max_windows",
        512,
        "Contexts of more windows are refused by the exported model; 0: none is.",
        lower_bound=0,
    )
