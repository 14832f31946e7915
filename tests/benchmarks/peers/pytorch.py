"""PyTorch on CPU, eager, as a process that `tests.benchmarks.serving_speed` starts.

Hugging Face's BertForSequenceClassification with PyTorch's fused attention, in float32 and with
weights and activations in bfloat16.
"""

import numpy as np
import torch
import transformers

from tests.benchmarks.peers.worker import arguments, serve

transformers.utils.logging.disable_progress_bar()

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class PyTorch:
    """A model in one dtype."""

    def __init__(self, folder: str, dtype: torch.dtype):
        config = transformers.AutoConfig.from_pretrained(folder)
        if config.hidden_act == "gelu_new":
            # The same function; this one is a single operator of PyTorch.
            config.hidden_act = "gelu_pytorch_tanh"
        self.model = transformers.BertForSequenceClassification.from_pretrained(
            folder, config=config, dtype=dtype, attn_implementation="sdpa"
        ).eval()

    def prepare(self, case: str, batches):
        del case
        return [{name: torch.from_numpy(ids) for name, ids in batch.items()} for batch in batches]

    def call(self, prepared) -> np.ndarray:
        with torch.inference_mode():
            logits = self.model(
                input_ids=prepared["input_ids"],
                attention_mask=prepared["input_mask"],
                token_type_ids=prepared["segment_ids"],
            ).logits
            return torch.softmax(logits.float(), -1).numpy()


def main() -> None:
    given = arguments("A Hugging Face folder.")

    def start():
        torch.set_num_threads(given.threads)
        torch.set_num_interop_threads(given.threads)
        about = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
        return about, {name: PyTorch(given.model, dtype) for name, dtype in DTYPES.items()}

    serve(start, given.cases)


if __name__ == "__main__":
    main()
