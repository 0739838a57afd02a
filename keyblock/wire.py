"""The shapes on the wire: requests as pydantic models, answers as typed dictionaries.

The service's checks, /docs, the client and the tests read them here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict  # pydantic reads typing's own from Python 3.12 on only

LONGEST_ID = 512  # characters
NOTHING_STORED = "nothing_stored"  # the `type` of the error where every line of PUT /documents is wrong; `detail` has them
INSTRUCTION_CHARS = 1000
MOST_EXPIRES_IN = 315_360_000  # seconds: ten years


@dataclass(frozen=True)
class NotHonoured:
    """Marks an option that is accepted from clients and changes nothing; naming it in a request brings a warning."""


Ignored = Annotated[Any, NotHonoured()]


def _whole(value: object) -> object:
    """JSON knows one kind of number: 5.0 is the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


def _score(value: object, check: ValidatorFunctionWrapHandler) -> object:
    """One complaint, where pydantic has one for each of the kinds that a score may be."""
    try:
        return check(value)
    except ValidationError:
        raise PydanticCustomError("score", "Input should be a number from 0 to 1, or 'auto'") from None


MinScore = Annotated[Annotated[float, Field(ge=0, le=1)] | Literal["auto"], WrapValidator(_score)]


class RelevantSpans(BaseModel):
    """What is asked of spans, as Cohere's client sends it; other fields change nothing."""

    model_config = ConfigDict(strict=True)

    mode: Literal["enabled", "disabled"] = Field(description="whether results name the spans that answer")
    threshold: float | None = Field(
        None, ge=0, le=1, description="the probability that a sentence must reach to be part of a span; 0.1 when left out"
    )
    max_spans: Whole | None = Field(None, ge=1, description="spans of a document, the best; all when left out")


class Options(BaseModel):
    """What a native request may ask for beside its query and documents; null means not given."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(
        None,
        description="the model that is to answer; any other name is the default model's, with a warning where several are served, "
        "or an error with `strict`",
    )
    top_n: Whole | None = Field(None, ge=0, description="results to return, best first; 0 or null for all")
    return_documents: bool | None = Field(None, description="send each result's document back as {text, title?}")
    return_blocks: bool | None = Field(
        None, description="name the blocks that were fed to the model, best first, with their offsets"
    )
    raw_scores: bool | None = Field(None, description="scores on the logit scale instead of probabilities")
    max_tokens_per_doc: float | None = Field(
        None,
        description="upper bound on the tokens of a sequence fed to the model; kept inside the range it was measured for",
    )
    deadline_ms: float | None = Field(
        None,
        ge=0,
        le=86_400_000,
        description="milliseconds from the request's last byte to the answer: when time is short, documents get fewer tokens, "
        "or are ordered by their blocks alone, or keep the order given; meta.degraded and meta.warnings say so",
    )
    priority: Whole | None = Field(None, ge=0, le=999, description="requests of a smaller number are scored first; 0 when left out")
    rank_fields: list[str] | None = Field(
        None,
        max_length=64,
        description="of documents that are objects: the fields whose strings, a line each, are the text; a title stays the title",
    )
    escalation_tokens: Whole | None = Field(
        None,
        ge=0,
        description="tokens that the model may be asked for, beside, to choose blocks where none stands out; 0 for none; "
        "never more than the bundle's and the service's own bounds",
    )
    strict: bool | None = Field(None, description="an unknown id or model is an error (422), instead of a warning")
    instruction: str | None = Field(
        None,
        max_length=INSTRUCTION_CHARS,
        description="what a model that answers in words is told to do, in place of what its bundle says; others do not read it",
    )
    first_stage_scores: list[Annotated[float, Field(allow_inf_nan=False)]] | None = Field(
        None, description="of each document the score that the search before gave it, higher is better: what `fusion` reads"
    )
    fusion: str | dict[str, Any] | None = Field(
        None,
        description="orders by the model and the first stage together: mapfuse, linear or reciprocal_rank, or one of these with "
        "parameters, {name, ...}; left out, the bundle's own where first_stage_scores are sent. relevance_score stays the model's",
    )
    max_chunks_per_doc: Ignored = Field(None, description="accepted, not honoured: every block of a document competes")
    truncate: Ignored = Field(None, description="accepted, not honoured: blocks are selected from the whole document")
    relevant_spans: RelevantSpans | None = Field(
        None,
        description="name the sentences, or runs of them, that answer the query, each with its probability (Cohere's contract)",
    )
    min_score: MinScore | None = Field(
        None,
        description='the probability that a result must reach, or "auto" for what the bundle recommends; those below are left out '
        "and counted. Documents that the model has not scored stay, if they have a text",
    )
    prune: bool | None = Field(
        None, description="send of each result what to pass on: its relevant spans with the headings above them, as `context`"
    )
    max_context_tokens: Whole | None = Field(
        None, ge=1, description="tokens of all contexts together at most; where there is room, spans take in neighbouring sentences"
    )

    @classmethod
    def not_honoured(cls) -> list[str]:
        """The names of the options that change nothing."""
        return [name for name, field in cls.model_fields.items() if any(isinstance(m, NotHonoured) for m in field.metadata)]


class Document(BaseModel):
    """A document as an object, or, without a text, the one that is stored under the id; other fields are named in a warning."""

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": True})

    text: str | None = Field(
        None, description="any Unicode text; offsets of blocks count its code points; left out, the text stored under the id"
    )
    title: str | None = Field(None, description="put in front of the blocks")
    id: str | int | None = Field(None, description="sent back with the result")

    @model_validator(mode="after")
    def _something_to_read(self) -> Self:
        if self.text is None and self.id is None:
            raise ValueError("a document needs a text, or the id of a stored one")
        return self


class RerankRequest(Options):
    """A native request, which Jina's, Cohere's, vLLM's and Infinity's clients speak too."""

    query: str = Field(min_length=1, description="what is looked for; cut with a warning when it is longer than the model takes")
    documents: Annotated[list[str | Document], Field(min_length=1)] | str = Field(
        description="the candidates; a single text is a list of one"
    )


class DocumentLine(BaseModel):
    """A line of PUT /documents; other fields are named in a warning and not kept."""

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": True})

    id: str | int = Field(
        description=f'what the document is called in requests, 1 to {LONGEST_ID} characters; 7 and "7" are the same'
    )
    text: str = Field(description="any Unicode text")
    title: str | None = Field(None, description="put in front of the blocks")
    expires_in: float | None = Field(
        None, gt=0, le=MOST_EXPIRES_IN, description="seconds until it is forgotten; left out, what the service is set to"
    )


class TeiOptions(BaseModel):
    """What a TEI request may ask for; truncation never happens, so those options have nothing to change."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(None, description="the model that is to answer; any other name is the default model's")
    raw_scores: bool | None = Field(None, description="scores on the logit scale instead of probabilities")
    return_text: bool | None = Field(None, description="send each text back")
    truncate: Any = Field(None, description="accepted; blocks are selected from the whole text")
    truncation_direction: Any = Field(None, description="accepted; blocks are selected from the whole text")


