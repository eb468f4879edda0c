"""Read what users write in small languages: cron expressions, filters, patterns."""
