"""Files of logs: folders, archives, bytes, JSON and rows, read in bounded memory."""
