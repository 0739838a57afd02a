"""Texts of the files that people have: plain ones in any encoding, and, with the extra `files`, HTML, PDF, DOCX and EPUB."""
