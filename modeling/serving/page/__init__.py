"""A local page to try exported models on: what they are, how they are asked, the server."""
