"""What people do with answers, from the requests of one worker to the log of fullrank.events."""
