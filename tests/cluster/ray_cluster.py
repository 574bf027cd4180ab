"""A Ray of its own on this machine with replicas of Tane, until the block ends. The only file here that imports Ray.

Always: callers need the key of the cluster; nothing is sent anywhere but to this machine's own addresses.
"""

import logging
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.free_port import free_port

HOST = "127.0.0.1"
OBJECT_STORE_BYTES = 80 << 20
"""About the least that Ray takes; answers do not pass through it."""
APPLICATION, DEPLOYMENT = "tane", "Tane"
PATIENCE_S = 120.0
POLL_S = 0.1
REPLICA = "SERVE_REPLICA::"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0", "RAY_DEDUP_LOGS": "0"}
"""Ray tells nobody how it is used, and the terminal is for the report."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    url: str
    api_key: str
    size: int
    start_s: float
    """From nothing to replicas that answer."""

    @property
    def replicas(self) -> list[str]:
        """The names of those whose processes live, as answers tell them."""
        return sorted(actor["name"].rpartition("#")[2] for actor in _replica_actors())

    @property
    def running(self) -> int:
        """How many take requests."""
        from ray import serve

        states = serve.status().applications[APPLICATION].deployments[DEPLOYMENT].replica_states
        return int(states.get("RUNNING", 0))

    def kill(self, replica: str) -> None:
        """End its process at once, as `kill -9` does."""
        os.kill(self.process_of(replica), signal.SIGKILL)

    def process_of(self, replica: str) -> int:
        return int(self.inside(replica, lambda _: os.getpid()))

    def wait_until_replaced(self, replica: str) -> float:
        """Seconds until another takes requests in its place. Raises TimeoutError."""
        began = time.monotonic()
        # Ray goes on counting one that is gone until it has begun another.
        while replica in self.replicas or min(len(self.replicas), self.running) < self.size:
            if time.monotonic() - began > PATIENCE_S:
                raise TimeoutError(f"{self.running} of {self.size} replicas take requests")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def inside(self, replica: str, call: Callable[[Any], Any]) -> Any:
        """What a function says that is called with the replica's actor, in its process."""
        import ray

        (name,) = [each["name"] for each in _replica_actors() if each["name"].endswith(f"#{replica}")]
        return ray.get(ray.get_actor(name, namespace="serve").__ray_call__.remote(call))

    def resize(self, replicas: int) -> None:
        """Ask for so many, and wait for those that are added; what is taken away ends by itself."""
        _run(replicas)


def _replica_actors() -> list[dict[str, str]]:
    import ray

    named: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    return [actor for actor in named if actor["name"].startswith(REPLICA)]


@contextmanager
def ray_cluster(replicas: int, **variables: str) -> Iterator[RayCluster]:
    """So many replicas of one thread each. `variables` are added to the environment that the replicas see."""
    began = time.perf_counter()
    key = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="tane-") as folder:
        keys = Path(folder, "keys")
        keys.write_text(f"{key}\n", encoding="ascii")
        os.environ |= {**QUIET, "TANE_KEYS_FILE": str(keys), **variables}
        try:
            port = _start(replicas, folder)
            yield RayCluster(f"http://{HOST}:{port}", key, replicas, time.perf_counter() - began)
        finally:
            _stop()


def _start(replicas: int, folder: str) -> int:
    """Answers the port of the proxy."""
    from ray import serve

    port = free_port()
    _start_ray(replicas, folder)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    serve.start(http_options={"host": HOST, "port": port}, proxy_location="HeadOnly")
    _run(replicas)
    return port


def _start_ray(processors: int, folder: str, tries: int = 3) -> None:
    """Ray gives its own processes 30 seconds, in which a machine that does much else may not get them up."""
    import ray

    try:
        ray.init(
            num_cpus=processors,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="error",
            _node_ip_address=HOST,
            _temp_dir=folder,
        )
    except Exception:
        ray.shutdown()
        if tries == 1:
            raise
        _start_ray(processors, folder, tries - 1)


def _run(replicas: int) -> None:
    from ray import serve

    from deploy.ray_serve import build
    from deploy.replicas import Cluster

    serve.run(build(Cluster(min_replicas=replicas, max_replicas=replicas, health_period_s=2.0)), name=APPLICATION)


def _stop() -> None:
    import ray
    from ray import serve

    if ray.is_initialized():  # else this would start another one
        serve.shutdown()
    ray.shutdown()
