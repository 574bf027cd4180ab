"""Tane on many machines: replicas of one server behind Ray Serve, whose router sends requests that belong together
(`x-session-id`) to one of them.

`serve run deploy.ray_serve:build min_replicas=2`, from the root of a checkout; the variables of `tane serve` are the
options of each replica. Knows Ray and nothing else: `deploy.replicas` says what is asked of it, and `service.replica`
is what runs.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ray import serve

from deploy.replicas import Cluster, deployment_options, options_of_replicas
from service.logs import configure_logging, form_for
from service.replica import Replica
from service.settings import Settings
from service.startup import build_service
from service.traced import tracer_for


class TaneReplica:
    """One replica, in a process of its own, as Ray wants its methods."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options` win over the environment of the machine that this replica came to."""
        settings = Settings.from_environment(options)
        configure_logging(settings.log_level, form_for(settings.log_format, sys.stderr), sys.stderr)
        service = replace(build_service(settings), tracer=tracer_for(settings))
        self._replica = Replica(service, serve.get_replica_context().replica_id.unique_id)

    def __serve_build_asgi_app__(self) -> Replica:
        return self._replica

    async def check_health(self) -> None:
        """Raises EngineLost, upon which Ray replaces this replica."""
        self._replica.check_health()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `deploy.queued_tokens` decides by."""
        return self._replica.load


TANE = serve.deployment(name="Tane")(serve.ingress()(TaneReplica))


def build(cluster: Cluster) -> serve.Application:
    """The application for Ray. Raises SettingsError."""
    settings = Settings.from_environment({})
    options = options_of_replicas(settings)
    described = deployment_options(cluster, threads=options["threads"], drain_s=settings.drain_s)
    return TANE.options(**described).bind(options)