class TeiRequest(TeiOptions):
    """A request as text-embeddings-inference takes it; `texts` in place of `documents` chooses this shape."""

    query: str = Field(min_length=1, description="what is looked for")
    texts: Annotated[list[str], Field(min_length=1)] | str = Field(description="the candidates; a single text is a list of one")


class BlockAnswer(TypedDict):
    """A block of the document, ``text[start:end]`` in Unicode code points of the text as sent."""

    start: int
    end: int
    score: Annotated[
        float,
        Field(
            description="orders the document's blocks. Where the model reads each block for itself, the logit that the document "
            "would have if it were this block alone. Where it reads them as one text, the selector's score: lexical, of vectors, "
            "or the logit of the model that selects; then blocks that it was not asked about come last, with -100, or the lowest "
            "logit if lower"
        ),
    ]


class SpanAnswer(TypedDict):
    """A span that answers, ``text[start:end]`` in Unicode code points of the text as sent."""

    start: int
    end: int
    score: Annotated[float, Field(description="the probability that the span answers the query, 0 to 1: of its best sentence")]


class PartAnswer(TypedDict):
    """A part of a document, ``text[start:end]`` in Unicode code points."""

    start: int
    end: int


class ContextAnswer(TypedDict):
    """What to pass on of a document."""

    text: Annotated[str, Field(description="its parts in document order; an ellipsis stands between parts that do not touch")]
    tokens: Annotated[int, Field(description="of the model's tokenizer")]
    parts: list[PartAnswer]


class ContextMeta(TypedDict):
    """What pruning saved."""

    tokens: Annotated[int, Field(description="of all contexts")]
    tokens_of_documents: Annotated[int, Field(description="that the documents of the results have")]
    saved: Annotated[int, Field(description="the difference")]


class DocumentAnswer(TypedDict):
    """A document sent back."""

    text: str
    title: NotRequired[str]


