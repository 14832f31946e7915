"""A page on this machine to try exported models on: type a text, see what they make of it.

    python -m modeling.try_it --saved_model=/tmp/export
    python -m modeling.try_it --saved_model=/tmp/small/export,/tmp/large/export --port=0

Takes every export of this project. Nothing leaves the machine: the page is served to it alone,
loads nothing from elsewhere, and no text is kept.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib

from absl import flags

from modeling import errors
from modeling.serving.page.models import load_page_models
from modeling.serving.page.server import PageServer

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "saved_model",
    None,
    "The exported models, a comma list: SavedModels' folders, or such with numbered versions in "
    "them, of which the highest is taken. Those that take the same stand side by side.",
)
flags.DEFINE_integer(
    "port", 8000, "Port of 127.0.0.1 that the page is at; 0 takes a free one.", 0, 65535
)
flags.DEFINE_integer(
    "max_request_bytes", 2**18, "Longest request, texts and their JSON together.", 1, 2**30
)


def main(_: list[str]) -> None:
    with (
        contextlib.suppress(KeyboardInterrupt),
        PageServer(FLAGS.port, FLAGS.max_request_bytes) as server,
    ):
        server.serve(load_page_models(FLAGS.saved_model))


if __name__ == "__main__":
    flags.mark_flags_as_required(["saved_model"])
    errors.run(main, flag_values=FLAGS)
