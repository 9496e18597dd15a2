"""The worker: a child process that executes one job. It reads the job's directory and never opens the database."""
