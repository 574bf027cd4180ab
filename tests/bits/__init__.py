"""Whether answers keep their bits: questions, the service engine to ask, and everything that must change nothing."""
