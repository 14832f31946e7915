"""The training engine that every script uses: step, loop, run state, reporting."""
