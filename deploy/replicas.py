"""What replicas behind Ray Serve are told, and what Ray is told of them. Knows Ray's words and imports nothing of it.

Always: an option that means nothing behind a proxy is refused by name; nobody is served without a key unless
TANE_INSECURE says so, since who can reach the proxy is not known here.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.option import PREFIX
from service.settings import Settings, SettingsError

ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
POLICY = "deploy.queued_tokens.QueuedTokens"
WITHOUT_MEANING = ("host", "port", "metrics_port", "max_connections", "lame_duck_s")
"""Options of a server that listens itself, as Ray's proxy does here."""
KILL_S = 10.0
"""After the time that running requests get, until a replica that still has not ended is killed."""


class Cluster(BaseModel):
    """How many replicas there are, and how much each takes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int = Field(default=4, ge=1)
    queued_tokens: int = Field(default=4096, ge=1)
    """What unfinished requests may come to hold in the cache, for each replica; more calls for another one."""
    max_requests: int = Field(default=64, ge=1)
    """Unfinished requests of a replica; what is beyond goes to the next one."""
    max_waiting: int = Field(default=256, ge=1)
    """Requests that wait in a proxy for any replica; what is beyond is refused with 503."""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    downscale_delay_s: float = Field(default=300.0, ge=0)
    look_back_s: float = Field(default=15.0, gt=10)
    """Over so long queued tokens are averaged."""
    health_period_s: float = Field(default=5.0, gt=0)


def options_of_replicas(settings: Settings) -> dict[str, Any]:
    """The options that each replica is given; one thread unless they say another number. Raises SettingsError."""
    given = settings.model_fields_set
    if meaningless := [name for name in WITHOUT_MEANING if name in given]:
        problems = [f"{PREFIX}{name.upper()} means nothing here: Ray's proxy listens" for name in meaningless]
        raise SettingsError(*problems, names=meaningless)
    if settings.keys_file is None and not settings.insecure:
        problem = f"{PREFIX}KEYS_FILE must name a file of keys, or {PREFIX}INSECURE be true if anyone may call"
        raise SettingsError(problem, names=("keys_file",))
    return {"threads": 1, **settings.model_dump(include=given)}


def deployment_options(cluster: Cluster, *, threads: int, drain_s: float) -> dict[str, Any]:
    """What `Deployment.options` of Ray Serve takes. A replica is promised a processor for each of its threads."""
    return {
        "ray_actor_options": {"num_cpus": threads},
        "request_router_config": {"request_router_class": ROUTER},
        "max_ongoing_requests": cluster.max_requests,
        "max_queued_requests": cluster.max_waiting,
        "backpressure_config": {"status_code": 503, "retry_after_s": 1},
        "logging_config": {"enable_access_log": False},
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": drain_s + KILL_S,
        "health_check_period_s": cluster.health_period_s,
        **_size(cluster),
    }


def _size(cluster: Cluster) -> dict[str, Any]:
    if cluster.min_replicas == cluster.max_replicas:
        return {"num_replicas": cluster.min_replicas}
    scaling = {
        "min_replicas": cluster.min_replicas,
        "max_replicas": cluster.max_replicas,
        "upscale_delay_s": cluster.upscale_delay_s,
        "downscale_delay_s": cluster.downscale_delay_s,
        "look_back_period_s": cluster.look_back_s,
        "policy": {"policy_function": POLICY, "policy_kwargs": {"per_replica": cluster.queued_tokens}},
    }
    return {"autoscaling_config": scaling}
