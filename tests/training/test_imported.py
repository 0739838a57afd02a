"""Models of others: imported, trained on from their bundle, exported again, head and all."""

from pathlib import Path

import numpy as np
import pytest

from export.cli import main as export_main
from export.importing import import_model
from export.options import ImportOptions
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from tests.support.checkpoints import save_checkpoint
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import bundle_ranker, run_ranker
from training.model.classifier import Classifier
from training.model.families import load_ranker, new_ranker
from training.model.starting import start_from

NAMES = ("bert", "xlm-roberta")
FINETUNE = Path(__file__).parents[2] / "training" / "recipes" / "small" / "finetune.yaml"


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints, and beside each the bundle that it became."""
    folder = tmp_path_factory.mktemp("imports")
    for name in NAMES:
        source = save_checkpoint(name, folder / name)
        import_model(str(source), folder / f"{name}-bundle", ImportOptions(pairs=16, provider=Provider.CPU))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_an_import_is_trained_on_and_exported_again(name: str, imports: Path, toy: Collection, tmp_path: Path) -> None:
    source, bundle, run, again = imports / name, imports / f"{name}-bundle", tmp_path / "run", tmp_path / "again"
    settings = {"init": bundle, "steps": 2, "evaluate_every": 2, "dev_queries": 2}  # model and backbone are the import's
    settings |= {"precision": "fp32", "negatives.hard": 0, "optimizer.encoder_lr": 1e-3, "patience": "null"}
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    assert train_main([str(FINETUNE), f"--collection={toy.path}", f"--out={run}", *sets]) == 0
    assert export_main([str(run), f"--out={again}", f"--collection={toy.path}", "--precision=fp32", "--provider=cpu"]) == 0

    query, candidates = next(iter(toy.run("dev").items()))
    trained = run_ranker(run, toy, bf16=False).score(query, list(candidates)).logits
    loaded = load_bundle(again)
    served = bundle_ranker(loaded, GraphModel.open(loaded, Provider.CPU, 1), toy).score(query, list(candidates)).logits
    assert np.ptp(trained) > 1e-3
    np.testing.assert_allclose(served, trained, atol=1e-4)

    before, after = Classifier.load(source), load_ranker(run / "checkpoint")
    assert isinstance(after, Classifier)
    assert type(after.module) is type(before.module)
    assert not np.array_equal(before.final.weight.detach().numpy(), after.final.weight.detach().numpy()), "it learned"
    start_from(before, again)
    assert np.array_equal(before.final.weight.detach().numpy(), after.final.weight.detach().numpy()), "and all of it was kept"


def test_another_checkpoints_bundle_is_one_clear_error(imports: Path, tmp_path: Path) -> None:
    other = Classifier.load(save_checkpoint("bert", tmp_path / "other", intermediate_size=64))
    with pytest.raises(ValueError, match="its ranker is not of the backbone's architecture"):
        start_from(other, imports / "bert-bundle")
    with pytest.raises(ValueError, match="graph is a cross-encoder's; a classifier starts from a run of its own"):
        start_from(other, Path("models/default"))
    with pytest.raises(ValueError, match=r"it is trained on with model\.name=classifier"):
        start_from(new_ranker({"name": "cross_encoder"}, str(imports / "bert")), imports / "bert-bundle")
