"""What people read of a finished run: a card and a page, from what a task says of its answers.

contents        `TaskReport`, which a task fills
intervals       how far the scores might be off
calibration     whether probabilities are what they say
sentences       the report of a task on sentences, from arrays
drawings        curves and diagrams as SVG
page, card      `report.html` and `model_card.md`
"""
