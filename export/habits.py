"""The default pipeline of an imported model: passages as it was trained on.

A model of others never saw glued blocks. It gets the best blocks of whole sentences, each grown to whole neighbours up to a passage
of its habit, one sequence each, and the best score wins (MaxP, Dai and Callan 2019).
"""

from pathlib import Path
from typing import Any

from export import ExportError
from export.checkpoint import Checkpoint
from export.languages import named_analyzer, usual_analyzer
from export.options import ImportOptions
from keyblock.bundle import FREQUENCIES_FILE
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.preparation import INSTRUCTION_TOKENS
from keyblock.runtime.batching import LENGTHS
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection

GENERAL = Path(__file__).parent / "general" / FREQUENCIES_FILE
QUERY_TOKENS = 64  # of a query at most
SENTENCES = 63  # tokens of the whole sentences that a block is made of
LEAST_TEXT = 32  # tokens beside the longest query: one sentence
USUAL = 512  # tokens: a longer window is used where longer passages are asked for


def import_pipeline(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    frequencies: DocumentFrequencies,
    options: ImportOptions,
    analyzer: AnalyzerConfig | None = None,
) -> Pipeline:
    """What the bundle of a checkpoint does with documents.

    Args:
        checkpoint: the model.
        tokenizer: its own.
        frequencies: of terms; where there is none, a document's own blocks say which are rare.
        options: how much of what.
        analyzer: finds the terms; none: the English one.

    Raises ExportError for a window that is too small.
    """
    window, overhead = min(checkpoint.window, LENGTHS[-1]), tokenizer.template.overhead
    asked = 0 if tokenizer.prompt is None else overhead + len(tokenizer.prompt.head(tokenizer.backend, "", "")) + INSTRUCTION_TOKENS
    query_tokens, wanted = min(QUERY_TOKENS, window // 4), options.passage_tokens + asked
    least, most = query_tokens + max(overhead, asked) + LEAST_TEXT, _longest(window, max(USUAL, wanted))
    if most < least:
        raise ExportError(
            f"{checkpoint.source}: its window of {window} tokens is too small for a query of {query_tokens} tokens and one "
            f"sentence, which need {least}"
        )
    budget = min(max(wanted, least), most)
    config = PipelineConfig.model_validate(
        {
            **_choosing(analyzer or AnalyzerConfig(), frequencies, options.joint),
            "packing": {
                "query_tokens": query_tokens,
                "budget": budget,
                "budget_range": (least, most),
                "grow": not options.joint,
            },
            "aggregator": {"name": "joint"} if options.joint else {"name": "max", "passages": options.passages},
            "activation": options.activation or checkpoint.activation(),
            "prompt": tokenizer.prompt,
        }
    )
    return Pipeline(config, tokenizer, frequencies)


def _choosing(analyzer: AnalyzerConfig, frequencies: DocumentFrequencies, joint: bool) -> dict[str, Any]:
    """The parts of the pipeline that choose blocks."""
    whole = "whole_sentences" if analyzer.name == "english" else "structure"
    return {
        "analyzer": analyzer,
        "segmenter": {"name": "cogltx"} if joint else {"name": whole, "block_tokens": SENTENCES},
        "selector": {"name": "bm25", "idf": "documents" if len(frequencies) else "blocks"},
    }


def _longest(window: int, wanted: int) -> int:
    """Tokens of the longest sequence, wanted so long: padded as batches are, it fits the window. 0 where no batch does."""
    longest = min(window, wanted)
    padded = min(length for length in LENGTHS if length >= longest)
    return longest if padded <= window else max((length for length in LENGTHS if length <= window), default=0)


def import_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """Write the checkpoint's tokenizer, and read it as the service does. Raises ExportError for one that is of no use."""
    checkpoint.save_tokenizer(path)
    try:
        tokenizer = Tokenizer(path, checkpoint.question.prompt if checkpoint.question else None)
    except ValueError as error:
        raise ExportError(f"{checkpoint.source}: {' '.join(str(error).replace(f'{path}: ', '').split())}") from None
    if tokenizer.vocabulary_size > checkpoint.model.vocabulary_size:
        raise ExportError(
            f"{checkpoint.source}: its tokenizer has {tokenizer.vocabulary_size} tokens, its model "
            f"{checkpoint.model.vocabulary_size}: they do not belong together; copy both again"
        )
    return tokenizer


def import_analyzer(name: str | None, tokenizer: Tokenizer) -> AnalyzerConfig:
    """The analyzer of that name, see `export.languages.CHOICES`; the tokenizer's usual one for none."""
    return named_analyzer(name) if name else usual_analyzer(tokenizer)


def import_frequencies(path: Path | None, analyzer: AnalyzerConfig | None = None) -> DocumentFrequencies:
    """The table at the path, or that of the collection there; for none, the general one, or an empty one.

    The general one counts stems in the English articles and meetings that the embedded model learned from: an analyzer other than
    the English one gets an empty table. Raises ExportError when there is none at the path.
    """
    analyzer = analyzer or AnalyzerConfig()
    try:
        if path is None and analyzer != AnalyzerConfig():
            return DocumentFrequencies(0, {})
        if path is None or not path.is_dir():
            return DocumentFrequencies.read(path or GENERAL)
        documents = Collection(path).documents.values()
        return DocumentFrequencies.count((f"{one.title}\n{one.text}" for one in documents), Analyzer(analyzer))
    except (OSError, ValueError) as error:
        raise ExportError(f"--frequencies {path}: {' '.join(str(error).split())}") from None
