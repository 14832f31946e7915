"""Checkpoints of TensorFlow's Model Garden: python -m …owners.model_garden OUT."""

import os

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import pathlib
import sys

import tensorflow as tf
import tf_keras
from official.legacy.bert import configs
from official.modeling import tf_utils
from official.modeling.hyperparams import params_dict
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.configs import bert, encoders
from official.nlp.modeling import layers, models, networks
from official.nlp.tools import export_tfhub_lib

from tests.modeling.checkpoints.formats.owners import drawing

ACTIVATIONS = {"a": "gelu", "b": "relu", "c": "swish"}
# Name: what the model is, how it is saved, which configuration lies beside.
CASES = {
    "a_release": ("encoder", "write", "bert_config.json"),
    "b_release": ("encoder v2", "write", "params.yaml"),
    "c_trainer": ("encoder", "trainer", "bert_config.json"),
    "a_pretraining": ("pretrainer", "trainer", ""),
    "b_pretraining": ("pretrainer v2", "trainer", "params.yaml"),
    "c_pretraining": ("pretrainer", "items", "params.yaml"),
    "a_first_pretraining": ("first pretrainer", "write", ""),
    "b_masked": ("masked", "items", "params.yaml"),
    "a_classes": ("classifier 4", "write", ""),
    "b_classes": ("classifier 3 own pooler", "trainer", "params.yaml"),
    "c_first_classes": ("classifier 5 first head", "write", "bert_config.json"),
    "a_number": ("classifier 1", "write", ""),
    "a_spans": ("spans v2", "trainer", ""),
    "c_spans": ("spans", "write", "bert_config.json"),
    "a_tags": ("tags 6", "write", ""),
    "b_tags": ("tags 3 v2", "trainer", "params.yaml"),
    "a_hub": ("masked", "hub uncased", ""),
    "b_hub": ("pretrainer", "hub cased", "bert_config.json"),
    "c_hub": ("encoder", "hub uncased", "bert_config.json"),
}
NAMES = {"mlm_logits": "masked_lm_logits", "next_sentence": "next_sentence_logits"}
NAMES |= {"masked_lm": "masked_lm_logits", "classification": "next_sentence_logits"}
NAMES |= {name: name for name in ("sequence_output", "pooled_output", "logits")}


def encoder_config(name: str) -> encoders.BertEncoderConfig:
    """Of its experiments."""
    sizes = drawing.sizes_of(name)
    return encoders.BertEncoderConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        intermediate_size=sizes["intermediate_size"],
        max_position_embeddings=sizes["max_position_embeddings"],
        type_vocab_size=sizes["type_vocab_size"],
        hidden_activation=ACTIVATIONS[name[0]],
    )


def encoder_type(kind: str) -> str:
    return "bert_v2" if "v2" in kind else "bert"


def model_of(name: str, kind: str):
    """The model; `kind` is the first of `CASES`."""
    width = drawing.sizes_of(name)["hidden_size"]
    gelu = tf_utils.get_activation("gelu")
    if kind == "first pretrainer":
        config = encoder_config(name)
        encoder = networks.BertEncoder(
            vocab_size=config.vocab_size,
            hidden_size=width,
            num_layers=config.num_layers,
            num_attention_heads=config.num_attention_heads,
            inner_dim=config.intermediate_size,
            max_sequence_length=config.max_position_embeddings,
            type_vocab_size=config.type_vocab_size,
        )  # whose outputs are a list
        return models.BertPretrainer(encoder, 2, drawing.LENGTH, activation=gelu)
    chosen = {"type": encoder_type(kind), encoder_type(kind): encoder_config(name)}
    encoder = encoders.build_encoder(encoders.EncoderConfig(**chosen))
    what, *words = kind.split()
    labels = next((int(word) for word in words if word.isdigit()), 0)
    if what == "classifier":
        # That of the classifiers of 2020.
        head = networks.Classification(width, labels) if "first" in words else None
        own = "own" in words
        model = models.BertClassifier(encoder, labels, use_encoder_pooler=not own, cls_head=head)
    elif what == "spans":
        model = models.BertSpanLabeler(encoder)
    elif what == "tags":
        model = models.BertTokenClassifier(encoder, labels)
    elif what == "pretrainer":
        # The trainer's default is this activation, whatever the encoder's is.
        head = layers.ClassificationHead(width, 2, name="next_sentence")
        model = models.BertPretrainerV2(encoder, gelu, classification_heads=[head])
    elif what == "masked":
        own = tf_utils.get_activation(ACTIVATIONS[name[0]])
        model = models.BertPretrainerV2(encoder, own)
    else:
        model = encoder
    return model


