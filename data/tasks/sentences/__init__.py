"""Tasks on sentences, pairs and choices: reading, rows, results."""
