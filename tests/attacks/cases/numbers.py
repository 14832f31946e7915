"""Values of flags that can't be meant: not a number, infinite, negative, or beyond all memory."""

from tests.attacks.suite import Case

TUNING = ("classifier", "tagger", "answerer")
TRAINING = (*TUNING, "pretraining")


def refused(job: str, kind: str, *flags: str, says: str = "") -> Case:
    """The first flag that is given has to be named, or its value where that is a name."""
    name, _, value = flags[0].lstrip("-").partition("=")
    return Case(job, kind, flags, says=(says or (f"{name}|{value}" if len(value) > 3 else name),))


CASES = [
    *(
        refused(job, "rates", f"--{flag}={value}")
        for job in TRAINING
        for flag in ("learning_rate", "weight_decay_rate", "save_checkpoints_minutes")
        for value in ("nan", "inf", "-1", "x")
    ),
    *(
        refused(job, "rates", f"--{flag}={value}")
        for job in TUNING
        for flag in ("warmup_proportion", "num_train_epochs")
        for value in ("nan", "inf", "-1", "x")
    ),
    *(
        refused(job, "rates", f"--{flag}={value}")
        for job in TRAINING
        for flag in ("layerwise_lr_decay", "lr_decay_power")
        for value in ("nan", "-0.5", "inf")
    ),
    *(
        refused(job, "counts", f"--{flag}={value}")
        for job in TRAINING
        for flag, values in (
            ("train_batch_size", ("0", "-1", "1.5", "1000000000", "99999999999999999999")),
            ("max_seq_length", ("0", "-1", "1000000000")),
            ("num_train_steps", ("-1", "x")),
            ("save_checkpoints_steps", ("0", "-1")),
            ("keep_checkpoint_max", ("-1",)),
            ("gradient_accumulation_steps", ("0", "3", "1000000000")),
            ("random_seed", ("-1", "4294967296")),
            ("freeze_layers", ("-1", "99")),
        )
        for value in values
    ),
    *(
        refused(job, "searches", f"--{flag}={value}")
        for job in TUNING
        for flag in ("learning_rates", "batch_sizes", "epochs")
        for value in ("nan", "inf", "0", "-1", "a,b")
    ),
    *(refused(job, "searches", "--num_runs=1000000000") for job in TUNING),
    *(
        refused(job, "choices", flag)
        for job in TRAINING
        for flag in (
            "--optimizer=sgd",
            "--lr_schedule=cosine",
            "--dtype=int4",
            "--distribution_strategy=central",
            "--no_such_flag=1",
            "--do_train=perhaps",
        )
    ),
    *(
        refused(job, "best metric", "--best_metric=eval_nothing", "--eval_steps=1")
        for job in TRAINING
    ),
    *(
        refused("classifier", "class weights", f"--class_weights={value}")
        for value in ("-1,1", "nan,1", "inf,1", "0,0", "1", "1,2,3", "balance")
    ),
    *(
        refused("classifier", "labels", *flags)
        for flags in (
            ("--labels=good,bad,good",),
            ("--labels=good",),
            ("--labels=one,two",),
            ("--label_kind=regression",),
            ("--label_column=absent",),
            ("--text_columns=absent",),
            ("--text_columns=text,text",),
            ("--text_columns=text,verdict,label",),
            ("--id_column=absent",),
            ("--id_column=verdict",),
            ("--label_separator=", "--label_kind=multi_label"),
        )
    ),
    *(
        refused("classifier of one file", "sentences", f"--dev_fraction={value}")
        for value in ("nan", "inf", "1", "1.5", "-0.1")
    ),
    *(
        refused("classifier", "sentences", *flags)
        for flags in (
            ("--dev_fraction=0.5",),
            ("--max_windows=0",),
            ("--window_stride=-1",),
            ("--window_stride=99", "--long_text=windows"),
            ("--train_batch_tokens=-1",),
            ("--train_batch_tokens=1000000000000",),
            ("--task_name=guess",),
            ("--file_format=xlsx",),
        )
    ),
    *(
        refused("answerer", "questions", flag)
        for flag in (
            "--doc_stride=0",
            "--max_query_length=0",
            "--max_query_length=32",
            "--n_best_size=0",
            "--n_best_size=1000000000",
            "--max_answer_length=0",
            "--max_answer_length=1000000000",
            "--null_score_diff_threshold=nan",
            "--null_score_diff_threshold=inf",
            "--null_score_diff_threshold=x",
            "--epochs_per_file=nan",
            "--epochs_per_file=1,2",
            "--epochs_per_file=0",
            "--max_contexts=-1",
            "--ensemble=nowhere",
        )
    ),
    *(
        refused("tagger", "tags", flag, says="column")
        for flag in ("--token_column=9", "--tag_column=-9", "--token_column=word", "--tag_column=0")
    ),
    *(
        refused("tagger", "tags", *flags)
        for flags in (
            ("--window_stride=-1",),
            ("--window_stride=99",),
            ("--scheme=iobx",),
            ("--feature_layers=all",),
        )
    ),
    *(
        refused("pretraining", "pre-training", *flags)
        for flags in (
            ("--max_predictions_per_seq=0",),
            ("--max_predictions_per_seq=-1",),
            ("--max_predictions_per_seq=1000000000",),
            ("--phases=16",),
            ("--phases=16:x:4",),
            ("--phases=16:10:0",),
            ("--phases=1000000000:10:4",),
            ("--phases=16:10:1000000000",),
            ("--num_warmup_steps=-1",),
            ("--max_eval_steps=-1",),
            ("--eval_batch_size=1000000000",),
            ("--objective=mlm_sop",),
            ("--pack_sequences",),
            ("--eval_file=absent",),
            ("--corpus_file=corpus.txt",),
            ("--dupe_factor=3",),
        )
    ),
    *(
        refused(job, "making records", f"--{flag}={value}")
        for job in ("records", "pretraining from text")
        for flag, values in (
            ("dupe_factor", ("0", "-1", "1000000000")),
            ("masked_lm_prob", ("nan", "-0.1", "1.5", "inf")),
            ("short_seq_prob", ("nan", "-0.1", "1.5")),
            ("mask_share", ("nan", "-0.1", "1.5")),
            ("random_share", ("nan", "-0.1", "0.9")),
            ("max_ngram", ("0", "1000000000")),
            ("max_seq_length", ("0", "2", "-1", "1000000000")),
            ("max_predictions_per_seq", ("0", "-1", "1000000000")),
            ("num_workers", ("-1", "1000000")),
            ("word_boundaries", ("letters",)),
        )
        for value in values
    ),
    *(
        refused("records", "making records", *flags)
        for flags in (
            ("--num_shards=-1",),
            ("--num_shards=100000000",),
            ("--num_shards=3", "--output_file=a,b"),
            ("--output_file=made/a,made/a", "--num_shards=0"),
            ("--output_file=", "--num_shards=0"),
            ("--compression=rar",),
            ("--objective=ltr",),
            ("--runner=NoRunner",),
            ("--random_seed=x",),
        )
    ),
    *(
        refused("vocabulary", "learning a vocabulary", *flags)
        for flags in (
            ("--vocab_size=0",),
            ("--vocab_size=-1",),
            ("--vocab_size=3",),
            ("--vocab_size=1000000000",),
            ("--min_frequency=0",),
            ("--min_frequency=-1",),
            ("--character_coverage=nan",),
            ("--character_coverage=1.5",),
            ("--character_coverage=-1",),
            ("--character_coverage=inf",),
            ("--heldout_share=nan",),
            ("--heldout_share=1",),
            ("--heldout_share=-0.5",),
            ("--num_unused=-1",),
            (f"--reserved_tokens={'x' * 100_000}",),
            ("--reserved_tokens=two words",),
            ("--extend=absent.txt",),
        )
    ),
    refused("vocabulary", "learning a vocabulary", "--num_unused=1000000000", says="unused"),
    *(
        refused("extended vocabulary", "learning a vocabulary", *flags)
        for flags in (
            ("--vocab_size=1000000000",),
            ("--num_unused=-1",),
            ("--num_unused=1000",),
            ("--min_frequency=-1",),
            ("--heldout_share=nan",),
            (f"--reserved_tokens={','.join(f'w{n}' for n in range(50))}",),
        )
    ),
    *(
        refused("inspection", "looking at records", *flags)
        for flags in (
            ("--num_records=-1",),
            ("--max_records=-1",),
            ("--record=99999",),
            ("--record=x",),
            ("--record=absent.tfrecord:0",),
            ("--record=-1",),
            ("--num_records=x",),
        )
    ),
    *(
        refused("vectors", "vectors", *flags)
        for flags in (
            ("--layers=5",),
            ("--layers=-9",),
            ("--layers=x",),
            ("--layers=",),
            ("--max_seq_length=2",),
            ("--max_seq_length=1000000000",),
            ("--batch_size=0",),
            ("--batch_size=-1",),
            ("--pooling=sum",),
            ("--pooling=mean", "--word_pooling=mean"),
            ("--output_format=csv",),
            ("--export_dtype=int3",),
            ("--export_dtype=int8",),
        )
    ),
    refused("vectors", "vectors", "--output_format=numpy", says="output_file"),
    *(
        refused("to huggingface", "conversion", flag)
        for flag in (
            "--format=onnx",
            "--input=absent",
            "--bert_config_file=absent",
            "--vocab_file=absent",
            "--input=",
        )
    ),
    *(
        refused("prediction", "asking", flag)
        for flag in (
            "--batch_size=0",
            "--batch_size=-1",
            "--batch_size=x",
            "--signature=absent",
            "--signature=tokenized",
            "--input_format=xml",
            "--output_format=xml",
            "--input_file=absent.txt",
            "--saved_model=absent",
            "--saved_model=texts.txt",
            "--saved_model=.",
        )
    ),
    *(
        refused(job, "hardware", "--use_tpu", "--tpu_name=no-such-tpu.invalid", says="tpu_name")
        for job in (*TRAINING, "vectors")
    ),
    *(
        refused(job, "missing flags", flag)
        for job, flags in {
            "classifier": ("vocab_file", "bert_config_file", "task_name", "output_dir"),
            "tagger": ("vocab_file", "bert_config_file", "output_dir", "train_file", "dev_file"),
            "answerer": (
                "vocab_file",
                "bert_config_file",
                "output_dir",
                "train_file",
                "predict_file",
            ),
            "pretraining": ("bert_config_file", "output_dir", "input_file"),
            "records": ("vocab_file", "input_file", "output_file"),
            "vocabulary": ("input_file", "output_file"),
            "vectors": ("vocab_file", "bert_config_file", "init_checkpoint", "input_file"),
            "prediction": ("saved_model", "input_file"),
        }.items()
        for flag in (f"--{name}=" for name in flags)
    ),
    *(
        Case(job, "nothing to do", flags)
        for job, flags in (
            ("classifier", ("--nodo_train", "--nodo_eval")),
            ("tagger", ("--nodo_train", "--nodo_eval")),
            ("answerer", ("--nodo_train", "--nodo_predict")),
            ("pretraining", ("--nodo_train", "--nodo_eval")),
        )
    ),
]
