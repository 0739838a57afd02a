"""The shapes on the wire: requests as pydantic models, answers as typed dictionaries.

The service's checks, /docs, the client and the tests all use them.
"""

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
NOTHING_STORED = "nothing_stored"  # the `type` of the error if every line of PUT /documents is wrong; `detail` lists them
INSTRUCTION_CHARS = 1000
MOST_EXPIRES_IN = 315_360_000  # seconds: ten years


NOT_HONOURED = "max_chunks_per_doc", "truncate"
"""Options that clients may send but that change nothing; a request with one gets a warning."""


def _whole(value: object) -> object:
    """The integer for a float like 5.0: JSON has only one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Natural = Annotated[int, Field(ge=0), BeforeValidator(_whole)]  # bounds inside, since outside they are not in the JSON schema
Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Priority = Annotated[int, Field(ge=0, le=999), BeforeValidator(_whole)]


def _flag(value: object) -> object:
    """The boolean for "true" and "false", which RAGFlow sends to Xinference."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(_flag)]


def _either(types: str) -> WrapValidator:
    """Replaces pydantic's errors, one for each type that a value may have, by a single one at the value's own place."""

    def checked(value: object, check: ValidatorFunctionWrapHandler) -> object:
        try:
            return check(value)
        except ValidationError:
            raise PydanticCustomError("either", f"Input should be {types}") from None

    return WrapValidator(checked)


MinScore = Annotated[Annotated[float, Field(ge=0, le=1)] | Literal["auto"], _either("a number from 0 to 1, or 'auto'")]
Ids = Annotated[list[Annotated[str | int, _either("a string or an integer")]], Field(fail_fast=True)]
FirstStageScores = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(fail_fast=True)]


class RelevantSpans(BaseModel):
    """Options of spans, in the form of Cohere's client; other fields change nothing."""

    model_config = ConfigDict(strict=True)

    mode: Literal["enabled", "disabled"] = Field(description="whether results name the spans that answer")
    threshold: float | None = Field(
        None, ge=0, le=1, description="the probability that a sentence must reach to be part of a span; 0.1 by default"
    )
    max_spans: Positive | None = Field(None, description="the most spans of a document that are shown, the best; all by default")


