"""What is asked of exported models, and their answers: lines of files and of standard input."""
