"""The worker: a child process that carries out one job. It reads the job's directory and never opens the database."""
