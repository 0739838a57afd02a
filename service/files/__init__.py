"""Reads the text of files: plain text in any encoding and, with the extra `files`, HTML, PDF, DOCX and EPUB."""
