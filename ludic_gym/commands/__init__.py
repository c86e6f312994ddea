"""The subcommands of `ludic`: one file each, with `main(argv) -> exit code`."""
