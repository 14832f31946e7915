"""Vocabularies and configurations that can't be meant."""

from tests.attacks import damages as d
from tests.attacks.suite import Case

TRAINED = ("classifier", "tagger", "answerer", "pretraining", "vectors")
VOCABULARY = "model/vocab.txt"
CONFIG = "model/bert_config.json"
SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
# More than the model has rows.
LONG_VOCABULARY = SPECIAL + "".join(f"w{number}\n" for number in range(90))

UNREADABLE = (d.missing, d.empty, d.folder, d.binary, d.dangling_link, d.circular_link)
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
SIZES += ("intermediate_size", "max_position_embeddings", "type_vocab_size")
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
NAN, INFINITY = float("nan"), float("inf")

CASES = [
    *(
        Case(job, "vocabulary", spoil={VOCABULARY: how}, says=("vocab.txt",))
        for job in (*TRAINED, "inspection", "records")
        for how in (*UNREADABLE, d.utf16, d.holding("a\nb\n"))
    ),
    *(
        Case(job, "vocabulary", spoil={VOCABULARY: d.holding(LONG_VOCABULARY)}, says=("vocab.txt",))
        for job in TRAINED
    ),
    # Of equal size, but not the one that the weights were trained with.
    *(
        Case(
            job,
            "another vocabulary",
            spoil={VOCABULARY: d.replaced("good\nbad\n", "bad\ngood\n")},
            says=("vocab.txt",),
        )
        for job in (
            "classifier predicts",
            "tagger predicts",
            "answerer predicts",
            "classifier again",
            "classifier exports",
            "pretraining again",
            "pretraining",
        )
    ),
    *(
        Case(
            job,
            "vocabulary, smaller than the model's",
            spoil={VOCABULARY: d.replaced("\nit\n", "\n")},
            says=("vocab.txt", "vocab_size"),
            code=0,
        )
        for job in ("vectors",)
    ),
    # A token that no memory should be spent on.
    *(
        Case(job, "vocabulary", spoil={VOCABULARY: d.with_more("x" * 10**7)}, says=("vocab.txt",))
        for job in ("classifier", "vectors", "records")
    ),
    *(
        Case(job, "configuration", spoil={CONFIG: how}, says=("bert_config.json",))
        for job in TRAINED
        for how in (*UNREADABLE, d.cut, d.holding("[]"), d.holding("3"), d.holding("[" * 10**5))
    ),
    *(
        Case(job, "configuration: sizes", spoil={CONFIG: d.fields(**{name: 10**9})}, says=(name,))
        for job in TRAINED
        for name in SIZES
    ),
    *(
        Case("to huggingface", "configuration: sizes", spoil={CONFIG: d.fields(**{name: 10**9})})
        for name in SIZES
    ),
    *(
        Case("vectors", "configuration", spoil={CONFIG: d.fields(**{name: value})}, says=(name,))
        for name in SIZES
        for value in (0, -1, "x", None, True, 1.5, NAN, 10**30, [2])
    ),
    *(
        Case("vectors", "configuration", spoil={CONFIG: d.fields(**{name: value})}, says=(name,))
        for name in RATES
        for value in (-0.1, "x", None, NAN, INFINITY, [0.1])
    ),
    *(
        Case("vectors", "configuration", spoil={CONFIG: d.fields(**{name: value})}, says=(name,))
        for name, value in (
            ("layer_norm_eps", INFINITY),
            ("layer_norm_eps", NAN),
            ("layer_norm_eps", -1e-12),
            ("layer_norm_eps", 0),
            ("layer_norm_eps", 1e9),
            ("hidden_dropout_prob", 1),
            ("initializer_range", 1e30),
            ("hidden_act", "gellu"),
            ("hidden_act", 3),
            ("attention_direction", "up"),
            ("vocab_size", ...),
            ("hidden_size", 15),
            ("num_hidden_layers", 10**6),
            ("num_attention_heads", 3),
        )
    ),
    *(
        Case(job, "configuration: layers", spoil={CONFIG: d.fields(num_hidden_layers=10**6)})
        for job in ("classifier", "tagger", "answerer", "pretraining", "to huggingface")
    ),
    *(
        Case(
            "vectors of safetensors",
            "configuration of Hugging Face's",
            spoil={"hf/config.json": d.fields(**{name: value})},
            says=(name, "config.json"),
        )
        for name, value in (
            ("model_type", "roberta"),
            ("model_type", 5),
            ("position_embedding_type", "relative_key"),
            ("is_decoder", True),
            ("hidden_act", "leaky_relu"),
            ("layer_norm_eps", "small"),
        )
    ),
    *(
        Case(job, "configuration of another model", spoil={CONFIG: d.fields(**fields)}, says=says)
        for job in ("classifier", "vectors", "pretraining")
        for fields, says in (
            ({"hidden_size": 32}, ("bert_model.ckpt",)),
            ({"num_hidden_layers": 2}, ("bert_model.ckpt",)),
            ({"vocab_size": 40}, ("bert_model.ckpt",)),
            ({"max_position_embeddings": 8}, ("max_position_embeddings", "bert_config.json")),
        )
    ),
]
