"""Runs the blocks of a document in a folder of their own, as somebody would who types them."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

from tests.readme.markdown import Block
from tests.scripts import ROOT, Script

# What "python" is for the blocks: it asks the test to run the command in a fork of a process that
# has TensorFlow already, see `tests.scripts`, and repeats what the command says.
_PYTHON = """#!{python} -SE
import json, os, socket, sys
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "stdin": sys.stdin.read()}}
with socket.create_connection(("127.0.0.1", {port})) as connection:
    with connection.makefile("rw") as file:
        file.write(json.dumps(request) + "\\n")
        file.flush()
        answer = json.loads(file.readline())
sys.stdout.write(answer["stdout"])
sys.stderr.write(answer["stderr"])
sys.exit(answer["status"])
"""


def run(blocks: list[Block], folder: pathlib.Path, variables: dict[str, str]) -> None:
    """Runs blocks of bash and Python one after the other; the first that fails is an error.

    Args:
        blocks: Of one document.
        folder: Where they run; what they write is there.
        variables: Of the environment, such as BERT_BASE_DIR.
    """
    tools = folder / ".tools"
    tools.mkdir()
    python = tools / "python"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        python.write_text(_PYTHON.format(python=sys.executable, port=listener.getsockname()[1]))
        python.chmod(0o755)
        threading.Thread(target=_answer, args=(listener, variables), daemon=True).start()
        try:
            for block in blocks:
                _run(block, folder, os.environ | variables | {"PATH": path})
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # closing alone wouldn't end the thread's waiting


def _run(block: Block, folder: pathlib.Path, variables: dict[str, str]) -> None:
    if block.language == "python":
        (folder / ".tools/block.py").write_text(block.text)
        command = ["python", ".tools/block.py"]
    else:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    result = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = f"line {block.line}:\n{block.text}\n{result.stdout[-3000:]}{result.stderr[-5000:]}"
    assert result.returncode == 0, said


def _answer(listener: socket.socket, variables: dict[str, str]) -> None:
    """Runs what it is asked to, until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as file:
                request = json.loads(file.readline())
                first, *rest = request["arguments"]
                if first.endswith(".py") and not pathlib.Path(request["folder"], first).exists():
                    first = str(ROOT / first)
                script = Script(
                    *(first, *rest),
                    stdin=request["stdin"],
                    environment=variables,
                    folder=request["folder"],
                )
                result = script.wait()
                answer = {"status": result.returncode, "stdout": result.stdout}
                file.write(json.dumps(answer | {"stderr": result.stderr}) + "\n")
