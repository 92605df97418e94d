//! What an agent can do: read, write, list files, run commands
