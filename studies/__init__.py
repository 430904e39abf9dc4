"""Small studies, each a command that trains, prints and draws: `python -m studies.NAME`."""
