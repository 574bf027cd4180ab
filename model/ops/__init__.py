"""Op sets: one protocol, and the implementations that the transformer runs on."""
