"""Small experiments that show what the product's own rules do, on examples whose answers are known."""
