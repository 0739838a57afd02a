"""keyblock-calibrate on runs and bundles of the toy: what it learns and keeps, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from safetensors.torch import load_file, save_file

from keyblock.bundle import TOKENIZER_FILE, Bundle, BundleError, load_bundle
from keyblock.description import PipelineConfig
from keyblock.fusion import FEATURES, Activation, Fusion
from keyblock.pipeline import Pipeline
from keyblock.text.prompt import Prompt
from tests.training.commands.conftest import Printed, cells, strings
from tests.training.conftest import bundle_with
from training.commands.calibrate import main as calibrate_main
from training.commands.evaluate import main as evaluate_main
from training.data.collection import Collection
from training.data.files import open_text, read_run
from training.evaluate.calibration import calibrate as calibrating
from training.evaluate.calibration import systems as calibrated
from training.evaluate.calibration.calibrate import DevSplit, Plan, Setting, calibrate, cheapest_of_the_best
from training.evaluate.calibration.first_stage import learn
from training.evaluate.calibration.spans import fit_spans
from training.evaluate.calibration.systems import CalibratedBundle, CalibratedRun, fingerprint
from training.evaluate.evaluate import read_values
from training.evaluate.ranking import CHOOSER, load_run_pipeline

BUDGETS = ["--budgets", "80", "96", "--default", "96"]
EMBEDDED = Path(__file__).resolve().parents[3] / "models" / "default"
FEW = ["--least", "2"]  # the toy has 8 dev queries


def test_train_calibrate_evaluate(
    printed: Printed, run_copy: Path, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run_copy` is what keyblock-train left."""
    on_toy = ("--run", run_copy, "--collection", toy.path)
    command = (calibrate_main, *on_toy, *BUDGETS, "--depth", 4, *FEW)
    found = json.loads(printed(*command, "--json"))
    config = PipelineConfig.model_validate_json((run_copy / "pipeline.json").read_text(encoding="utf-8"))
    assert config.fusion.model_dump() == found.pop("fusion")
    assert config.fusion.logit > 0
    assert (config.packing.budget, config.packing.budget_range, config.packing.query_tokens) == (96, (80, 96), 8)
    quality = json.loads((run_copy / "quality.json").read_text(encoding="utf-8"))
    assert quality == found
    assert list(quality["dev"]["toy"]) == ["80", "96"]
    assert quality["dev"]["toy"]["96"]["RR@10"] >= quality["dev"]["toy"]["96"]["RR@10 model alone"] >= 0.9
    assert quality["calibration"]["expected_error"] < 0.1
    with monkeypatch.context() as patch:
        patch.delattr(calibrating, "score_dev")  # its scores were kept
        printed(*command)
    assert json.loads((run_copy / "quality.json").read_text(encoding="utf-8")) == quality

    out = tmp_path / "out"
    table = cells(printed(evaluate_main, *on_toy, "--split", "dev", "--out", out))
    assert list(table) == ["system", "---", "toy-run", "first stage", "shuffled"]
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    found = json.loads(printed(evaluate_main, *on_toy, "--json"))
    assert found["measures"] == summary["measures"] == found["systems"]["toy-run"]
    assert (summary["system"], summary["collection"], summary["queries"]) == ("toy-run", "toy", 8)
    assert summary["measures"]["RR@10"] >= 0.9
    assert summary["gold_in_best_blocks"] == 1.0
    assert list(read_run(out / "run.trec.gz")) == toy.split("dev") == list(read_values(out / "per_query.tsv")["nDCG@10"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--default", "64"], "--default 64 is not among --budgets 80"),
        (["--budgets", "129"], "a budget of 129 tokens exceeds the 128"),
        (["--budgets", "12", "80"], "--budgets: "),
        (["--budgets", "80", "--depth", "1"], "no dev query has a relevant document among its candidates"),
        (["--budgets", "80", "--depth", "4"], "or accept it with --least 8. The fusion stays as it is"),
    ],
)
def test_calibrations_that_cannot_be_made(
    run_copy: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    before = (run_copy / "pipeline.json").read_bytes()
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, *arguments)) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("keyblock-calibrate: ")
    assert said in line
    assert (run_copy / "pipeline.json").read_bytes() == before


