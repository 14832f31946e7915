"""What a run takes and costs: operations, bytes, seconds, memory, money."""
