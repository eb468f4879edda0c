"""Parsers of the small languages: cron expressions, filters and tube patterns."""
