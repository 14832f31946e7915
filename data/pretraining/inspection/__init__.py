"""What is in record files, for people.

inspection.py   reading all records: checks and counts
statistics.py   what is counted
record_text.py  records as text with their masks marked
reports.py      the numbers as text, JSON and histograms
"""
