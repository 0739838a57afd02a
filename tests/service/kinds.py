"""The kinds of pipelines that training makes models for, by name."""

from typing import Any

from keyblock.fusion import Fusion

TRANSFORMER = {"name": "transformer", "layers": 1, "heads": 2}
FUSION = Fusion(bias=-1.0, logit=1.0, best_block=0.3, coverage=0.5)
WINDOW = {"name": "window", "block_tokens": 40, "stride": 30}
KINDS: dict[str, dict[str, Any]] = {
    "spread": {"selector": {"name": "spread"}},
    "maxp": {"aggregator": {"name": "max", "passages": 3}},
    "avgp": {"selector": {"name": "tfidf"}, "aggregator": {"name": "mean"}},
    "sump": {"segmenter": WINDOW, "selector": {"name": "first"}, "aggregator": {"name": "sum", "passages": 4}},
    "weighted": {"segmenter": {"name": "sentences", "block_tokens": 50}, "aggregator": {"name": "term_weighted"}},
    "parade": {"segmenter": WINDOW, "selector": {"name": "spread"}, "aggregator": {"name": "states", "passages": 5}},
    "parade of all": {"aggregator": {"name": "states"}},
    "binb": {"selector": {"name": "learned"}},
    "cascade": {"selector": {"name": "learned", "keep": 2}},
    "cascade to max": {
        "selector": {"name": "learned", "keep": 3, "by": {"name": "tfidf"}},
        "aggregator": {"name": "max", "passages": 5},
    },
    "parade by binb": {"selector": {"name": "learned"}, "aggregator": {"name": "states", "passages": 3}},
    "parade by binb2": {"selector": {"name": "learned", "keep": 4}, "aggregator": {"name": "states", "passages": 3}},
    "vectors": {"selector": {"name": "vectors"}, "encoder": {"name": "static"}},
    "hybrid": {"segmenter": WINDOW, "selector": {"name": "hybrid"}, "encoder": {"name": "static"}},
    "cascade by hybrid": {
        "selector": {"name": "learned", "keep": 3, "by": {"name": "hybrid"}},
        "encoder": {"name": "static"},
        "aggregator": {"name": "max", "passages": 2},
    },
    "second look": {"second_look": {"documents": 4, "blocks": 3, "margin": 0.5, "bias": -0.5, "first": 0.8, "further": 0.4}},
}
CHOOSERS = {"parade by binb2"}  # kinds whose selector is a model of its own
