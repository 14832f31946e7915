"""Imports TensorFlow without the lines that its C++ side prints before logging can be set.

Scripts and commands import this first. They compute with TensorFlow, so Keras does too, whatever
KERAS_BACKEND or ~/.keras/keras.json names for other projects. What goes wrong while importing still
raises as always; only where the process itself dies, `python -c "import tensorflow"` has to be
asked for its last words. Later messages from C++ are shown from errors upwards where there is a
GPU, else none: on a CPU the errors are of the kind that no GPU was found. TF_CPP_MIN_LOG_LEVEL
changes that.
"""

import gc
import glob
import os
import sys

# TensorFlow and Keras import them where they are installed, for converters, wrappers and pictures
# that nothing here uses. That takes a quarter of the time; what needs them imports them itself.
_UNUSED = ("jax", "sklearn", "matplotlib", "matplotlib.pyplot")

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia*") else "3")


def _import_tensorflow() -> None:
    # The lines come from C++, so Python's sys.stderr is the wrong place to catch them.
    sys.stderr.flush()
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    absent = [name for name in _UNUSED if name not in sys.modules]
    # Half a million objects come to stay: the collector needn't look at them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        os.dup2(nowhere, 2)
        sys.modules.update(dict.fromkeys(absent))
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.config.list_physical_devices()  # where there is no GPU, this complains of it
        # With several workers it tells of every all-reduce, on two loggers.
        tf.get_logger().setLevel("WARNING")
        gc.freeze()
    finally:
        if collecting:
            gc.enable()
        for name in absent:
            sys.modules.pop(name)
        os.dup2(terminal, 2)
        os.close(nowhere)
        os.close(terminal)


if "tensorflow" not in sys.modules:
    _import_tensorflow()
