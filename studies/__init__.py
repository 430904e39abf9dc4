"""Small studies; `python -m studies.NAME` trains models, and prints and plots the results."""
