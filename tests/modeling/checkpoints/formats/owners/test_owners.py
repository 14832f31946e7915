"""Checkpoints that other libraries write now, of several sizes, heads, types and ways of saving.

    python -m pytest -m slow tests/modeling/checkpoints/formats/owners

Each computes here what its own library computed, and so do its conversions: to the original's
format by the independent NumPy BERT, to Hugging Face's and KerasHub's by those libraries. Minutes,
most of them for installing; BERT_PEERS_DIR names a folder that keeps the environments.
"""

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import modeling
from modeling import checkpoints
from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM
from modeling.checkpoints.heads import checkpoint_head
from modeling.checkpoints.vocabularies import text_folding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from tests.modeling.checkpoints.formats.owners import drawing, running
from tests.modeling.checkpoints.formats.owners.expected import LIBRARIES, POOLER, Case
from tests.reference import numpy_bert

SENTENCES = ("classes", "multi_label", "regression")
MODELS = {
    None: "BertModel",
    **dict.fromkeys(("pretraining", "masked_lm", "next_sentence"), "BertPretrainer"),
    **dict.fromkeys(SENTENCES, "BertClassifier"),
    "choices": "BertMultipleChoice",
    "tags": "BertTagger",
    "spans": "BertQuestionAnswering",
}
PARTS = {None: "encoder", "spans": "squad"}
PARTS |= dict.fromkeys(("pretraining", "masked_lm", "next_sentence"), "pretraining")
"""Head → what the NumPy BERT calls its weights, if that isn't "classifier"."""
WITHOUT_POOLER = ("masked_lm", "tags", "spans")
"""The heads whose class in transformers has no pooler."""


