"""The command line: each verb parses, calls one method of the agent, and prints."""