class Options(BaseModel):
    """The options of a native request, in addition to its query and documents; null means not given."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(
        None,
        description="the model to use; an unknown name means the default model, with a warning if several are served, or an error "
        "with `strict`",
    )
    top_n: Natural | None = Field(None, description="results to return, best first; 0 or null for all")
    return_documents: Flag | None = Field(None, description="return each result's document as {text, title?}")
    return_blocks: bool | None = Field(None, description="return the blocks that the model read, best first, with their offsets")
    raw_scores: bool | None = Field(None, description="scores on the logit scale instead of probabilities")
    max_tokens_per_doc: float | None = Field(
        None,
        description="upper bound on the tokens of a sequence for the model; clipped to the range that the model was measured at",
    )
    deadline_ms: float | None = Field(
        None,
        ge=0,
        le=86_400_000,
        description="milliseconds from the request's last byte to the answer: if time is short, documents get fewer tokens, or are "
        "ordered by their blocks alone, or keep the order given; meta.degraded and meta.warnings report that",
    )
    priority: Priority | None = Field(None, description="requests with a smaller number are scored first; 0 by default")
    rank_fields: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        None,
        max_length=64,
        description="for documents that are objects: the fields whose strings, numbers, booleans or lists of them, one on each "
        "line, form the text; `meta.body` is the field body of the object meta; a title stays the title",
    )
    strict: bool | None = Field(None, description="an unknown id or model is an error (422), instead of a warning")
    instruction: str | None = Field(
        None,
        max_length=INSTRUCTION_CHARS,
        description="the instruction for a model that answers in words, in place of its bundle's, or for an upstream; other models "
        "do not read it",
    )
    first_stage_scores: FirstStageScores | None = Field(
        None, description="for each document its score from the first stage, higher is better; `fusion` reads them"
    )
    fusion: Annotated[str | dict[str, Any], _either("a name, or an object with one")] | None = Field(
        None,
        description="orders by the model and the first stage together: mapfuse, linear or reciprocal_rank, or one of these with "
        "parameters, {name, ...}; by default the bundle's, if first_stage_scores are sent. relevance_score stays the model's",
    )
    max_chunks_per_doc: Any = Field(None, description="accepted, not honoured: every block of a document competes")
    truncate: Any = Field(None, description="accepted, not honoured: blocks are selected from the whole document")
    relevant_spans: RelevantSpans | None = Field(
        None,
        description="return the sentences, or runs of them, that answer the query, each with its probability (Cohere's contract)",
    )
    min_score: MinScore | None = Field(
        None,
        description='the probability that a result must reach, or "auto" for what the bundle recommends; results below it are left '
        "out and counted. Documents that the model could not score stay, if they have a text",
    )
    diversity: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how much a result is to differ from those before it: maximal marginal relevance, on the vectors of the best "
        "blocks, gives the order; scores stay as they are; 0 by default",
    )
    prune: bool | None = Field(
        None,
        description="return as `context` the parts of each result to pass on: its relevant spans with the headings above them and "
        "the sentences beside them, each sentence once",
    )
    max_context_tokens: Positive | None = Field(
        None, description="the most tokens of all contexts together; the best spans of all documents come first"
    )

    read_all: bool | None = Field(
        None, description="true: the model reads every document, also those that the pre-ranking would skip; any shape: X-Read-All"
    )
    second_look: bool | None = Field(
        None, description="false: the model does not read on in the best documents, so that the answer comes sooner"
    )


class Document(BaseModel):
    """A document as an object; without a text, the document stored under the id. A warning names other fields."""

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": True})

    text: str | None = Field(
        None,
        description="any Unicode text; offsets of blocks count its code points; by default the text stored under the id, and null "
        "without an id is an empty text",
    )
    title: str | None = Field(None, description="put before the blocks")
    id: str | int | None = Field(None, description="returned with the result")

    @model_validator(mode="after")
    def _something_to_read(self) -> Self:
        if self.text is None and self.id is None and "text" not in self.model_fields_set:
            raise ValueError("a document needs a text, or the id of a stored one")
        return self


class Candidates(BaseModel):
    """What every rerank request in the native form has."""

    query: str = Field(min_length=1, description="the query; cut, with a warning, if it is too long for the model")
    documents: list[str | Document | None] | str = Field(
        description="the candidates; a single text is a list of one, and null an empty text"
    )


class RerankRequest(Candidates, Options):
    """A native request, which the clients of Jina, Cohere, vLLM and Infinity can also send."""


class QueryOptions(BaseModel):
    """What a query of several has of its own, beside its text and its documents."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    document_ids: Ids | None = Field(None, description="ids of stored documents, in place of documents")
    candidates: Annotated[list[Natural], Field(fail_fast=True)] | None = Field(
        None, description="the places of its documents among those that the queries share; by default all of them"
    )
    first_stage_scores: FirstStageScores | None = Field(None, description="for each of its documents, as in the request")


class Query(QueryOptions):
    """A query of several."""

    query: str = Field(min_length=1, description="the query; cut, with a warning, if it is too long for the model")
    documents: list[str | Document | None] | str | None = Field(None, description="its own candidates, in place of the shared ones")


class QueriesOptions(Options):
    """The options of a request with several queries, which hold for each of them."""

    document_ids: Ids | None = Field(None, description="ids of stored documents, in place of documents")


class QueriesRequest(QueriesOptions):
    """Several queries in the native form; each is answered as a request of its own, and each document is prepared once."""

    queries: list[Query] = Field(description="the queries, of which one that cannot be answered gets an error of its own")
    documents: list[str | Document | None] | str | None = Field(None, description="the candidates of the queries without their own")


