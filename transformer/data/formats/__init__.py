"""Documents such as subtitles, catalogues of messages, web pages and office files."""
