"""The demos of fine-tuning: data that are made from what is installed, and what they are worth.

modules.py      the modules that texts are taken from, and the split
libraries.py    run_classifier.py --demo: which library a text is from
code_words.py   run_ner.py --demo: which words of a sentence are code, and what kind
arguments.py    run_squad.py --demo: what an argument is, what is returned or raised
comparison.py   runs the script from random weights and from a checkpoint, prints the table
scores.py       scores and their intervals

scikit-learn is imported where it is needed, since it takes a second that no other run should wait.
"""
