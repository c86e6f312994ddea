"""TextWorld: houses, their rules, quests in them, and a player who knows the house."""