class VoyageOptions(Options):
    """The options of a request in Voyage's form."""

    top_n: Natural | None = Field(None, alias="top_k", description="results to return, best first; 0 or null for all")
    truncation: bool | None = Field(None, description="accepted, but ignored: blocks are selected from the whole document")


class VoyageRequest(Candidates, VoyageOptions):
    """A request in Voyage's form, which `top_k` or `truncation` selects; all other native options stay."""


class DocumentLine(BaseModel):
    """A line of PUT /documents; other fields are not kept, and a warning names them."""

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": True})

    id: str | int = Field(description=f'the name of the document in requests, 1 to {LONGEST_ID} characters; 7 and "7" are the same')
    text: str = Field(description="any Unicode text")
    title: str | None = Field(None, description="put before the blocks")
    expires_in: float | None = Field(
        None, gt=0, le=MOST_EXPIRES_IN, description="seconds until the service deletes it; by default the service's setting"
    )


class TeiOptions(BaseModel):
    """The options of a TEI request; nothing is truncated, so the options about truncation change nothing."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(None, description="the model to use; an unknown name means the default model")
    raw_scores: bool | None = Field(None, description="scores on the logit scale instead of probabilities")
    return_text: bool | None = Field(None, description="return each text")
    truncate: Any = Field(None, description="accepted, but ignored: blocks are selected from the whole text")
    truncation_direction: Any = Field(None, description="accepted, but ignored: blocks are selected from the whole text")


class TeiRequest(TeiOptions):
    """A request in the form of text-embeddings-inference; `texts` in place of `documents` selects this form."""

    query: str = Field(min_length=1, description="the query")
    texts: list[str | None] | str = Field(description="the candidates; a single text is a list of one, and null an empty text")


class ScoreOptions(BaseModel):
    """The options of a request for scores, as vLLM names them."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(None, description="the model to use; an unknown name means the default model")
    use_activation: bool | None = Field(None, description="false for scores on the logit scale instead of probabilities")


class ScoreRequest(ScoreOptions):
    """A request for scores in vLLM's form; the older names `text_1` and `text_2` mean the same."""

    queries: str | list[str] = Field(description="the query; a list has it once, or once for each document")
    documents: list[str | Document | None] | str = Field(description="the texts to score; a single text is a list of one")


class NimOptions(BaseModel):
    """The options of a request in NIM's form; nothing is truncated."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": True})

    model: str | None = Field(None, description="the model to use; an unknown name means the default model")
    truncate: Any = Field(None, description="accepted, but ignored: blocks are selected from the whole passage")


class NimText(BaseModel):
    """A query or a passage."""

    text: str


class NimRequest(NimOptions):
    """A request in the form of NVIDIA's NIM."""

    query: NimText = Field(description="the query")
    passages: list[NimText] = Field(description="the candidates")


class BlockAnswer(TypedDict):
    """A block of the document, ``text[start:end]`` in Unicode code points of the text as sent."""

    start: int
    end: int
    score: Annotated[
        float,
        Field(
            description="orders the document's blocks. If the model reads each block separately, the logit that the document would "
            "have if it were this block alone. If the model reads them as one text, the selector's score: lexical, of vectors, or "
            "the logit of the model that selects; blocks that such a model did not score come last, with -100, or its lowest logit "
            "if that is lower. Blocks of a second look follow all others, with the model's logits"
        ),
    ]


class SpanAnswer(TypedDict):
    """An answering span, ``text[start:end]`` in Unicode code points of the text as sent."""

    start: int
    end: int
    score: Annotated[float, Field(description="the probability that the span answers the query, 0 to 1: of its best sentence")]


class PartAnswer(TypedDict):
    """A part of a document, ``text[start:end]`` in Unicode code points."""

    start: int
    end: int


