"""SavedModels in TensorFlow's C++ loader, the one of TF Serving: what loads there is servable.

    load = CppLoader(compiled(folder / "loader"), folder)
    answers = load(export, "serving_default", text_a=np.array([b"a", b"b"]))

Python's loader is more forgiving: it also restores models whose variables hang on Keras objects.
"""

import pathlib
import shutil
import subprocess

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.framework.tensor_pb2 import TensorProto

COMPILER = "g++"
OPS = pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops"
# Of TF Text's ops, which TF Serving has built in.
LIBRARIES = ("_fast_bert_normalizer", "_fast_wordpiece_tokenizer")


def why_not() -> str:
    """Why `loader.cc` can't be compiled here; empty if it can."""
    return "" if shutil.which(COMPILER) else f"there is no {COMPILER} to compile loader.cc"


def compiled(program: pathlib.Path) -> pathlib.Path:
    """The program of `loader.cc`, which is made, in some 25 seconds, unless it is there."""
    if not program.exists():
        package = pathlib.Path(tf.__file__).parent
        source = pathlib.Path(__file__).with_name("loader.cc")
        made = program.with_suffix(".made")
        command = [COMPILER, "-std=c++17", "-w", "-O1", *tf.sysconfig.get_compile_flags()]
        command += [source, "-o", made, f"-L{package}", "-Wl,--no-as-needed"]
        command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
        command += [f"-Wl,-rpath,{package}"]
        subprocess.run(command, check=True, timeout=600)
        made.rename(program)
    return program


class CppLoader:
    """Loads exports and asks them.

    Args:
        program: What `compiled` gives.
        folder: For what is asked and answered.

    Attributes:
        costs: Of the last call, by name: see `loader.cc`.
    """

    def __init__(self, program: pathlib.Path, folder: pathlib.Path):
        self.program = program
        self.folder = folder
        self.costs: dict[str, float] = {}

    def __call__(self, export, signature: str, **inputs) -> dict[str, np.ndarray]:
        """Outputs of a signature by name.

        Raises:
            RuntimeError: With what the loader said.
        """
        asked, answered = self.folder / "request", self.folder / "response"
        with open(asked, "wb") as file:
            for name, value in inputs.items():
                content = tf.make_tensor_proto(value).SerializeToString()
                file.write(f"{name} {len(content)}\n".encode() + content)
        libraries = [OPS / f"{name}.so" for name in LIBRARIES]
        done = subprocess.run(
            [self.program, export, signature, asked, answered, *libraries],
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        lines = (line.split() for line in done.stdout.splitlines())
        self.costs = {name: float(value) for name, value in lines}
        outputs = {}
        with open(answered, "rb") as file:
            while head := file.readline():
                name, size = head.split()
                content = file.read(int(size))
                kind = TensorProto.FromString(content).dtype
                outputs[name.decode()] = tf.io.parse_tensor(content, kind).numpy()
        return outputs
