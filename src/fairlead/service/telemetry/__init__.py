"""What the service reports about itself: metrics, log lines, notices. Each follows the log in a thread of its own."""