def test_the_model_that_counts_is_calibrated(printed: Printed, run_copy: Path, toy_path: Path) -> None:
    """Scores are kept for each model. A run of BeST has best/ and no checkpoint of its own."""
    (run_copy / "checkpoint").rename(run_copy / "best")
    command = (calibrate_main, "--run", run_copy, "--collection", toy_path, "--queries", 2, "--depth", 4, *FEW)
    printed(*command)
    head = run_copy / "best" / "head.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(head).items()}, head)
    printed(*command)
    shutil.copytree(run_copy / "best", run_copy / CHOOSER)
    printed(*command)
    assert len(list((run_copy / "dev-scores").iterdir())) == 3


def test_tables_for_people_at_the_runs_own_budget(printed: Printed, run_copy: Path, toy_path: Path) -> None:
    said = printed(calibrate_main, "--run", run_copy, "--collection", toy_path, "--depth", 4, *FEW)
    assert "| fusion | " in said
    assert "| toy | 80 | " in said
    assert "\nexpected calibration error at 80 tokens: 0." in said
    assert "| is there an answer? | AUROC |" in said
    assert said.splitlines()[-1].startswith("threshold 0.")
    packing = load_run_pipeline(run_copy).config.packing
    assert (packing.budget, packing.budget_range) == (80, (32, 96))


CHEAP, DEAR = Setting(128, 1), Setting(128, 3)


@pytest.mark.parametrize(
    ("cheap", "chosen"),
    [
        ([1.0, 0.5, 1.0, 0.5], CHEAP),  # equal
        ([1.0, 0.5, 0.5, 0.5], CHEAP),  # loses .125, and the standard error is .125
        ([0.5, 0.5, 0.5, 0.5], DEAR),  # loses .25 with an error of .144
        ([1.0, 1.0, 1.0, 1.0], CHEAP),  # the best
        ([0.5], DEAR),  # one query decides by itself
    ],
)
def test_fewer_tokens_win_within_a_standard_error(cheap: list[float], chosen: Setting) -> None:
    assert cheapest_of_the_best({DEAR: [1.0, 0.5, 1.0, 0.5][: len(cheap)], CHEAP: cheap}) == chosen


def test_settings_are_every_budget_with_every_number_of_passages(toy_bundle: Bundle) -> None:
    config = toy_bundle.manifest.pipeline
    assert [str(setting) for setting in Plan((96, 80), (2, 1)).settings(config)] == ["2 x 96", "1 x 96", "2 x 80", "1 x 80"]
    assert [str(setting) for setting in Plan().settings(config)] == [str(config.packing.budget)]
    assert [setting.cost for setting in (Setting(128), CHEAP, DEAR)] == [128, 128, 384]


def test_a_bundle_is_calibrated_into_a_copy(
    printed: Printed, refused: Printed, toy_bundle: Bundle, toy_path: Path, tmp_path: Path
) -> None:
    """The toy's relevant document says the query's words, so either budget ranks it first, and the smaller one is served."""
    out, measured = tmp_path / "calibrated", ("--budgets", 96, 80, "--depth", 4, *FEW)
    asked = (calibrate_main, "--bundle", toy_bundle.path, "--out", out, "--collection", toy_path, *measured)
    assert "expected calibration error at 80 tokens: 0." in printed(*asked)
    manifest = load_bundle(out).manifest
    assert (manifest.pipeline.packing.budget, manifest.pipeline.packing.budget_range) == (80, (80, 96))
    assert manifest.pipeline.fusion != toy_bundle.manifest.pipeline.fusion
    assert manifest.quality["dev"]["toy"]["80"]["RR@10"] >= 0.9
    assert manifest.pipeline.first_stage is None
    assert "is not empty" in refused(*asked)


