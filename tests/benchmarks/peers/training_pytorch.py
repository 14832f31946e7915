"""Hugging Face's BERT on PyTorch, as a process that `tests.benchmarks.training_speed` starts.

Fused attention and the fused AdamW; bfloat16 is autocast; --compile compiles forward and backward.
Masked words are scored at their places only, which Hugging Face's own model doesn't do.
"""

import itertools
import math
import time

import torch
import transformers

from tests.benchmarks.peers import training_worker
from tests.benchmarks.peers.training_worker import Shape, serve_training

# Steps that each number of threads is tried with; the fastest one counts.
TRIALS = 3


def make_model(shape: Shape) -> torch.nn.Module:
    """A classifier, or a model of masked words."""
    config = transformers.BertConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner_size,
        hidden_act="gelu_pytorch_tanh",
        hidden_dropout_prob=training_worker.DROPOUT,
        attention_probs_dropout_prob=training_worker.DROPOUT,
        max_position_embeddings=shape.positions,
        type_vocab_size=2,
        num_labels=shape.labels or 2,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    kind = (
        transformers.BertForSequenceClassification if shape.labels else transformers.BertForMaskedLM
    )
    return kind(config).train()


def make_optimizer(model: torch.nn.Module) -> torch.optim.AdamW:
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        (free if "LayerNorm" in name or name.endswith("bias") else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": training_worker.DECAY},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=training_worker.LEARNING_RATE,
        betas=training_worker.BETAS,
        eps=training_worker.EPSILON,
        fused=True,
    )


class PyTorch:
    """Model and AdamW."""

    def __init__(self, shape: Shape, dtype: str, threads: int, compiled: bool):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = make_model(shape).to(self.device)
        self.optimizer = make_optimizer(self.model)
        self.dtype = torch.bfloat16 if dtype == "bfloat16" else None
        self.loss = torch.compile(self._loss) if compiled else self._loss
        self.compiled = compiled
        self.threads = threads

    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def prepare(self, batches):
        tensors = [
            {name: torch.from_numpy(x).to(self.device) for name, x in batch.items()}
            for batch in batches
        ]
        # Compiled code is made for a number of threads.
        if self.device == "cpu" and not self.compiled:
            self._choose_threads(tensors[0])
        return itertools.cycle(tensors)

    def _choose_threads(self, batch) -> None:
        """More than there are cores of can be slower."""
        seconds = dict.fromkeys(range(1, self.threads + 1), math.inf)
        for _ in range(TRIALS):
            for threads in seconds:
                torch.set_num_threads(threads)
                begun = time.perf_counter()
                self._step(batch)
                seconds[threads] = min(seconds[threads], time.perf_counter() - begun)
        torch.set_num_threads(min(seconds, key=seconds.get))
        print(f"PyTorch: {torch.get_num_threads()} threads of {seconds}", flush=True)

    def run(self, prepared, steps: int) -> float:
        for _ in range(steps):
            loss = self._step(next(prepared))
        return loss.item()

    def _step(self, batch) -> torch.Tensor:
        enabled = self.dtype is not None
        with torch.autocast(self.device, dtype=self.dtype, enabled=enabled):
            loss = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), training_worker.CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def _loss(self, batch) -> torch.Tensor:
        inputs = {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["input_mask"],
            "token_type_ids": batch["segment_ids"],
        }
        if "label_ids" in batch:
            logits, labels = self.model(**inputs).logits, batch["label_ids"]
        else:
            rows = self.model.bert(**inputs).last_hidden_state
            places = batch["masked_lm_positions"]
            which = torch.arange(places.shape[0])[:, None]
            logits, labels = self.model.cls(rows[which, places]), batch["masked_lm_ids"]
        logits = logits.flatten(0, -2).float()
        return torch.nn.functional.cross_entropy(logits, labels.flatten())


def main() -> None:
    def start(shape, given):
        torch.set_num_threads(given.threads)
        torch.set_num_interop_threads(given.threads)
        torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow does
        about = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
        return about, PyTorch(shape, given.dtype, given.threads, given.compile)

    serve_training(start)


if __name__ == "__main__":
    main()
