"""The server's configuration: one frozen value, built once from flags and the environment.

The only reader of the environment. Always: an unknown `TANE_` variable is an error, and each default is
written here and nowhere else.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from model.loading.hf_reference import DEFAULT_ENDPOINT, PUBLIC_HUB, HubAccess
from service.option import PREFIX, Option

CLIENT_VARIABLES = frozenset({"TANE_API_KEY"})
"""With the prefix, but for the commands that call servers."""
OTLP_PREFIX = "OTEL_EXPORTER_OTLP_"
VARIANT = re.compile(r"([A-Za-z0-9._-]{1,64})=(.+)", re.DOTALL)
TOKEN = re.compile(r"[!-~]+")
ORIGIN = re.compile(r"\*|https?://[a-z0-9.-]+(:[0-9]+)?|https?://\[[0-9a-f:]+\](:[0-9]+)?")
"""As browsers write one: in lower case, without a path."""
HOST = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


class SettingsError(Exception):
    """Options that cannot be used: one line for each, naming the option and what is allowed."""

    def __init__(self, *problems: str, names: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.names = tuple(names)
        """The options or variables, in the same order."""


def _separate(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _written_as(form: re.Pattern[str]) -> AfterValidator:
    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError("it has another form")
        return value

    return AfterValidator(check)


def _check_names(values: tuple[str, ...]) -> tuple[str, ...]:
    if len({value.partition("=")[0] for value in values}) < len(values):
        raise ValueError("a name stands twice")
    return values


Origins = Annotated[tuple[Annotated[str, _written_as(ORIGIN)], ...], BeforeValidator(_separate)]
"""In the environment they are separated by spaces, and so are hosts and variants."""
Hosts = Annotated[tuple[Annotated[str, _written_as(HOST)], ...], BeforeValidator(_separate)]
Variants = Annotated[
    tuple[Annotated[str, _written_as(VARIANT)], ...],
    BeforeValidator(_separate),
    AfterValidator(_check_names),
]
REPEATED: Mapping[str, tuple[str, str]] = {
    "variant": ("NAME=PATH", "NAME=PATH, each NAME once and of 1 to 64 letters, digits, '.', '_' and '-'"),
    "cors_origin": ("ORIGIN", "* or like https://example.org"),
    "allowed_host": ("NAME", "a name or an address as in a URL, without a port; *.NAME: those below it; *: every one"),
}
"""Of options that may be given several times: what stands for a value, and what it may be."""


class Settings(BaseModel):
    """Options of `tane serve`. Each is also an environment variable: `--kv-cache-bytes` is TANE_KV_CACHE_BYTES."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    keys_file: str | None = Field(
        default=None,
        description="File of the API keys that callers may present, one a line; blank lines and lines that begin with "
        "# are skipped. Without it anyone may call.",
    )
    insecure: bool = Field(
        default=False, description="Serve other machines without keys, as --host says, although anyone may call then."
    )
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="A second port, for /metrics, /livez and /readyz, without a key."
    )
    model: str | None = Field(
        default=None,
        description="A GGUF file, a folder, or a name that `tane models` lists or `tane pull` takes; without it the "
        "default model. What has a name is pulled when missing.",
    )
    variant: Variants = Field(
        default=(),
        description="A model to serve beside the main one under this name, which requests choose as `model`: what "
        "--model may be. It has its own engine, sessions and cache; may be given several times.",
    )
    cache_folder: str | None = Field(
        default=None, description="Where what is pulled is kept; default: tane in the user's cache folder."
    )
    draft: str | None = Field(
        default=None,
        description="A smaller model with the same vocabulary to guess tokens ahead for the main one: what --model "
        "may be, or the name of a variant.",
    )
    draft_cache_bytes: int = Field(
        default=1 << 28, ge=1 << 20, description="Memory for the draft model's cached keys and values."
    )
    engine: Literal["auto", "native", "torch"] = Field(
        default="auto",
        description="Op set: native gives the same bits always; torch computes and caches in float32. auto: native.",
    )
    isa: Literal["auto", "scalar", "avx2", "avx512"] = Field(
        default="auto", description="Instruction set of the native op set; bits do not depend on it. auto: the widest."
    )
    kv_type: Literal["int8", "float16"] = Field(
        default="int8", description="How the native op set caches keys and values."
    )
    weights: Literal["int8", "int4"] = Field(
        default="int8", description="Form in which the native op set loads weights that it cannot keep as stored."
    )
    threads: int | None = Field(default=None, ge=1, description="Threads for arithmetic; default: the usable cores.")
    kv_cache_bytes: int = Field(
        default=1 << 30, ge=1 << 20, description="Memory for cached keys and values, for each model."
    )
    max_queue_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Most tokens that unfinished requests of a model may reserve together; default: eight times its "
        "cache.",
    )
    max_sessions: int = Field(
        default=1024,
        ge=1,
        description="Most sessions of a model and a key; past it the one longest unused is forgotten.",
    )
    session_ttl_s: float = Field(
        default=3600.0, gt=0, description="Seconds after which an unused session is forgotten."
    )
    key_requests: int | None = Field(
        default=None, ge=1, description="Most unfinished requests of a key, over all models; more are refused with 429."
    )
    key_tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of prompts and texts that a key may use a minute, over all models; what a request may come "
        "to use is set aside for it, and more is refused with 429.",
    )
    key_cache_share: float | None = Field(
        default=None, gt=0, le=1, description="Part of a model's cache that a key may hold; more is refused with 429."
    )
    cors_origin: Origins = Field(
        default=(), description="Origin whose pages may call from a browser; may be given several times. *: every one."
    )
    allowed_host: Hosts = Field(
        default=(),
        description="Name by which the server may be called, beside localhost and --host; may be given several times. "
        "*.NAME: those below it; *: every one. Without it any name will do, but where no keys are asked for and only "
        "this machine is served.",
    )
    max_body_bytes: int = Field(default=2 << 20, ge=1024, le=16 << 20, description="Largest request body.")
    drain_s: float = Field(default=30.0, ge=0, description="Seconds that running requests get to finish after SIGTERM.")
    lame_duck_s: float = Field(
        default=0.0, ge=0, description="Seconds after SIGTERM that the server says it is not ready, even if none run."
    )
    max_connections: int = Field(
        default=2048, ge=1, description="Most open connections; one more is answered with 503 and closed."
    )
    keep_alive_s: float = Field(
        default=15.0, gt=0, description="Seconds of silence after which a stream gets a comment line."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="Address of an OpenTelemetry collector, like http://127.0.0.1:4318, that is told of each request "
        "when it has ended: ids, counts and times. OTEL_EXPORTER_OTLP_ENDPOINT means the same. Needs tane[tracing].",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least serious lines logged."
    )
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto", description="Form of log lines. auto: text on a terminal, else JSON, an object a line."
    )

    _hub: HubAccess = PrivateAttr(default=PUBLIC_HUB)
    _opentelemetry: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def models_folder(self) -> Path | None:
        """Where what is pulled is kept, when that is not the usual place."""
        return None if self.cache_folder is None else Path(self.cache_folder)

    @property
    def hub(self) -> HubAccess:
        """Where models of the Hugging Face hub are pulled from; no part of what is shown or compared as an option."""
        return self._hub

    @property
    def opentelemetry(self) -> Mapping[str, str]:
        """Variables that other programs which export traces read too; no part of what is shown as an option."""
        return self._opentelemetry

    @property
    def variants(self) -> dict[str, str]:
        """What each model beside the main one is, by the name that it is served under."""
        return {name: model for name, _, model in (value.partition("=") for value in self.variant)}

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Every option by its name, in the order of their definition."""
        return {name: _option(name, field) for name, field in cls.model_fields.items()}

    @classmethod
    def from_environment(cls, flags: Mapping[str, Any]) -> Self:
        """`load` with this process's environment."""
        return cls.load(os.environ, flags)

    @classmethod
    def load(cls, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Self:
        """Flags that were given win over the environment. Raises SettingsError naming each bad option."""
        own = {
            name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in CLIENT_VARIABLES
        }
        named = {name[len(PREFIX) :].lower(): value for name, value in own.items()}
        given = {name: value for name, value in flags.items() if value not in (None, ())}
        if user_cache := environ.get("XDG_CACHE_HOME"):
            named.setdefault("cache_folder", str(Path(user_cache, "tane")))
        try:
            settings = cls.model_validate(named | given)
        except ValidationError as error:
            names = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
            problems = [cls._problem(name, name in given) for name in names]
            raise SettingsError(*problems, names=tuple(names)) from None
        settings._hub = _hub_access(environ)
        settings._opentelemetry = {name: value for name, value in environ.items() if name.startswith(OTLP_PREFIX)}
        return settings

    @classmethod
    def _problem(cls, name: str, is_flag: bool) -> str:
        option = cls.options().get(name)
        if option is None:
            near = difflib.get_close_matches(name, cls.model_fields, 1)
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            return f"{PREFIX}{name.upper()} is no option{hint}"
        return f"{option.flag if is_flag else option.variable} must be {option.allowed}"


def _hub_access(environ: Mapping[str, str]) -> HubAccess:
    """From the variables that other programs of the hub read too. Raises SettingsError, which shows no token."""
    token = environ.get("HF_TOKEN", "").strip()
    if token and not TOKEN.fullmatch(token):
        problem = "HF_TOKEN must be a token of the hub: printable ASCII characters without spaces"
        raise SettingsError(problem, names=("HF_TOKEN",))
    return HubAccess(environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT, token or None)


_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
_NOUNS = {int: "a whole number", float: "a number", str: "text"}


def _option(name: str, field: FieldInfo) -> Option:
    kind: Any = field.annotation
    if get_origin(kind) is tuple:
        metavar, allowed = REPEATED[name]
        return Option(name, field.description or "", allowed, field.default, metavar, True)
    if kind is bool:
        return Option(name, field.description or "", "true or false", field.default, "", is_switch=True)
    if isinstance(kind, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    allowed = f"one of {', '.join(choices)}" if choices else _allowed(kind, field)
    metavar = "|".join(choices) or _METAVARS[kind]
    return Option(name, field.description or "", allowed, field.default, metavar)


def _allowed(kind: Any, field: FieldInfo) -> str:
    limits = {
        limit: getattr(rule, limit) for rule in field.metadata for limit in ("ge", "gt", "le") if hasattr(rule, limit)
    }
    noun = _NOUNS[kind]
    if "le" in limits:
        lower = f"from {limits['ge']}" if "ge" in limits else f"above {limits['gt']} up"
        return f"{noun} {lower} to {limits['le']}"
    if "ge" in limits:
        return f"{noun} of at least {limits['ge']}"
    return f"{noun} above {limits['gt']}" if "gt" in limits else noun
