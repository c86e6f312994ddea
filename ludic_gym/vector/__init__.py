"""Many environments at once, each at its own pace."""
