"""The default pipeline of an imported model: passages like those of its training.

An imported model was never trained on joined blocks. It gets the best blocks of whole sentences, each grown by whole neighbours to
a passage of the length it is used to, one sequence each, and the best score wins (MaxP, Dai and Callan 2019).
"""

from pathlib import Path
from typing import Any

from export import ExportError
from export.checkpoint import Checkpoint
from export.languages import default_analyzer, named_analyzer
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
QUERY_TOKENS = 64  # the most tokens of a query
SENTENCES = 63  # the most tokens of a block of whole sentences
LEAST_TEXT = 32  # the least tokens beside the longest query: one sentence
DEFAULT_WINDOW = 512  # tokens: a longer window is used only for longer passages


def import_pipeline(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    frequencies: DocumentFrequencies,
    options: ImportOptions,
    analyzer: AnalyzerConfig | None = None,
) -> Pipeline:
    """The pipeline of a checkpoint's bundle.

    Args:
        checkpoint: the model.
        tokenizer: the model's tokenizer.
        frequencies: document frequencies of terms; if empty, a document's own blocks decide which terms are rare.
        options: how many tokens and passages.
        analyzer: finds the terms; none: the English one.

    Raises ExportError for a window that is too small.
    """
    window, overhead = min(checkpoint.window, LENGTHS[-1]), tokenizer.template.overhead
    prompt = (
        0 if tokenizer.prompt is None else overhead + len(tokenizer.prompt.head(tokenizer.backend, "", "")) + INSTRUCTION_TOKENS
    )
    query_tokens, wanted = min(QUERY_TOKENS, window // 4), options.passage_tokens + prompt
    least, most = query_tokens + max(overhead, prompt) + LEAST_TEXT, _longest(window, max(DEFAULT_WINDOW, wanted))
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
    """The most tokens of a sequence, at most `wanted`, that fits the window when padded as batches are; 0 if no batch fits."""
    longest = min(window, wanted)
    padded = min(length for length in LENGTHS if length >= longest)
    return longest if padded <= window else max((length for length in LENGTHS if length <= window), default=0)


def import_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """Write the checkpoint's tokenizer, and read it as the service does. Raises ExportError for an unusable tokenizer."""
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
    """The analyzer of that name, see `export.languages.CHOICES`; without a name, the default for the tokenizer."""
    return named_analyzer(name) if name else default_analyzer(tokenizer)


def import_frequencies(path: Path | None, analyzer: AnalyzerConfig | None = None) -> DocumentFrequencies:
    """The table at the path, or the counts of the collection there; without a path, the general table, or an empty one.

    The general table counts stems in the English articles and meetings that the embedded model learned from: an analyzer other than
    the English one gets an empty table. Raises ExportError if the path holds neither.
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