def test_a_fusion_with_the_first_stage_is_learned_if_requested(
    printed: Printed, toy_bundle: Bundle, toy_path: Path, tmp_path: Path
) -> None:
    """The toy's BM25 ranks the answer last, so all weight is the model's."""
    out = tmp_path / "out"
    asked = ("--bundle", toy_bundle.path, "--out", out, "--collection", toy_path, "--depth", 4, *FEW)
    said = printed(calibrate_main, *asked, "--first-stage", "linear")
    assert "| with the first stage | RR@10 | nDCG@10 |\n| --- | --- | --- |\n| toy | 1 | 1 |" in said
    manifest = load_bundle(out).manifest
    assert manifest.pipeline.first_stage == {"name": "linear", "first_stage": "scores", "weight": 0.0}
    assert manifest.quality["first_stage"] == {"toy": {"RR@10": 1.0, "nDCG@10": 1.0}}


def test_what_is_learned_last_is_learned_from_the_logits_that_are_served(
    toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded model's second look changes the logits that the service fuses with the first stage, and scores sentences by."""
    learned, fitted = Mock(wraps=learn), Mock(wraps=fit_spans)
    monkeypatch.setattr(calibrating, "learn", learned)
    monkeypatch.setattr(calibrating, "fit_spans", fitted)
    plan = Plan(depth=4, least=2, first_stage="linear", second_look=(4, 4), use=("logit",))
    calibrate(CalibratedBundle(EMBEDDED, tmp_path / "out"), [toy], plan)
    ranker = CalibratedBundle(tmp_path / "out", tmp_path / "none").own_ranker(toy, 128)
    (_, [held_out]), ([documents],) = learned.call_args.args, fitted.call_args.args
    assert documents
    for query, candidates in toy.run("dev").items():
        served = dict(zip(candidates, ranker.answered(query, list(candidates)).ranking.logits.tolist(), strict=True))
        assert held_out.model[query] == pytest.approx(served, abs=1e-3)
        read = {one.document: one.logit for one in documents if one.query == query}
        assert read == pytest.approx({document: served[document] for document in read}, abs=1e-3)


def test_the_score_is_the_probability_that_was_fitted(printed: Printed, toy_bundle: Bundle, toy_path: Path, tmp_path: Path) -> None:
    """An import's activation belongs to its logit alone: three times the fused one would be no share of relevant candidates."""
    kept = {"certificate": {"pairs": 384}}
    own = bundle_with(toy_bundle, tmp_path / "own", {"activation": {"name": "identity", "scale": 3.0}}, quality=kept).path
    out = tmp_path / "out"
    printed(calibrate_main, "--bundle", own, "--out", out, "--collection", toy_path, "--depth", 4, *FEW)
    calibrated = load_bundle(out)
    assert calibrated.pipeline.config.activation == Activation()
    assert calibrated.manifest.quality.items() > kept.items(), "what the import measured stays"


def test_a_prompt_keeps_its_room(refused: Printed, run_copy: Path, toy_path: Path) -> None:
    path = run_copy / "pipeline.json"
    config = PipelineConfig.model_validate_json(path.read_text(encoding="utf-8"))
    prompted = config.model_copy(update={"prompt": Prompt(pieces=("{query}", "{document}"))})
    path.write_text(prompted.model_dump_json(), encoding="utf-8")
    least = config.packing.budget_range[0]
    said = refused(calibrate_main, "--run", run_copy, "--collection", toy_path, "--budgets", least - 1, least)
    assert f"--budgets: {least - 1} has no room beside the prompt; this model's sequences begin at {least} tokens\n" in said


def test_kept_scores_are_of_the_same_texts_and_candidates(toy_copy: Path) -> None:
    """A collection's name says nothing of its content: another query or text, or more of them, and all is scored again."""

    def name(**plan: int) -> str:
        return DevSplit.draw(Collection(toy_copy), Plan(**plan)).name

    def edit(file: str, old: str, new: str) -> str:
        with open_text(toy_copy / file) as kept:
            text = kept.read()
        with open_text(toy_copy / file, "w") as out:
            out.write(text.replace(old, new))
        return name()

    plain = name()
    assert plain == name() == name(queries=100)
    assert plain.startswith("toy-")
    query = Collection(toy_copy).query(Collection(toy_copy).split("dev")[0])
    found = [
        plain,
        name(queries=2),
        name(depth=2),
        edit("queries.jsonl", query, f"{query} now"),
        edit("corpus.jsonl.gz", "night", "noon"),
    ]
    assert len(set(found)) == 5


def test_a_bundle_needs_a_place_for_its_copy_and_a_model_that_reads_so_much(
    refused: Printed, toy_bundle: Bundle, toy_path: Path, tmp_path: Path
) -> None:
    given = (calibrate_main, "--bundle", toy_bundle.path, "--collection", toy_path)
    assert "--bundle and --out belong together" in refused(*given)
    assert "129 tokens exceeds the 128 that its model reads" in refused(*given, "--out", tmp_path / "out", "--budgets", 129)


def test_a_fusion_that_was_learned_is_where_the_next_one_starts(run_copy: Path, toy_bundle: Bundle, tmp_path: Path) -> None:
    """Of a bundle its own; of a run that of what it begins from."""
    fusion = CalibratedBundle(toy_bundle.path, tmp_path / "out").start()
    assert fusion == Fusion(bias=-2.0, logit=0.7, best_block=0.2, coverage=0.5)
    assert CalibratedRun(run_copy).start() is None
    path = run_copy / "recipe.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("init: null", f"init: {toy_bundle.path}"), encoding="utf-8")
    assert CalibratedRun(run_copy).start() == fusion


def test_another_number_of_passages_reads_more(toy_bundle: Bundle, toy: Collection, tmp_path: Path) -> None:
    """Each of the two best blocks is a passage of its own; a bundle whose passages are joint has no number of them."""
    passages = bundle_with(toy_bundle, tmp_path / "passages", {"aggregator": {"name": "max", "passages": 2}})
    system = CalibratedBundle(passages.path, tmp_path / "out")
    query, candidates = next(iter(toy.run("dev").items()))
    own = system.own_ranker(toy, 80)
    read = [len(system.ranker(own, count).score(query, list(candidates)).selections[0].sequences) for count in (1, None, 3)]
    assert read == [1, 2, 3]
    joint = CalibratedBundle(toy_bundle.path, tmp_path / "joint")
    with pytest.raises(ValueError, match="--passages: aggregator 'joint' reads no number of passages; leave it out"):
        joint.ranker(joint.own_ranker(toy, 80), 2)


@pytest.mark.parametrize("inside", [".", "calibrated", "further/in"])
def test_nothing_is_written_into_the_bundle(toy_bundle: Bundle, inside: str) -> None:
    with pytest.raises(BundleError, match=r"lies in the bundle .*; give a directory outside of it"):
        CalibratedBundle(toy_bundle.path, toy_bundle.path / inside)


def test_the_fingerprint_is_of_what_calibration_leaves_alone(
    toy_bundle: Bundle, change_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of other features are not taken either."""
    tokenizer = toy_bundle.path / TOKENIZER_FILE
    prints = {
        key: fingerprint(change_pipeline(**parts), tokenizer, [content])
        for key, parts, content in (
            ("plain", {}, b"weights"),
            ("fusion", {"fusion": {"logit": 3.0}}, b"weights"),
            ("activation", {"activation": {"name": "identity"}}, b"weights"),
            ("segmenter", {"segmenter": {"name": "window"}}, b"weights"),
            ("selector", {"selector": {"name": "first"}}, b"weights"),
            ("weights", {}, b"other"),
        )
    }
    assert prints["plain"] == prints["fusion"] == prints["activation"]
    assert len({prints["plain"], prints["selector"], prints["segmenter"], prints["weights"]}) == 4
    monkeypatch.setattr(calibrated, "FEATURES", FEATURES[:-1])
    assert fingerprint(change_pipeline(), tokenizer, [b"weights"]) != prints["plain"]
