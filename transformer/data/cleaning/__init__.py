"""The cleaning of sentence pairs: rules, what each finds, and their use on text of any size."""
