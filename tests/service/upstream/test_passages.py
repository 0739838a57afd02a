"""The pipeline in front of an upstream."""

from keyblock.bundle import load_bundle
from service.settings import DEFAULT_BUNDLE, Settings
from service.upstream.passages import in_front_of_upstream, passage_text, pipeline_config


def test_passages_fit_their_tokens_and_hold_the_answer_whole() -> None:
    settings = Settings(upstream="http://127.0.0.1:1/rerank", upstream_model="m", upstream_passages=2, upstream_passage_tokens=128)
    bundle = in_front_of_upstream(load_bundle(DEFAULT_BUNDLE), settings)
    assert bundle.manifest.name == "m"
    answer = "The Danube flows through Vienna and Budapest."
    text = "Nothing of interest was said for a while. " * 60 + answer + " Then they went home." * 60
    document, query = bundle.pipeline.prepare_document(text), bundle.pipeline.prepare_query("the Danube in Vienna")
    selection = bundle.pipeline.select(query, document)
    assert len(selection.sequences) == len(selection.taken) == 2
    assert all(len(packed.ids) <= 128 for packed in selection.sequences)
    best = selection.taken[0]
    passage = text[document.starts[best] : document.ends[best]]
    assert answer in passage
    assert len(passage) > 4 * len(answer)


def test_passages_grow_to_whole_neighbours_and_share_nothing() -> None:
    """As those of an import: a short document is one passage, and each passage is sentences from their first to their last word."""
    settings = Settings(upstream="http://127.0.0.1:1/rerank", upstream_passages=3, upstream_passage_tokens=256)
    pipeline = in_front_of_upstream(load_bundle(DEFAULT_BUNDLE), settings).pipeline
    query = pipeline.prepare_query("the Danube in Vienna")
    sentences = [f"Sentence number {n} tells of {'the Danube' if n % 40 == 3 else 'nothing at all'} in a town." for n in range(200)]

    def passages(text: str) -> list[str]:
        document = pipeline.prepare_document(text)
        reach = pipeline.select(query, document).reach
        return [text[document.starts[first] : document.ends[end - 1]] for first, end in reach.tolist()]

    assert passages(" ".join(sentences[:10])) == [" ".join(sentences[:10])]
    found = passages(" ".join(sentences))
    assert len(found) == 3
    held = [[one for one in sentences if one in passage] for passage in found]
    assert all(" ".join(whole) == passage.strip() and len(whole) > 10 for whole, passage in zip(held, found, strict=True))
    assert len(set().union(*held)) == sum(map(len, held))


def test_a_passage_stands_behind_its_title() -> None:
    assert passage_text("one two three", "", 4, 7) == "two"
    assert passage_text("one two three", "Title", 4, 7) == "Title\ntwo"
    assert len(passage_text("x", "t" * 10_000, 0, 1)) == 202
    assert passage_text("x" * 1_000_000, "", 0, 1_000_000, 64) == "x" * 1024


def test_every_size_that_may_be_set_makes_a_pipeline() -> None:
    for tokens in (64, 100, 256, 512, 2048):
        config = pipeline_config(3, tokens)
        assert config.packing.budget == tokens
        assert config.aggregator == {"name": "max", "passages": 3}
