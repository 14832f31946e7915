"""What pre-training BERT as in the paper costs, and with a hundred times the text. Nothing is run.

    python -m tests.paper.pretraining_costs

A million steps of 256 sequences, nine tenths of them of 128 tokens (appendix A.2), on the 3.3
billion words of Wikipedia and BooksCorpus; then with a hundred times the words and the steps, so
that each is seen as often. By the cost model; see modeling/costs/cost_model.py.
"""

from modeling import quiet  # noqa: F401  isort: skip

from modeling.config import BertConfig
from modeling.costs.estimate import TEXT_BYTES_PER_TOKEN, estimate
from modeling.training.phases import parse_phases

WORDS = 3.3e9
# English Wikipedia, words between blanks, under the released uncased vocabulary.
TOKENS_PER_WORD = 1.3
DUPE_FACTOR = 10


def main() -> None:
    for size in ("base", "large"):
        for times in (1, 100):
            steps = (900_000 * times, 100_000 * times)
            phases = parse_phases(f"128:{steps[0]}:256:20,512:{steps[1]}:256:77")
            print(f"==== BERT-{size}, {times} × the paper's text\n")
            print(
                estimate(
                    BertConfig.named(size, 30522),
                    phases,
                    dtype="bfloat16",
                    corpus_bytes=times * WORDS * TOKENS_PER_WORD * TEXT_BYTES_PER_TOKEN,
                    dupe_factor=DUPE_FACTOR,
                )
            )
            print()


if __name__ == "__main__":
    main()
