"""From a reader to restored frames."""