class ContextAnswer(TypedDict):
    """The part of a document to pass on."""

    text: Annotated[str, Field(description="its parts in document order; an ellipsis separates parts that are not adjacent")]
    tokens: Annotated[int, Field(description="tokens of the text, by the model's tokenizer")]
    parts: list[PartAnswer]


class ContextMeta(TypedDict):
    """What pruning saved."""

    tokens: Annotated[int, Field(description="tokens of all contexts")]
    tokens_of_documents: Annotated[int, Field(description="tokens of the results' documents")]
    saved: Annotated[int, Field(description="the difference")]
    copies: NotRequired[
        Annotated[int, Field(description="sentences that are left out, since a context has them or near copies; left out for none")]
    ]


class DocumentAnswer(TypedDict):
    """A returned document."""

    text: str
    title: NotRequired[str]


class Ranked(TypedDict):
    """One document's place. Results are ordered best first, equal scores in the order given; with a fusion, by `fused_score`."""

    index: Annotated[int, Field(description="the document's place in the request")]
    relevance_score: Annotated[
        float,
        Field(
            description="the probability that the document answers, 0 to 1, or a logit if the model's bundle says so; /info tells "
            "how well it holds across queries; a logit with raw_scores"
        ),
    ]
    fused_score: NotRequired[
        Annotated[
            float,
            Field(
                description="with a fusion, the value that orders the results; it compares documents of this request only, and has "
                "no fixed scale; left out for documents that the model has not scored, which come after the others"
            ),
        ]
    ]
    id: NotRequired[str | int]
    blocks: NotRequired[list[BlockAnswer]]
    relevant_spans: NotRequired[
        Annotated[list[SpanAnswer], Field(description="if requested, best first; left out if there are none")]
    ]
    context: NotRequired[
        Annotated[
            ContextAnswer, Field(description="with `prune`; left out if no span answers, or if other contexts have all of it")
        ]
    ]
    scored_by: NotRequired[
        Annotated[
            str,
            Field(
                description="left out for documents that the model has scored, which rank before all others. 'selector': ordered "
                "by its blocks alone, since the pre-ranking skipped it or time was short. 'order': kept in the order given, since "
                "it has no text or was not read, or was not scored and its blocks are no evidence"
            ),
        ]
    ]
    selected_by: NotRequired[
        Annotated[
            str,
            Field(
                description="what chose the blocks that were read: 'evidence', the selector's scores; 'model', which scored single "
                "blocks; 'position', little more than their place, since nothing stood out for this query. Left out if every block "
                "was read, or none"
            ),
        ]
    ]


class Result(Ranked):
    """One document's place, with the document if requested."""

    document: NotRequired[DocumentAnswer]


class VoyageResult(Ranked):
    """One document's place in Voyage's form."""

    document: NotRequired[str]


class PairScore(TypedDict):
    """The score of one text in vLLM's form, in the order of the request."""

    index: int
    object: str
    score: Annotated[float, Field(description="the probability that the text answers; a logit with use_activation false")]


class PassageLogit(TypedDict):
    """One passage's place in NIM's form: best first, all of them."""

    index: int
    logit: float


class Usage(TypedDict):
    """Tokens that the model reads for the answer, without padding; if it also selects the blocks, those of both rounds."""

    prompt_tokens: int
    total_tokens: int


class SecondLookMeta(TypedDict):
    """What the model read on in the best documents."""

    documents: int
    tokens: Annotated[int, Field(description="without padding; they count in usage, too")]


