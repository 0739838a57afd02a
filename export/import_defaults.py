"""What keyblock-import reads from a checkpoint's own files, and takes for granted where they do not say it."""

from pathlib import Path
from typing import Any

from export import ExportError
from export.checkpoint import Checkpoint
from export.options import CHOICES, ImportOptions
from keyblock.bundle import FREQUENCIES_FILE
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.preparation import INSTRUCTION_TOKENS
from keyblock.runtime.batching import LENGTHS
from keyblock.text.analyzer import Analyzer, AnalyzerConfig, DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from training.data.collection import Collection

ENGLISH = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act "
    "towards one another in a spirit of brotherhood."
)
OTHERS = (
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen "
    "einander im Geist der Brüderlichkeit begegnen.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia, deben "
    "comportarse fraternalmente los unos con los otros.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в "
    "отношении друг друга в духе братства.",
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح الإخاء.",
    "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
)
MOST = 1.5  # times the tokens of the English text: MiniLM's English tokenizer needs at least 1.8 times


def import_analyzer(name: str | None, tokenizer: Tokenizer) -> AnalyzerConfig:
    """The analyzer named by one of CHOICES; without a name, English if the tokenizer is made for English alone, else universal."""
    if name is not None:
        return AnalyzerConfig.model_validate({"name": name} if name in CHOICES[:2] else {"language": name})
    english, *translations = tokenizer.encode([ENGLISH, *OTHERS])
    unknown = {tokenizer.backend.token_to_id(name) for name in ("[UNK]", "<unk>")}
    least = min((len(one.ids) for one in translations if not unknown & set(one.ids)), default=0)
    multilingual = 0 < least <= MOST * len(english.ids)
    return AnalyzerConfig(name="universal") if multilingual else AnalyzerConfig()


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
    analyzer: AnalyzerConfig,
) -> Pipeline:
    """The pipeline of a checkpoint's bundle.

    Args:
        checkpoint: the model.
        tokenizer: the model's tokenizer.
        frequencies: document frequencies of terms; if empty, a document's own blocks decide which terms are rare.
        options: how many tokens and passages.
        analyzer: finds the terms.

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
            **_choosing(analyzer, frequencies, options.joint),
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
    checkpoint.tokenizer.backend_tokenizer.save(str(path))  # in transformers' form
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


def import_frequencies(path: Path | None, analyzer: AnalyzerConfig) -> DocumentFrequencies:
    """The table at the path, or the counts of the collection there; without a path, the general table, or an empty one.

    The general table counts stems in the English articles and meetings that the embedded model learned from: an analyzer other than
    the English one gets an empty table. Raises ExportError if the path holds neither.
    """
    try:
        if path is None and analyzer != AnalyzerConfig():
            return DocumentFrequencies(0, {})
        if path is None or not path.is_dir():
            return DocumentFrequencies.read(path or GENERAL)
        documents = Collection(path).documents.values()
        return DocumentFrequencies.count((f"{one.title}\n{one.text}" for one in documents), Analyzer(analyzer))
    except (OSError, ValueError) as error:
        raise ExportError(f"--frequencies {path}: {' '.join(str(error).split())}") from None