def write_config(folder: pathlib.Path, name: str, kind: str, file: str) -> None:
    """The configuration as its scripts (the older ones) or its trainer keep it."""
    folder.mkdir(exist_ok=True)
    if file == "bert_config.json":
        values = drawing.sizes_of(name) | {"hidden_act": ACTIVATIONS[name[0]]}
        (folder / file).write_text(configs.BertConfig(**values).to_json_string())
    elif file:
        encoder = encoders.EncoderConfig(type=encoder_type(kind))
        encoder.override({encoder_type(kind): encoder_config(name).as_dict()})
        model = {"encoder": encoder.as_dict()}
        if kind.startswith(("pretrainer", "masked")):
            model = bert.PretrainerConfig(encoder=encoder).as_dict()
            if kind == "masked":
                model["mlm_activation"] = ACTIVATIONS[name[0]]
        experiment = params_dict.ParamsDict({"task": {"model": model}})
        params_dict.save_params_dict_to_yaml(experiment, str(folder / file))


def save(folder: pathlib.Path, model, way: str, name: str) -> None:
    """Writes a checkpoint as the examples, the trainer, or the model itself would."""
    items = getattr(model, "checkpoint_items", {"encoder": model})
    if way == "write":
        tf.train.Checkpoint(model=model).write(str(folder / "bert_model.ckpt"))
    elif way == "items":
        tf.train.Checkpoint(**items).save(str(folder / "ckpt"))
    elif way == "trainer":
        newer = name.startswith("b")
        optimizer = tf_keras.optimizers.AdamW(0.0) if newer else AdamWeightDecay(0.0)
        weights = model.trainable_variables
        zeros = [tf.zeros_like(weight) for weight in weights]
        optimizer.apply_gradients(list(zip(zeros, weights, strict=True)))
        checkpoint = tf.train.Checkpoint(
            global_step=optimizer.iterations, model=model, optimizer=optimizer, **items
        )
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=5)
        manager.save(checkpoint_number=7)


def export(out: pathlib.Path, model, way: str, name: str):
    """Exports for TF-Hub, and returns what it computes when it is loaded again."""
    items = getattr(model, "checkpoint_items", {"encoder": model})
    checkpoint = tf.train.Checkpoint(**items).save(str(out / "exported" / name))
    cased = "uncased" not in way
    vocabulary = out / "vocabularies" / name / "vocab.txt"
    values = drawing.sizes_of(name) | {"hidden_act": ACTIVATIONS[name[0]]}
    export_tfhub_lib.export_model(
        str(out / name),
        bert_config=configs.BertConfig(**values),
        model_checkpoint_path=checkpoint,
        with_mlm=hasattr(model, "masked_lm"),
        copy_pooler_dense_to_encoder=name == "b_hub",
        vocab_file=drawing.write_vocabulary(vocabulary, name, cased),
        do_lower_case=not cased,
    )
    loaded = tf.saved_model.load(str(out / name))

    def answers(inputs):
        if not hasattr(model, "masked_lm"):
            return loaded({key: v for key, v in inputs.items() if key != "masked_lm_positions"})
        return loaded.mlm(inputs)

    return answers


def main(out: pathlib.Path) -> None:
    for name, (kind, way, file) in CASES.items():
        model = model_of(name, kind)
        ids, mask, segments = map(tf.constant, drawing.inputs_of(name).values())
        inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": segments}
        if "pretrainer" in kind or kind.startswith("masked"):
            inputs["masked_lm_positions"] = tf.constant(drawing.every_position())
        model(inputs)
        for variable in model.weights:
            variable.assign(drawing.drawn(name, variable.name, variable.shape))
        if way.startswith("hub"):
            given = export(out, model, way, name)(inputs)
        else:
            given = model(inputs)
        write_config(out / name, name, kind, file)
        save(out / name, model, way, name)
        if isinstance(given, list):
            outputs = {"start_logits": given[0], "end_logits": given[1]}
        elif not isinstance(given, dict):
            outputs = {"logits": given}
        else:
            outputs = {NAMES[key]: value for key, value in given.items() if key in NAMES}
        if kind.startswith("pretrainer") and way != "hub cased":
            del outputs["pooled_output"]  # the head has a pooler of its own
        if way == "items":
            outputs.pop("next_sentence_logits", None)  # that head's outputs aren't among them
        drawing.keep(out, name, outputs)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
