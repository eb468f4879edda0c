"""The methods of ScheduleService."""
