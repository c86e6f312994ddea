"""An environment with a tool, without which no player knows the answer."""

import gymnasium as gym

import ludic_gym as lg

VAULT = "vault/Vault-v0"


class Vault(lg.TextEnv):
    """Ask for a number that the tool `open_vault` alone knows."""

    def start(self, options):
        """Draw the number and the key, which the question has."""
        self.key, self.number = (str(n) for n in self.np_random.integers(1000, 9999, size=2))
        return f"Key: {self.key}. Which number is in the vault?", "Use the tools you have."

    def turn(self, action):
        """Judge the number."""
        return lg.end(success=action == self.number)

    def best_action(self):
        """The number."""
        return self.number

    def tools(self):
        """The tool of the running episode."""

        def open_vault(key: int) -> str:
            """Open the vault.

            key: of the vault
            """
            return self.number if str(key) == self.key else "wrong key"

        return (open_vault,)


if VAULT not in gym.registry:
    gym.register(VAULT, Vault)
