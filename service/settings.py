"""The server's configuration: one frozen value, built once from flags and the environment.

The only reader of the environment. Always: an unknown `TANE_` variable is an error, and each default is
written here and nowhere else.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

PREFIX = "TANE_"


class Settings(BaseModel):
    """Options of `tane serve`. Each is also an environment variable: `--kv-cache-bytes` is TANE_KV_CACHE_BYTES."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    model: str | None = Field(None, description="A GGUF file; without it the default model is used, and pulled when missing.")
    engine: Literal["auto", "torch"] = Field("auto", description="Op set: torch computes and caches in float32.")
    threads: int | None = Field(None, ge=1, description="Threads for arithmetic; default: the usable cores.")
    kv_cache_bytes: int = Field(1 << 30, ge=1 << 20, description="Memory for cached keys and values.")
    max_queue_tokens: int | None = Field(
        None, ge=1, description="Most tokens that unfinished requests may reserve together; default: eight times the cache."
    )
    max_sessions: int = Field(1024, ge=1, description="Most sessions; past it the one longest unused is forgotten.")
    session_ttl_s: float = Field(3600.0, gt=0, description="Seconds after which an unused session is forgotten.")
    max_body_bytes: int = Field(2 << 20, ge=1024, description="Largest request body.")
    drain_s: float = Field(30.0, ge=0, description="Seconds that running requests get to finish after SIGTERM.")
    keep_alive_s: float = Field(15.0, gt=0, description="Seconds of silence after which a stream gets a comment line.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least serious lines logged.")

    @classmethod
    def load(cls, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Self:
        """Flags that were given win over the environment. Raises pydantic.ValidationError naming the option."""
        named = {name[len(PREFIX) :].lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
        given = {name: value for name, value in flags.items() if value is not None}
        return cls.model_validate(named | given)