class Result(TypedDict):
    """One document's place; results come best first, equal scores in the order given; with a fusion, by `fused_score`."""

    index: Annotated[int, Field(description="the document's place in the request")]
    relevance_score: Annotated[
        float,
        Field(
            description="the probability that the document answers, 0 to 1, or a logit where the model's bundle says so; /info "
            "says how far it holds across queries; a logit with raw_scores"
        ),
    ]
    fused_score: NotRequired[
        Annotated[
            float,
            Field(
                description="with a fusion, what results are ordered by: of this request's documents only, on no scale; left out "
                "for documents that the model has not scored, which come after the others"
            ),
        ]
    ]
    id: NotRequired[str | int]
    document: NotRequired[DocumentAnswer]
    blocks: NotRequired[list[BlockAnswer]]
    relevant_spans: NotRequired[
        Annotated[list[SpanAnswer], Field(description="where they were asked for, best first; left out where there is none")]
    ]
    context: NotRequired[Annotated[ContextAnswer, Field(description="with `prune`; left out where no span answers")]]
    scored_by: NotRequired[
        Annotated[
            str,
            Field(
                description="where it is not the model, whose documents rank before all others: 'selector' for one ordered by "
                "its blocks alone, since they promise too little or time was short, 'order' for one in the order given: without "
                "text or not read, or not scored and without a block that speaks for it"
            ),
        ]
    ]
    selected_by: NotRequired[
        Annotated[
            str,
            Field(
                description="what chose the blocks that were read: 'evidence', the selector's scores; 'model', asked about single "
                "blocks; 'position', their place or little more, since nothing stood out for this query. Left out where every "
                "block was read, or none"
            ),
        ]
    ]


class Usage(TypedDict):
    """Tokens that the model reads for the answer, padding not counted; where it selects the blocks too, those of both rounds."""

    prompt_tokens: int
    total_tokens: int


class EscalationAnswer(TypedDict):
    """What asking the model about documents in doubt came to."""

    documents: Annotated[int, Field(description="whose blocks the model was asked about")]
    tokens: Annotated[int, Field(description="that this took, which usage counts too")]
    left: Annotated[int, Field(description="documents in doubt that it was not asked about, for want of tokens or time")]


class Meta(TypedDict):
    """About this answer."""

    degraded: Annotated[bool, Field(description="whether a cheaper ranking than the usual was given")]
    warnings: list[str]
    timings_ms: Annotated[
        dict[str, float],
        Field(
            description="parse, prepare, queue, model, and the total, in milliseconds; where the model selects the blocks too, "
            "`select` is the whole of that round, waiting included; where an upstream scores, `upstream` takes the place of `model`"
        ),
    ]
    tokens_per_document: Annotated[int, Field(description="tokens a sequence could have, query and specials included")]
    escalation: NotRequired[Annotated[EscalationAnswer, Field(description="where the bundle describes it")]]
    spared: NotRequired[
        Annotated[int, Field(description="documents that promise too little for the model to read them; left out for none")]
    ]
    below_min_score: NotRequired[
        Annotated[int, Field(description="documents whose score does not reach the min_score given; those spared not counted")]
    ]
    context: NotRequired[Annotated[ContextMeta, Field(description="with `prune`")]]
    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]


class RerankAnswer(TypedDict):
    """The native answer."""

    id: str
    object: str
    created: int
    model: str
    results: list[Result]
    usage: Usage
    meta: Meta


class WrongLine(TypedDict):
    """A line of PUT /documents that is not stored, and why."""

    line: int
    id: NotRequired[str | int]
    message: str


class StoredAnswer(TypedDict):
    """The answer to PUT /documents: what it counts as stored is stored."""

    stored: int
    failed: int
    errors: Annotated[list[WrongLine], Field(description="the first 20 of the lines that are not stored; the first is line 1")]
    warnings: list[str]


class StoredText(TypedDict):
    """A stored document."""

    id: str
    title: NotRequired[str]
    text: str
    blocks: int
    tokens: int
    expires: NotRequired[Annotated[float, Field(description="when it is forgotten, in seconds since 1970")]]


class Deletion(TypedDict):
    """The answer to DELETE /documents/{id}."""

    id: str
    deleted: Annotated[bool, Field(description="false for an id that was not there, which is no error")]


class ReloadAnswer(TypedDict):
    """The answer to POST /admin/reload."""

    models: Annotated[list[str], Field(description="names of the models that are served now, the default one first")]
    loaded: Annotated[list[str], Field(description="of these, those that are new or whose bundle has changed")]
    removed: Annotated[list[str], Field(description="names that are not served any more")]
    keys: Annotated[list[str], Field(description="names of the API keys that are in force now")]
    seconds: float


class TeiResult(TypedDict):
    """One text's place in TEI's bare list: best first, all of them."""

    index: int
    score: float
    text: NotRequired[str]


class ErrorBody(TypedDict):
    """What Jina's (`detail`), Cohere's (`message`) and vLLM's (`error`) clients each look for."""

    detail: str | list[dict[str, Any]]
    message: str
    error: dict[str, Any]
    error_type: NotRequired[
        Annotated[str, Field(description="TEI's word, where the request was refused unread: 401, 403, 429 and 503")]
    ]


class TeiErrorBody(TypedDict):
    """TEI's error; `detail` and `message` as in the native one."""

    error: str
    error_type: str
    message: str
    detail: str | list[dict[str, Any]]


LINES_EXAMPLE = """{"id": "danube", "title": "Danube", "text": "The Danube flows through Vienna, Bratislava and Budapest."}
{"id": "thames", "text": "The Thames flows through London.", "expires_in": 86400}
"""
