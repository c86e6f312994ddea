"""CustomerDesk: databases with tools, policies, and the scripted customer."""
