"""Several replicas behind Ray Serve on this machine: `python -m tests.cluster` shows load, affinity and failover."""
