import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from keyblock.bundle import BundleError
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from service.ranking.loading import find_bundles, open_bundle, read_bundles
from service.settings import Settings
from tests.service.rankers import another


@pytest.fixture
def folder(bundle_path: Path, tmp_path: Path) -> Path:
    """A directory of bundles, with what lies beside them."""
    for name in ("zebra", "default", "apple"):
        another(bundle_path, tmp_path / "models" / name, name)
    shutil.copytree(bundle_path, tmp_path / "models" / ".half.partial")
    (tmp_path / "models" / "notes").mkdir()
    (tmp_path / "models" / "README").write_text("about them")
    return tmp_path / "models"


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_of_a_directory_of_bundles_the_one_called_default_is_the_first(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert names(find_bundles([folder])) == ["default", "apple", "zebra"]
    said = [one.getMessage() for one in caplog.records if one.name == find_bundles.__module__]
    assert said == [f"{folder / 'notes'}: holds no bundle.json, so it is not served"]


def test_paths_keep_their_order(folder: Path, bundle_path: Path) -> None:
    assert find_bundles([folder / "zebra", bundle_path, folder / "apple"]) == [folder / "zebra", bundle_path, folder / "apple"]
    assert names(find_bundles([bundle_path, folder])) == ["tiny", "default", "apple", "zebra"]
    assert find_bundles([Path("no/such"), folder / "notes"]) == [Path("no/such"), folder / "notes"], "to load them tells"


def test_two_of_one_name_are_refused_in_one_line(settings: Settings, folder: Path, bundle_path: Path) -> None:
    another(bundle_path, folder / "b", "apple")
    with pytest.raises(BundleError) as caught:
        read_bundles(settings.model_copy(update={"bundle": (folder,)}))
    assert str(caught.value) == (
        f"{folder / 'b'}: its model is called 'apple', as is that of {folder / 'apple'}; change 'name' in a bundle.json"
    )


@pytest.mark.parametrize("wrong", ["missing", "empty", "garbage"])
def test_one_bad_bundle_among_good_ones_is_refused(settings: Settings, folder: Path, wrong: str) -> None:
    paths = (folder / "default", folder / wrong)
    if wrong != "missing":
        (folder / wrong).mkdir()
    if wrong == "garbage":
        (folder / wrong / "bundle.json").write_bytes(b"\x00garbage")
    with pytest.raises(BundleError, match=str(folder / wrong)) as caught:
        read_bundles(settings.model_copy(update={"bundle": paths}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "ahead"), [(Provider.CPU, 0), (Provider.OPENVINO, 0), (Provider.CUDA, 1), (Provider.TENSORRT, 1)]
)
def test_a_batch_is_decided_ahead_where_a_gpu_computes(
    settings: Settings, provider: Provider, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundle,) = read_bundles(settings)
    model = GraphModel.open(bundle, Provider.CPU, 1)
    model.session.choice = replace(model.session.choice, provider=provider)
    monkeypatch.setattr(GraphModel, "open", lambda *_: model)
    assert open_bundle(bundle, settings).graphs.ahead == ahead
