"""What chooses the next message: a model, or the offline baseline."""
