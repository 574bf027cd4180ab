"""What compression costs: real text, predictions, and figures that compare them."""