class Written:
    """A checkpoint that its owner wrote, and what it computed.

    Attributes:
        name: Of its folder.
        case: What is expected.
        file: Its inputs and outputs.
        config: Its configuration in our terms.
        inputs, outputs: As the models here take and give them; the rows are choices, if it has any.
    """

    def __init__(self, folder: pathlib.Path, name: str, case: Case, fields: dict):
        self.name, self.case = name, case
        self.path, self.file = folder / name, folder / f"{name}.npz"
        self.outputs = dict(np.load(self.file))
        self.inputs = {key: self.outputs.pop(key) for key in drawing.INPUTS}
        self.mask = self.inputs["input_mask"]
        self.inputs["masked_lm_positions"] = drawing.every_position()
        fields = fields.get(name[0], {}) | case.fields
        self.config = BertConfig(**drawing.sizes_of(name), **fields, head=case.head)
        self.held = checkpoints.open_contents(self.path)
        self.pooler = {self.held.file_names[n] for n in POOLER if n in self.held.shapes}

    def check_reading(self) -> None:
        """Class, configuration, labels and casing; what was loaded and what not; the outputs."""
        model, tokenizer, config = modeling.from_pretrained(self.path)
        assert type(model).__name__ == MODELS[self.case.head]
        self._check_beside(self.path, config)
        assert (tokenizer is not None) == (self.case.lower is not None)
        if self.case.head in (*SENTENCES, "tags"):
            assert config.labels == self.case.labels
        report = checkpoints.load(model, self.path)
        assert tuple(report.newly_initialised) == self.case.new
        assert tuple(report.left_over) == self.case.left_over
        inputs, outputs = self.inputs, dict(self.outputs)
        if self.case.head == "choices":
            inputs = {key: value[None] for key, value in inputs.items()}
            # The bias that is left over is the same for all choices; the original's has none.
            outputs["logits"] = outputs["logits"] - self.held.read("output_bias")
        running.assert_equal(model(inputs), outputs, self.mask, self.name)

    def check_original(self, folder: pathlib.Path) -> None:
        """Its conversion has the original's names, and NumPy computes the same of it."""
        result = checkpoints.convert(self.path, folder, "tf1")
        assert {*result.not_converted} == {*self._useless()}
        config = BertConfig.from_json_file(folder / "bert_config.json")
        head = checkpoint_head(checkpoints.open_contents(folder).shapes, config)
        self._check_beside(folder, dataclasses.replace(config, head=head))
        reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
        shapes = {n: tuple(shape) for n, shape in reader.get_variable_to_shape_map().items()}
        values = self.config.to_dict()
        part = PARTS.get(self.case.head, "classifier")
        wanted = numpy_bert.variable_shapes(values, (part,), self.case.outputs)
        absent = (*self.case.new, *["cls/seq_relationship/"] * (self.case.head == "masked_lm"))
        assert shapes == {n: s for n, s in wanted.items() if not n.startswith(absent)}
        weights = {n: np.zeros(s) for n, s in wanted.items() if n in POOLER}
        weights |= {name: reader.get_tensor(name) for name in shapes}
        got = numpy_bert.forward(weights, values, self.inputs)
        outputs = dict(self.outputs)
        for head in ("masked_lm", "next_sentence"):
            if f"{head}_logits" in outputs:
                logits = outputs.pop(f"{head}_logits").astype(np.float64)
                outputs[f"{head}_log_probs"] = numpy_bert.log_softmax(logits)
        if self.case.head == "choices":
            got["logits"] = got["logits"].T
        if self.case.head == "tags":  # of each token, where NumPy's classifier reads the pooler
            rows = weights["output_weights"].astype(np.float64)
            got["logits"] = got["sequence_output"] @ rows.T + weights["output_bias"]
        running.assert_equal(got, outputs, self.mask, f"{self.name} in NumPy")
        # What its owner didn't give, for the libraries that open its other conversions.
        self.outputs.setdefault("sequence_output", got["sequence_output"])
        if self.pooler:
            self.outputs.setdefault("pooled_output", got["pooled_output"])

    def to_huggingface(self, folder: pathlib.Path) -> None:
        """Converts it; what the class has no place for is named."""
        result = checkpoints.convert(self.path, folder, "huggingface")
        poolerless = self.case.head in WITHOUT_POOLER
        assert {*result.not_converted} == {*self._useless(), *(self.pooler if poolerless else ())}
        noted = any("masked-LM head" in note for note in result.notes)
        assert noted == self._has_own_masked_lm()
        self._check_beside(folder)

    def to_keras_hub(self, folder: pathlib.Path) -> bool:
        """Whether KerasHub has such a model; if so it is converted, a head that it lacks named."""
        act, eps = self.config.hidden_act, self.config.layer_norm_eps
        if (act, eps) != ("gelu", 1e-12) or not self.pooler:
            with pytest.raises(ModelingError, match="BertBackbone can't compute this model"):
                checkpoints.convert(self.path, folder, "keras_hub")
            return False
        result = checkpoints.convert(self.path, folder, "keras_hub")
        left = {self.held.file_names[n] for n in self.held.shapes if not n.startswith("bert/")}
        left = set() if self._in_keras_hub() else left
        assert {*result.not_converted} == {*self._useless(), *left}
        assert any("left out" in note for note in result.notes) == bool(left)
        self._check_beside(folder)
        return True

    def check_in_transformers(self, report: dict, outputs: dict[str, np.ndarray]) -> None:
        assert (report["keys"], report["dtype"]) == ([], "torch.float32")
        if self.case.labels:
            assert report["labels"] == self.case.labels
        names = {"sequence_output", "pooled_output"} if self.case.head is None else {*self.outputs}
        wanted = {name: self.outputs[name] for name in names & outputs.keys()}
        assert wanted
        if self._has_own_masked_lm():  # of which there was a note
            del wanted["masked_lm_logits"]
        running.assert_equal(outputs, wanted, self.mask, f"{self.name} in transformers")

    def check_in_keras_hub(self, report: dict, outputs: dict[str, np.ndarray]) -> None:
        tasks = dict.fromkeys(SENTENCES, "BertTextClassifier") | {"masked_lm": "BertMaskedLM"}
        has = self._in_keras_hub()
        assert report["class"] == (tasks[self.case.head] if has else "BertBackbone")
        encoder = ("sequence_output", "pooled_output")
        wanted = {n: v for n, v in self.outputs.items() if has or n in encoder}
        running.assert_equal(outputs, wanted, self.mask, f"{self.name} in KerasHub")

    def _check_beside(self, path: pathlib.Path, config: BertConfig | None = None) -> None:
        if config:
            assert dataclasses.replace(config, extra={}) == self.config
        assert text_folding(path).do_lower_case == self.case.lower

    def _useless(self) -> list[str]:
        """Weights that no other format has a place for either."""
        return [] if self.case.head == "choices" else [*self.case.left_over]

    def _has_own_masked_lm(self) -> bool:
        """Whether that head computes otherwise than its encoder, which transformers' doesn't."""
        return self.config.masked_lm_form != (self.config.hidden_act, self.config.layer_norm_eps)

    def _in_keras_hub(self) -> bool:
        of_form = self.config.masked_lm_form == tuple(KERAS_HUB_MASKED_LM.values())
        return self.case.head in SENTENCES or (self.case.head == "masked_lm" and of_form)


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", LIBRARIES)
def test_three_sizes_of_all_that_a_library_writes(program, tmp_path, peer_python):
    peer, cases, fields = LIBRARIES[program]
    running.run(peer_python(peer), program, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.npz")} == {*cases}
    in_transformers, in_keras_hub = {}, {}
    for name, case in cases.items():
        if case.refused:
            with pytest.raises(ModelingError, match=case.refused):
                modeling.from_pretrained(tmp_path / name)
            continue
        written = Written(tmp_path, name, case, fields)
        written.check_reading()
        written.check_original(tmp_path / "tf1" / name)
        folder = tmp_path / "huggingface" / name
        written.to_huggingface(folder)
        in_transformers[folder] = written
        folder = tmp_path / "keras_hub" / name
        if written.to_keras_hub(folder):
            in_keras_hub[folder] = written
    inputs = {folder: written.file for folder, written in in_transformers.items()}
    opened = running.opened(peer_python("pytorch"), "open_transformers", inputs)
    for folder, written in in_transformers.items():
        written.check_in_transformers(*opened[folder])
    inputs = {folder: written.file for folder, written in in_keras_hub.items()}
    opened = running.opened(peer_python("keras_hub"), "open_keras_hub", inputs)
    for folder, written in in_keras_hub.items():
        written.check_in_keras_hub(*opened[folder])
