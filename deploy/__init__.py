"""How Tane is run elsewhere than in a shell: files for containers and monitoring, and `ray_serve` for many machines."""