class Meta(TypedDict):
    """About this answer."""

    degraded: Annotated[
        bool, Field(description="whether the ranking is cheaper than usual: time was short, or an upstream or the store failed")
    ]
    warnings: list[str]
    timings_ms: Annotated[
        dict[str, float],
        Field(
            description="parse, prepare, queue, model, and the total, in milliseconds; if the model also selects the blocks, "
            "`select` is all of that round, waiting included; if an upstream scores, `upstream` takes the place of `model`; "
            "`second_look` is all of the second look"
        ),
    ]
    tokens_per_document: Annotated[int, Field(description="tokens a sequence could have, query and specials included")]
    skipped: NotRequired[
        Annotated[int, Field(description="documents that the pre-ranking skipped: the model has not read them; left out for none")]
    ]
    second_look: NotRequired[Annotated[SecondLookMeta, Field(description="left out if the model has not read on")]]
    min_score: NotRequired[Annotated[float, Field(description="the least score of a result: `min_score`, or what `auto` means")]]
    below_min_score: NotRequired[
        Annotated[int, Field(description="documents whose score does not reach the given min_score, without skipped documents")]
    ]
    best_below_min_score: NotRequired[
        Annotated[float, Field(description="the best score among them, as a probability; left out if there are none")]
    ]
    context: NotRequired[Annotated[ContextMeta, Field(description="with `prune`")]]
    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]


class Frame(TypedDict):
    """What all answers but TEI's have."""

    id: str
    object: str
    created: int
    model: str
    usage: Usage
    meta: Meta


class RerankAnswer(Frame):
    """The native answer."""

    results: list[Result]


class VoyageAnswer(Frame):
    """The answer in Voyage's form."""

    data: list[VoyageResult]


class ScoreAnswer(Frame):
    """The answer with scores, in vLLM's form."""

    data: list[PairScore]


class NimAnswer(Frame):
    """The answer in NIM's form."""

    rankings: list[PassageLogit]


class ErrorBody(TypedDict):
    """An error in the forms that the clients of Jina (`detail`), Cohere (`message`) and vLLM (`error`) read."""

    detail: str | list[dict[str, Any]]
    message: str
    error: dict[str, Any]
    error_type: NotRequired[
        Annotated[str, Field(description="TEI's error type, if the request was refused without reading it: 401, 403, 429 and 503")]
    ]


class QueriesAnswer(TypedDict):
    """The answers to several queries, in their order."""

    answers: Annotated[
        list[RerankAnswer | ErrorBody],
        Field(description="of each query, as of a request of its own; an error for one that has none"),
    ]


class WrongLine(TypedDict):
    """A line of PUT /documents that is not stored, and why."""

    line: int
    id: NotRequired[str | int]
    message: str


class StoredAnswer(TypedDict):
    """The answer to PUT /documents. The documents that it counts in `stored` are in the store."""

    stored: int
    failed: int
    errors: Annotated[list[WrongLine], Field(description="the first 20 lines that are not stored; lines count from 1")]
    warnings: list[str]


class StoredText(TypedDict):
    """A stored document."""

    id: str
    title: NotRequired[str]
    text: str
    blocks: int
    tokens: int
    expires: NotRequired[Annotated[float, Field(description="when the service deletes it, in seconds since 1970")]]


class Deletion(TypedDict):
    """The answer to DELETE /documents/{id}."""

    id: str
    deleted: Annotated[bool, Field(description="false for an unknown id, which is no error")]


class ReloadAnswer(TypedDict):
    """The answer to POST /admin/reload."""

    models: Annotated[list[str], Field(description="names of the models that are now served, the default model first")]
    loaded: Annotated[list[str], Field(description="the models that are new or whose bundle has changed")]
    removed: Annotated[list[str], Field(description="names of models that are no longer served")]
    keys: Annotated[list[str], Field(description="names of the API keys that are now valid")]
    seconds: float


class TeiResult(TypedDict):
    """One text's place in TEI's bare list: best first, all of them."""

    index: int
    score: float
    text: NotRequired[str]


class TeiErrorBody(TypedDict):
    """TEI's error; `detail` and `message` as in the native error."""

    error: str
    error_type: str
    message: str
    detail: str | list[dict[str, Any]]


LINES_EXAMPLE = """{"id": "danube", "title": "Danube", "text": "The Danube flows through Vienna, Bratislava and Budapest."}
{"id": "thames", "text": "The Thames flows through London.", "expires_in": 86400}
"""
