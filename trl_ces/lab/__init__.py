"""What stands on a training: evaluation, studies, reports, plans, the Hub, small worlds, and their commands."""
