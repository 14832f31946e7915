"""A released model made at home in a domain: new words, a plan, and what it has gained and lost."""
