import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from export import ExportError
from export.checkpoint import read_checkpoint
from export.exporter import SAMPLE
from export.import_defaults import import_frequencies, import_pipeline, import_tokenizer
from export.options import ImportOptions
from keyblock.fusion import Activation
from keyblock.packing import PackingConfig
from tests.support.checkpoints import FAMILIES, POSITIONS, save_checkpoint, save_tokenizer, wordpiece


def packing_of(source: Path, work: Path, options: ImportOptions) -> PackingConfig:
    checkpoint = read_checkpoint(str(source), options)
    tokenizer = import_tokenizer(checkpoint, work / "tokenizer.json")
    return import_pipeline(checkpoint, tokenizer, import_frequencies(None), options).config.packing


@pytest.mark.parametrize(
    ("passage_tokens", "expected"),
    [(256, (256, (99, 512))), (1000, (512, (99, 512))), (16, (99, (99, 512)))],
)
def test_a_sequence_is_a_passage_of_the_models_habit(
    checkpoint: Callable[[str], Path], tmp_path: Path, passage_tokens: int, expected: tuple[int, tuple[int, int]]
) -> None:
    packing = packing_of(checkpoint("bert"), tmp_path, ImportOptions(passage_tokens=passage_tokens))
    assert (packing.budget, packing.budget_range) == expected
    assert packing.query_tokens == 64


def test_a_long_window_is_used_if_requested(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    usual = packing_of(checkpoint("modernbert-cls"), tmp_path, ImportOptions())
    long = packing_of(checkpoint("modernbert-cls"), tmp_path, ImportOptions(passage_tokens=4096))
    assert (usual.budget, usual.budget_range[1], long.budget, long.budget_range[1]) == (256, 512, 4096, 4096)


def test_a_prompt_comes_on_top_of_a_passage(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    packing = packing_of(checkpoint("qwen3"), tmp_path, ImportOptions(passage_tokens=200))
    assert packing.budget > 200 + 64 + 50
    assert packing.budget_range[0] < packing.budget <= packing.budget_range[1]


def test_a_window_that_batches_would_be_padded_beyond(tmp_path: Path) -> None:
    """300 positions: sequences of 257 tokens and more would be padded to 384."""
    source = save_checkpoint("bert", tmp_path / "model", max_position_embeddings=300)
    assert packing_of(source, tmp_path, ImportOptions(passage_tokens=300)).budget_range[1] == 256


def test_a_window_without_room_for_a_sentence(tmp_path: Path) -> None:
    source = save_checkpoint("roberta", tmp_path / "model", **{**POSITIONS, "max_position_embeddings": 42})
    with pytest.raises(
        ExportError, match="its window of 40 tokens is too small for a query of 10 tokens and one sentence, which need 46"
    ):
        packing_of(source, tmp_path, ImportOptions())


def test_a_tokenizer_that_marks_no_pairs_and_one_of_another_model(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(checkpoint("bert"), tmp_path / "model"))
    unmarked = wordpiece(FAMILIES["bert"].special)
    unmarked.post_processor = None
    save_tokenizer(unmarked, FAMILIES["bert"], source)
    with pytest.raises(ExportError, match="does not mark a pair of texts"):
        packing_of(source, tmp_path, ImportOptions())
    larger = wordpiece(FAMILIES["bert"].special)
    larger.add_tokens([f"more{i}" for i in range(50)])
    save_tokenizer(larger, FAMILIES["bert"], source)
    with pytest.raises(ExportError, match="they do not belong together"):
        packing_of(source, tmp_path, ImportOptions())


def test_options_win_over_the_card(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    options = ImportOptions(activation=Activation(name="identity", scale=0.5), joint=True)
    checkpoint_ = read_checkpoint(str(checkpoint("bert")), options)
    tokenizer = import_tokenizer(checkpoint_, tmp_path / "tokenizer.json")
    config = import_pipeline(checkpoint_, tokenizer, import_frequencies(None), options).config
    assert (config.activation.name, config.activation.scale) == ("identity", 0.5)
    assert (config.aggregator["name"], config.segmenter["name"], config.packing.grow) == ("joint", "cogltx", False)


def test_frequencies_of_a_table_and_of_a_collection(tmp_path: Path) -> None:
    general, counted = import_frequencies(None), import_frequencies(SAMPLE)
    assert general.frequencies["river"] > 1000
    assert counted.n_documents == 6
    counted.write(tmp_path / "mine.tsv")
    assert import_frequencies(tmp_path / "mine.tsv").frequencies == counted.frequencies
    for wrong in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(ExportError, match=f"--frequencies {wrong}: "):
            import_frequencies(wrong)
