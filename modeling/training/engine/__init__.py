"""One training step and the loop over steps, on any devices."""
